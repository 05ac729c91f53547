"""A lower bound on epsilon, measured with canaries in one run."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from codedfl._validation import require_at_least, require_finite
from codedfl.errors import InputError
from codedfl.privacy._gaussian import gaussian_epsilon
from codedfl.privacy._inputs import require_count, require_number, require_probability, shown
from codedfl.typing import BoolArray, FloatArray, IntArray

_MOST_CANARIES = 10**6

_LEAST_GUESSES = 20
"""Fewer right guesses than this refute so little that a candidate costs more confidence than it earns."""


@dataclass(frozen=True)
class EmpiricalBound:
    """What an audit with canaries has shown: the mechanism is not private at this delta with any smaller epsilon.

    Args:
        epsilon: the lower bound, in nats; 0 if nothing was shown.
        delta: the delta that it belongs to.
        confidence: the probability, over coins and mechanism, with which such a bound is not above the true epsilon.
        canaries: ``m``, how many canaries had a coin.
        guesses: ``r``, for how many of them a guess was made.
        correct: ``v``, how many guesses were right.
    """

    epsilon: float
    delta: float
    confidence: float
    canaries: int
    guesses: int
    correct: int


def epsilon_lower_bound(guesses: int, correct: int, canaries: int, delta: float, confidence: float = 0.95) -> float:
    """Return an epsilon such that, with this confidence, no smaller one holds at this delta.

    It is the largest epsilon whose p-value is below ``1 - confidence``, or the largest that the argument of Mahloujifar and
    others refutes with ``F(b) = min(e^eps b + delta, 1 - e^-eps (1 - delta - b))`` if that is larger, as it is where
    ``m delta`` is not small. Both bound the same probability, so the better one may be taken. If all guesses are right,
    the bound is about ``ln(r / ln(1 / (1 - confidence)))``; it is never more.

    Args:
        guesses: ``r``, fixed before the coins are looked at.
        correct: ``v``.
        canaries: ``m``.
        delta: zero or more, below 1.
        confidence: between 0 and 1, both excluded.

    Example:
        >>> round(epsilon_lower_bound(guesses=100, correct=75, canaries=1000, delta=1e-4), 3)
        0.68
        >>> epsilon_lower_bound(guesses=100, correct=50, canaries=1000, delta=1e-4)
        0.0
    """
    _require_guesses(guesses, correct, canaries)
    _check_delta(delta)
    require_probability("confidence", confidence)
    log_p_value = _log_p_value(guesses, correct, canaries, delta)
    level = math.log1p(-confidence)

    def refuted_by_flips(epsilon: float) -> bool:
        grow, shrink = math.exp(epsilon), math.exp(-epsilon)

        def least_other(probability: float) -> float:
            return max(shrink * (probability - delta), 1 - delta - grow * (1 - probability), 0.0)

        return _guesses_refute(least_other, guesses, correct, canaries, 1 - confidence)

    # A mechanism that is private is so at every larger epsilon, too: whatever is refuted is a valid bound.
    by_p_value = _largest_refuted(lambda epsilon: log_p_value(epsilon) < level)
    return max(by_p_value, _largest_refuted(refuted_by_flips))


def gaussian_mu_lower_bound(guesses: int, correct: int, canaries: int, confidence: float = 0.95) -> float:
    """Return a ``mu`` such that, with this confidence, the mechanism is not Gaussian-private with any smaller one.

    A mechanism is ``mu``-Gaussian differentially private if adding or removing a sample is at least as hard to detect
    as telling N(0, 1) from N(mu, 1): an event of probability ``b`` with one dataset has with the other at most
    ``F(b) = Phi(Phi^-1(b) + mu)``. `_guesses_refute` tests that.

    Args:
        guesses: ``r``, fixed before the coins are looked at.
        correct: ``v``.
        canaries: ``m``, those without a guess included.
        confidence: between 0 and 1, both excluded.

    Returns:
        The largest ``mu`` that is refuted; 0 if none is.

    Example:
        >>> round(gaussian_mu_lower_bound(guesses=1000, correct=1000, canaries=1000), 3)
        2.368
        >>> gaussian_mu_lower_bound(guesses=1000, correct=500, canaries=1000)
        0.0
    """
    _require_guesses(guesses, correct, canaries)
    require_probability("confidence", confidence)

    def refuted(mu: float) -> bool:
        def least_other(probability: float) -> float:
            return float(special.ndtr(special.ndtri(probability) - mu))

        return _guesses_refute(least_other, guesses, correct, canaries, 1 - confidence)

    return _largest_refuted(refuted)


def audit_scores(
    scores: FloatArray,
    included: BoolArray,
    delta: float,
    *,
    confidence: float = 0.95,
    guesses: int | Sequence[int] | None = None,
    gaussian: bool = False,
) -> EmpiricalBound:
    """Guess from scores which canaries were present, and return the lower bound on epsilon that right guesses prove.

    Of ``r`` guesses, the half with the highest scores is "present" and the half with the lowest is "absent"; the rest
    is left open. Equal scores are ordered by a fixed shuffle, which the coins do not enter. If there are several
    candidates for ``r``, each is tested at ``1 - (1 - confidence) / candidates`` and the best bound is returned (a
    union bound), so that the choice costs confidence and does not have to be made blindly.

    Args:
        scores: (m,), the higher, the more likely the canary is present: computed from what the mechanism released and
            from the canaries, without the coins.
        included: (m,), the coins: True for canaries that were present, each with probability 1/2 and independently of
            all others.
        delta: zero or more, below 1; positive if ``gaussian``.
        confidence: between 0 and 1, both excluded.
        guesses: ``r``, or several candidates; None for ``m - 3 sqrt(m)`` and its halves, quarters, eighths and
            sixteenths, down to 20. The first stays 3 standard deviations away from guessing more canaries "present"
            than there are.
        gaussian: whether the mechanism under test consists of Gaussian mechanisms, so that `gaussian_mu_lower_bound`
            applies: epsilon is then that of the smallest ``mu`` that is not refuted, a far larger number.

    Returns:
        The bound, with the counts of the candidate that gave it.

    Raises:
        InputError: if shapes or values are wrong, or if the share of canaries present is 6 standard errors off 1/2.

    Example:
        >>> included = np.random.default_rng(0).random(1000) < 0.5
        >>> bound = audit_scores(included.astype(float), included, delta=1e-5)
        >>> round(bound.epsilon, 2), bound.guesses, bound.correct
        (5.28, 905, 905)
        >>> round(audit_scores(included.astype(float), included, delta=1e-5, gaussian=True).epsilon, 1)
        9.5
    """
    _check_scores(scores, included)
    _check_delta(delta)
    require_probability("confidence", confidence)
    canaries = len(scores)
    candidates = _candidates(guesses, canaries)
    each = 1 - (1 - confidence) / len(candidates)
    order = _order(scores)
    best = EmpiricalBound(-1.0, delta, confidence, canaries, 0, 0)
    for count in candidates:
        correct = _correct(order, included, count)
        if gaussian:
            epsilon = gaussian_epsilon(gaussian_mu_lower_bound(count, correct, canaries, each), delta)
        else:
            epsilon = epsilon_lower_bound(count, correct, canaries, delta, each)
        if epsilon > best.epsilon:
            best = EmpiricalBound(epsilon, delta, confidence, canaries, count, correct)
    return best


def _largest_refuted(refuted: Callable[[float], bool]) -> float:
    """Return the end of the interval from 0 in which a claim is refuted, to 9 digits from below; 0 if there is none.

    The value returned is one that was refuted itself, so it is a valid bound whether or not the set is an interval.

    Example:
        >>> round(_largest_refuted(lambda claim: claim < 5.3), 6), _largest_refuted(lambda claim: False)
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


