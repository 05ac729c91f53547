"""Pool-adjacent-violators on concave terms: Problem (P2) of Sec. V-B, solved exactly.

The variable is ``s = h_i^2 + sigma_i^2``, the variance that hides an entry. Devices with the same budget have the same
``s``, whatever their ``h_i``, so pooling acts on ``s``: budgets are non-increasing if ``s`` is non-decreasing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize.elementwise import find_root

from codedfl.errors import InputError
from codedfl.incentive._utility import Gamma, variance_per_bit
from codedfl.typing import FloatArray, IntArray

_NEVER = -1e4  # stands for the logarithm of zero
_NEAR = 1 + 1e-13  # closer values are equal up to rounding, as when a root is at a capped block


@dataclass(frozen=True, eq=False)
class PooledTerms:
    """The terms ``Phi_i(eps) = Gamma(q_i^-1(eps)) - price_i eps`` of devices in the order of their sensitivities.

    ``price_i`` is ``lambda w_i``, ``w_i = i mu_i - (i - 1) mu_{i-1}``.
    """

    price: FloatArray
    interference: FloatArray
    coded_samples: float
    gamma: Gamma

    def gain(self, hidden_variance: FloatArray, members: IntArray) -> FloatArray:
        """Return ``d Gamma(q_i^-1(eps)) / d eps`` of some devices: ``-Gamma'(s - h_i^2) 2 ln2 s (s + c) / c``."""
        noise = np.maximum(hidden_variance - self.interference[members], 0.0)
        return -self.gamma.slope(noise) * variance_per_bit(hidden_variance, self.coded_samples)


def _log_ratio(gain: FloatArray, price: FloatArray) -> FloatArray:
    """Return ``log(gain / price)``, nearly linear in ``log s``, so that its root is found quickly."""
    safe = np.where(gain > 0, gain, 1.0)
    return np.where(gain > 0, np.log(safe) - np.log(price), _NEVER)


def _roots(
    excess: Callable[[FloatArray, IntArray], FloatArray], low: FloatArray, high: FloatArray, which: IntArray
) -> FloatArray:
    """Return the root of ``excess(., k)`` between ``low`` and ``high``, where its signs differ, for every ``k`` in ``which``.

    ``find_root`` evaluates only the roots not found yet. For a function that jumps across zero it finds the jump.
    Without an absolute tolerance, the search for a jump at zero would continue down to the smallest floating-point
    numbers.
    """
    with np.errstate(all="ignore"):
        found: FloatArray = find_root(excess, (low, high), args=(which,), tolerances={"xatol": 1e-15, "xrtol": 1e-15}).x
    return found


def separate_maximisers(terms: PooledTerms) -> FloatArray:
    """Return each device's separate optimum ``s``, the root of ``Phi_i' = 0``, or ``h_i^2`` where even no noise is too much.

    For ``Gamma = -sigma^4`` the root obeys ``4 ln2 sigma_i^2 s_i (s_i + c) / c = lambda w_i``.

    Raises:
        InputError: The utility never falls, so the server would buy nothing at any price.
    """
    everyone = np.arange(terms.price.size)

    def excess(log_hidden: FloatArray, members: IntArray) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return _log_ratio(terms.gain(np.exp(log_hidden), members), terms.price[members])

    start = np.log(np.where(terms.interference > 0, terms.interference, terms.coded_samples))
    low, high = start.copy(), start.copy()
    for bracket, step, right_sign in ((low, -1.0, -1.0), (high, 1.0, 1.0)):
        open_ended = everyone if step > 0 else everyone[terms.interference == 0]
        while open_ended.size:
            open_ended = open_ended[right_sign * excess(bracket[open_ended], open_ended) < 0]
            bracket[open_ended] += step
            step *= 2
            if abs(step) > 512:
                raise InputError(
                    f"gamma = {terms.gamma} does not fall with the noise variance (or its slope is not a number there): "
                    "give a utility that is concave and decreases."
                )
    inside = everyone[excess(low, everyone) < 0]
    low[inside] = _roots(excess, low[inside], high[inside], inside)
    return np.maximum(np.exp(low), terms.interference)


def pool(terms: PooledTerms, separate: FloatArray, least_hidden_variance: FloatArray) -> FloatArray:
    """Return the ``s`` that maximises the sum of the terms, non-decreasing and at least ``least_hidden_variance``.

    A device's cap also binds all later devices, so caps are replaced by their running maximum (in ``s``). Then
    neighbours are pooled in a tree. Two solved halves that violate the order at their seam are joined by one value
    ``v``: ``min(s_i, v)`` on the left and ``max(s_i, v)`` on the right. ``v`` is the root of the derivative summed over
    the whole blocks above ``v`` on the left and below it on the right. (The optimum of a half bounded by a constant is
    the half's solution clipped to it, and this sum is the derivative of both optima in that constant.) This takes
    ``log2 N`` sweeps over arrays, whatever the blocks; pooling from one end takes up to one merge per device.

    Clipping the pooled solution to the caps afterwards would be wrong: a cap that binds one member of a block frees the
    others.
    """
    hidden = np.maximum(separate, np.maximum.accumulate(least_hidden_variance))
    half = 1
    while half < hidden.size:
        seams = np.arange(half, hidden.size, 2 * half)
        seams = seams[hidden[seams - 1] > hidden[seams]]
        if seams.size:
            _join(terms, hidden, seams, half)
        half *= 2
    return hidden


def _join(terms: PooledTerms, hidden: FloatArray, seams: IntArray, half: int) -> None:
    """Join the halves on both sides of every seam, in place."""
    low, high = hidden[seams], hidden[seams - 1]
    seam_number = np.full(hidden.size // (2 * half) + 1, -1)
    seam_number[seams // (2 * half)] = np.arange(seams.size)
    everyone = np.arange(hidden.size)
    seam_of = seam_number[everyone // (2 * half)]
    on_left = everyone % (2 * half) < half
    touched = (seam_of >= 0) & np.where(on_left, hidden > low[seam_of], hidden < high[seam_of])
    members = np.flatnonzero(touched)
    seam_of, on_left, now = seam_of[members], on_left[members], hidden[members]

    def excess(log_value: FloatArray, asked: IntArray) -> FloatArray:
        number = np.full(seams.size, -1)
        number[asked] = np.arange(asked.size)
        where = number[seam_of]
        kept = slice(None) if asked.size == seams.size else np.flatnonzero(where >= 0)
        where, who = where[kept], members[kept]
        at = np.exp(log_value)[where]
        counted = np.flatnonzero(on_left[kept] == (now[kept] > at * _NEAR))  # above on the left, not above on the right
        who, where = who[counted], where[counted]
        gains = np.bincount(where, terms.gain(at[counted], who), asked.size).astype(np.float64)
        prices = np.bincount(where, terms.price[who], asked.size).astype(np.float64)
        return _log_ratio(gains, np.where(prices > 0, prices, 1.0))

    log_low, log_high = np.log(low), np.log(high)
    everyone = np.arange(seams.size)
    inside = np.flatnonzero((excess(log_low, everyone) < 0) & (excess(log_high, everyone) > 0))
    joined = low.copy()
    found = np.exp(_roots(excess, log_low[inside], log_high[inside], inside))
    joined[inside] = np.clip(found, low[inside], high[inside])
    at_seam = joined[seam_of]
    reached = np.flatnonzero(~on_left & (now > at_seam) & (now <= at_seam * _NEAR**2))
    np.maximum.at(joined, seam_of[reached], now[reached])
    at_seam = joined[seam_of]
    hidden[members] = np.where(on_left, np.minimum(now, at_seam), np.maximum(now, at_seam))
