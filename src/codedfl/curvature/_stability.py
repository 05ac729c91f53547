"""How wrong the sketch may be before a memory of every device becomes unstable."""

from __future__ import annotations

from codedfl.errors import InputError


def largest_stable_mismatch(share: float, tail_ratio: float) -> float:
    """Return ``delta* = (2 - a) (2 - alpha) / alpha``, the mismatch up to which training is stable in a direction.

    Take a direction of true curvature ``lambda`` to which the sketch ascribes ``t``. Let ``alpha`` be the weight of a new
    gradient against what is remembered, ``a = t / (t + mu)`` and ``delta = (lambda - t) / (t + mu)``. The error ``e`` of the
    model and the remembered part ``m`` of its gradient follow ``m' = (1 - alpha) m + alpha delta e`` and
    ``e' = (1 - a) e - m'``. The determinant of this recursion is ``(1 - a) (1 - alpha) < 1``, so by Jury's criterion it is
    stable if and only if ``-a < delta < delta*``; the lower bound says that ``lambda`` is positive.

    A smaller weight stands more: the sketch may miss curvature of ``delta*`` times ``t + mu``, and not only of ``2 - a`` times
    as without a memory (``alpha = 1``).

    Args:
        share: ``alpha``, more than 0, at most 1.
        tail_ratio: ``a``, from 0 to 1.

    Example:
        >>> largest_stable_mismatch(share=1.0, tail_ratio=0.0), largest_stable_mismatch(share=0.5, tail_ratio=0.25)
        (2.0, 5.25)
    """
    if not 0.0 < share <= 1.0:
        raise InputError(f"share = {share} must be more than 0 and at most 1.")
    if not 0.0 <= tail_ratio <= 1.0:
        raise InputError(f"tail_ratio = {tail_ratio} must be between 0 and 1.")
    return (2.0 - tail_ratio) * (2.0 - share) / share
