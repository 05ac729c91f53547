"""When the number of right guesses refutes a claim of privacy, and the largest claim that is refuted."""

from __future__ import annotations

from collections.abc import Callable

from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.privacy._inputs import require_count, shown

_MOST_CANARIES = 10**6


def require_guesses(guesses: int, correct: int, canaries: int) -> None:
    """Refuse counts that are not ``0 <= correct <= guesses <= canaries``, with at least one guess."""
    require_count("canaries", canaries, _MOST_CANARIES)
    require_count("guesses", guesses, _MOST_CANARIES)
    require_at_least("correct", correct, 0)
    if guesses > canaries:
        raise InputError(f"guesses = {guesses} must be at most canaries = {canaries}: guess each canary once.")
    if correct > guesses:
        raise InputError(
            f"correct = {shown(correct)} must be at most guesses = {guesses}: count the right ones among them."
        )


def largest_refuted(refuted: Callable[[float], bool]) -> float:
    """Return the end of the interval from 0 in which a claim is refuted, to 9 digits from below; 0 if there is none.

    The value returned is one that was refuted itself, so it is a valid bound whether or not the set is an interval.

    Example:
        >>> round(largest_refuted(lambda claim: claim < 5.3), 6), largest_refuted(lambda claim: False)
        (5.3, 0.0)
    """
    if not refuted(0.0):
        return 0.0
    low, high = 0.0, 1.0
    while refuted(high):
        low, high = high, 2 * high
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if refuted(middle) else (low, middle)
    return low


def guesses_refute(
    least_other: Callable[[float], float], guesses: int, correct: int, canaries: int, level: float
) -> bool:
    """Return whether so many right guesses have a probability below ``level`` under a claim of privacy.

    The claim is that an event of probability ``b`` with one dataset has at most ``F(b)`` with a neighbour, ``F``
    concave. Of ``m`` coins, ``r`` are guessed from the output, and ``V`` guesses are right. Flip coin ``j`` in the
    event that guess ``j`` is right and ``V >= c``: now guess ``j`` is wrong and ``V >= c - 1``. The mean over all coins
    and all ``j`` gives, for every ``c``,

    ``E[V; V >= c] / m <= F(E[r - V; V >= c - 1] / m)``.

    Suppose that ``P[V >= v]`` is the level. The law of least total mass that satisfies all of these has that mass at
    ``v`` and, from ``c = v`` down, the least mass at ``c - 1`` that the inequality asks for: mass further down adds
    more to the right side and less to the left. If the total is above 1, there is no such law. Nor is there one for a
    higher probability: mixed with ``V = 0``, it would give one for the level.

    Args:
        least_other: the inverse of ``F``: the least probability ``b`` with ``F(b)`` at least as large as the argument.
        guesses: ``r``.
        correct: ``v``.
        canaries: ``m``.
        level: between 0 and 1.

    References:
        Mahloujifar, Melis, Chaudhuri: Auditing f-Differential Privacy in One Run. 2024.
    """
    total = level
    right, wrong = correct * level / canaries, (guesses - correct) * level / canaries
    for c in range(correct, 0, -1):
        missing = least_other(right) - wrong
        if missing <= 0:  # and stays so, since neither side changes any more
            return False
        mass = missing * canaries / (guesses - c + 1)
        total += mass
        if total > 1:
            return True
        right += mass * (c - 1) / canaries
        wrong += missing
    return False
