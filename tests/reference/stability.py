"""How wrong a sketch may be before a memory of every device becomes unstable; `docs/beyond.md` derives it."""

from __future__ import annotations


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
    """
    return (2.0 - tail_ratio) * (2.0 - share) / share
