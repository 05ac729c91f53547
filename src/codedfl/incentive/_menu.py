"""The items of a contract: the rewards of Theorem 3, and the item that a device picks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.typing import FloatArray

SAME = 1e-12
"""Budgets that differ by less than this, relatively, are one item."""


@dataclass(frozen=True, eq=False)
class Menu:
    """The distinct items of a contract, from the largest budget and reward to the least.

    Args:
        mi_dp_bits: The MI-DP of each item in bits, descending.
        reward: The reward of each item.

    Example:
        >>> menu = Menu(np.array([5.0, 3.0]), np.array([8.0, 6.0]))
        >>> menu.choose(0.9), menu.choose(1.5), menu.choose(2.5)
        (0, 1, None)
    """

    mi_dp_bits: FloatArray
    reward: FloatArray

    @property
    def items(self) -> int:
        """Number of distinct items."""
        return int(self.mi_dp_bits.size)

    def choose(self, sensitivity: float, largest_mi_dp_bits: float = math.inf) -> int | None:
        """Return the item that a device picks, ``argmax_k r_k - mu eps_k``; None if staying out is better.

        An indifferent device takes the item with the larger budget, and prefers taking part to staying out. Under this
        convention every device takes the item meant for it.

        Args:
            sensitivity: ``mu`` of any device, including one that the contract was not designed for.
            largest_mi_dp_bits: ``q(sigma_min^2)``, the largest budget that the device accepts.
        """
        require_positive("sensitivity", sensitivity)
        with np.errstate(over="ignore"):  # a price that overflows is too high
            price = sensitivity * self.mi_dp_bits
        utility = self.reward - price
        slack = 1e-12 * (self.reward + price)
        allowed = self.mi_dp_bits <= largest_mi_dp_bits * (1 + SAME)
        best = max(float(np.max(utility, where=allowed, initial=-math.inf)), 0.0)
        wanted = np.flatnonzero(allowed & (price < math.inf) & (utility >= best - slack))
        return int(wanted[0]) if wanted.size else None


def distinct_items(mi_dp_bits: FloatArray, reward: FloatArray) -> Menu:
    """Return the distinct items of all devices, which may be in any order."""
    order = np.argsort(-mi_dp_bits, kind="stable")
    mi_dp_bits, reward = mi_dp_bits[order], reward[order]
    new = np.append(True, mi_dp_bits[1:] < mi_dp_bits[:-1] * (1 - SAME))
    return Menu(mi_dp_bits[new], reward[new])


def optimal_rewards(sensitivity: FloatArray, mi_dp_bits: FloatArray) -> FloatArray:
    """Return the optimal rewards of Theorem 3, the least at which devices take the items meant for them.

    ``r_N = mu_N eps_N`` and ``r_i = r_{i+1} + mu_i (bits_i - eps_{i+1})``. The most sensitive device has no surplus, and
    every other device is indifferent between its own item and the next.

    Args:
        sensitivity: ``mu_i``, ascending.
        mi_dp_bits: ``bits_i``, non-increasing.

    Returns:
        ``r_i``, non-increasing.

    Raises:
        InputError: The devices are not sorted by sensitivity, or a budget increases with sensitivity.

    Example:
        >>> optimal_rewards(np.array([1.0, 2.0]), np.array([5.0, 3.0])).tolist()
        [8.0, 6.0]
    """
    if (np.diff(sensitivity) < 0).any() or (np.diff(mi_dp_bits) > 0).any():
        raise InputError("mi_dp_bits must not increase with the sensitivity: sort the devices by sensitivity first.")
    steps = sensitivity * (mi_dp_bits - np.append(mi_dp_bits[1:], 0.0))
    return np.asarray(np.cumsum(steps[::-1])[::-1])


def marginal_rewards(sensitivity: FloatArray) -> FloatArray:
    """Return the marginal total reward per bit of each device's budget, ``w_i = i mu_i - (i - 1) mu_{i-1}``.

    It is the device's own ``mu_i``, plus the difference ``mu_i - mu_{i-1}`` for each of the ``i - 1`` less sensitive
    devices.

    Example:
        >>> marginal_rewards(np.array([1.0, 2.0, 2.0])).tolist()
        [1.0, 3.0, 2.0]
    """
    before = np.append(sensitivity[:1], sensitivity[:-1])
    return sensitivity + np.arange(sensitivity.size) * (sensitivity - before)
