"""Checks that devices accept a contract, that none gains by misreporting, and that it is optimal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.incentive._menu import SAME
from codedfl.incentive._pooling import PooledTerms
from codedfl.incentive._utility import hidden_variance_of, mi_dp_bits_of
from codedfl.typing import FloatArray, IntArray

TOLERANCE = 1e-9
"""Of the largest reward for utilities, and of a block's total price for optimality."""


@dataclass(frozen=True)
class Verification:
    """The results of all checks, each a number that is zero up to rounding if the property holds.

    Args:
        least_utility: ``min_i U_i``; individual rationality requires zero or more.
        largest_gain: The most that any device gains by taking another's item; incentive compatibility requires zero or
            less.
        largest_rise: The most that a budget exceeds that of a less sensitive device.
        largest_excess: The most that a budget exceeds its cap ``q_i(sigma_min,i^2)``.
        optimality_residual: Relative residual of the Karush-Kuhn-Tucker conditions of (P2).
        all_pairs: Whether each device was compared with every item, or only with its neighbours' (which implies the
            rest).
        reward_scale: The largest reward, which tolerances are relative to.
    """

    least_utility: float
    largest_gain: float
    largest_rise: float
    largest_excess: float
    optimality_residual: float
    all_pairs: bool
    reward_scale: float

    @property
    def individually_rational(self) -> bool:
        """Whether no device does better by leaving."""
        return self.least_utility >= -TOLERANCE * self.reward_scale

    @property
    def incentive_compatible(self) -> bool:
        """Whether no device does better with another's item."""
        return self.largest_gain <= TOLERANCE * self.reward_scale

    @property
    def monotone(self) -> bool:
        """Whether more sensitive devices have no larger budgets."""
        return self.largest_rise <= TOLERANCE

    @property
    def optimal(self) -> bool:
        """Whether the budgets respect their caps and solve (P2)."""
        return self.largest_excess <= TOLERANCE and self.optimality_residual <= 1e-7

    @property
    def holds(self) -> bool:
        """Whether all checks hold."""
        return self.individually_rational and self.incentive_compatible and self.monotone and self.optimal


def verify_items(
    terms: PooledTerms,
    *,
    sensitivity: FloatArray,
    least_hidden_variance: FloatArray,
    mi_dp_bits: FloatArray,
    reward: FloatArray,
    all_pairs: bool,
) -> Verification:
    """Check the items of devices that are sorted by sensitivity."""
    cap = mi_dp_bits_of(least_hidden_variance, terms.coded_samples)
    rise = float(np.max(np.diff(mi_dp_bits) / mi_dp_bits[:-1], initial=0.0))
    gain = (
        largest_gain(sensitivity, mi_dp_bits, reward) if all_pairs else neighbour_gain(sensitivity, mi_dp_bits, reward)
    )
    return Verification(
        least_utility=float((reward - sensitivity * mi_dp_bits).min()),
        largest_gain=gain,
        largest_rise=rise,
        largest_excess=float(np.max(mi_dp_bits / cap - 1, initial=0.0)),
        optimality_residual=optimality_residual(terms, mi_dp_bits, cap),
        all_pairs=all_pairs,
        reward_scale=float(reward.max()),
    )


def largest_gain(sensitivity: FloatArray, mi_dp_bits: FloatArray, reward: FloatArray, rows: int = 512) -> float:
    """Return ``max_{i, j} U_i(eps_j, r_j) - U_i(bits_i, r_i)`` over all pairs, in blocks of rows."""
    most = 0.0
    for start in range(0, sensitivity.size, rows):
        mu = sensitivity[start : start + rows]
        own = reward[start : start + rows] - mu * mi_dp_bits[start : start + rows]
        most = max(most, float(((reward - mu[:, None] * mi_dp_bits).max(axis=1) - own).max()))
    return most


def neighbour_gain(sensitivity: FloatArray, mi_dp_bits: FloatArray, reward: FloatArray) -> float:
    """Return the largest gain of any device from its neighbour's item.

    If no device gains by the item of the next or the previous one in the order of sensitivity, and budgets do not increase in
    that order, then none gains by any item: gains over a chain of neighbours add up to at least the gain of the jump.
    """
    taken, paid = np.diff(mi_dp_bits), np.diff(reward)
    forward = paid - sensitivity[:-1] * taken
    backward = sensitivity[1:] * taken - paid
    return float(max(np.max(forward, initial=0.0), np.max(backward, initial=0.0)))


def optimality_residual(terms: PooledTerms, mi_dp_bits: FloatArray, cap: FloatArray) -> float:
    """Return the residual of the optimality conditions of (P2), relative to the gains and prices of a block.

    With multipliers ``nu_i >= 0`` of ``bits_i >= eps_{i+1}`` and ``kappa_i >= 0`` of the caps,
    ``Phi_i' + nu_i - nu_{i-1} = kappa_i``. In a block of equal budgets ``nu`` is zero at both ends. So no initial part
    of the block, up to its first capped member, may gain by a larger budget, and no final part from there on by a
    smaller one; without a cap, the whole block is stationary. Derivatives are taken at hidden variances ``s`` one
    rounding error to either side.
    """
    everyone = np.arange(mi_dp_bits.size)
    hidden = hidden_variance_of(mi_dp_bits, terms.coded_samples)
    starts = np.flatnonzero(np.append(True, mi_dp_bits[1:] < mi_dp_bits[:-1] * (1 - SAME)))
    block = np.repeat(np.arange(starts.size), np.diff(np.append(starts, mi_dp_bits.size)))
    gain = terms.gain(hidden * (1 + SAME), everyone)
    most, least = gain - terms.price, terms.gain(hidden * (1 - SAME), everyone) - terms.price
    capped = np.where(mi_dp_bits >= cap * (1 - SAME), everyone, mi_dp_bits.size)
    from_cap = everyone >= np.minimum.reduceat(capped, starts)[block]
    first_parts = np.where(from_cap, 0.0, _running_sums(least, starts, block))
    most_backwards = np.cumsum(most[::-1])[::-1]
    after = np.append(most_backwards, 0.0)[np.append(starts[1:], mi_dp_bits.size)]
    last_parts = most_backwards - after[block]
    is_first = np.zeros(mi_dp_bits.size, dtype=np.bool_)
    is_first[starts] = True
    after_cap = np.append(False, from_cap[:-1]) & ~is_first
    wrong = np.maximum(first_parts, np.where(after_cap | is_first, -last_parts, 0.0))
    scale = np.add.reduceat(gain + terms.price, starts)
    return float(np.max(wrong / scale[block], initial=0.0))


def _running_sums(values: FloatArray, starts: IntArray, block: IntArray) -> FloatArray:
    """Return cumulative sums that restart at each block."""
    sums = np.cumsum(values)
    return np.asarray(sums - (sums[starts] - values[starts])[block])