def _guesses_refute(
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


def _log_p_value(r: int, v: int, m: int, delta: float) -> Callable[[float], float]:
    """Return ``ln`` of the p-value, not capped at 0, as a function of epsilon.

    It bounds the probability that an (epsilon, delta)-private mechanism lets so many guesses be right. Each of ``m`` canaries
    is present or absent by a fair coin of its own. From the output alone, ``r`` coins are guessed and ``V`` guesses are right.
    With ``B`` binomial of ``r`` trials with success probability ``e^eps / (1 + e^eps)``,

    ``P[V >= v] <= P[B >= v] + 2 m delta max_i P[v - i <= B < v] / i``, ``i = 1, 2, ..., m``.

    References:
        Steinke, Nasr, Jagielski: Privacy Auditing with One (1) Training Run. NeurIPS 2023, Theorem 5.2.
    """
    k = np.arange(r + 1.0)
    log_choices = special.gammaln(r + 1.0) - special.gammaln(k + 1) - special.gammaln(r - k + 1)
    lengths = np.arange(1.0, v + 1)  # longer intervals than v have no more mass

    def log_p_value(epsilon: float) -> float:
        log_success = -math.log1p(math.exp(-epsilon))
        log_mass = log_choices + k * log_success + (r - k) * (log_success - epsilon)
        largest = float(log_mass[v:].max())
        log_tail = largest + math.log(float(np.sum(np.exp(log_mass[v:] - largest))))
        if v == 0 or delta == 0:
            return log_tail
        below = log_mass[v - 1 :: -1]
        largest = float(below.max())
        densest = float(np.max(np.cumsum(np.exp(below - largest)) / lengths))
        return float(np.logaddexp(log_tail, math.log(2 * m * delta) + largest + math.log(densest)))

    return log_p_value


def _candidates(guesses: int | Sequence[int] | None, canaries: int) -> tuple[int, ...]:
    if guesses is None:
        most = max(canaries - math.ceil(3 * math.sqrt(canaries)), 1)
        return (most, *(n for n in (most // 2, most // 4, most // 8, most // 16) if n >= _LEAST_GUESSES))
    chosen = (guesses,) if isinstance(guesses, int | np.integer) else tuple(guesses)
    if not chosen:
        raise InputError("guesses = () must name at least one number of guesses, for example 100.")
    for count in chosen:
        _require_guesses(count, 0, canaries)
    return tuple(dict.fromkeys(chosen))


def _order(scores: FloatArray) -> IntArray:
    """Return canaries by rising score; ties are shuffled, or a caller who sorts canaries by coin would gain by them."""
    shuffled = np.random.default_rng(0).permutation(len(scores))
    order: IntArray = shuffled[np.argsort(scores[shuffled], kind="stable")]
    return order


def _correct(order: IntArray, included: BoolArray, guesses: int) -> int:
    absent = guesses // 2
    present = guesses - absent
    hits = int(np.count_nonzero(included[order[len(order) - present :]]))
    return hits + absent - int(np.count_nonzero(included[order[:absent]]))


def _require_guesses(guesses: int, correct: int, canaries: int) -> None:
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


def _check_delta(delta: float) -> None:
    require_number("delta", delta)
    if delta >= 1:
        raise InputError(f"delta = {delta} must be below 1, for example 1e-5.")


def _check_scores(scores: FloatArray, included: BoolArray) -> None:
    if scores.ndim != 1 or not len(scores):
        raise InputError(f"scores has shape {scores.shape}: give a vector with one score for each canary.")
    require_finite("scores", scores)
    if included.shape != scores.shape or included.dtype != np.bool_:
        raise InputError(
            f"included has shape {included.shape} and dtype {included.dtype}: "
            f"give one boolean for each of {len(scores)} scores."
        )
    present = int(np.count_nonzero(included))
    if abs(present - len(scores) / 2) > 3 * math.sqrt(len(scores)):
        raise InputError(
            f"included has {present} of {len(scores)} canaries: toss a fair coin for each, or the bound does not hold."
        )
