"""A contract as a device sees it: the items on offer, and the one it picks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_positive
from codedfl.typing import FloatArray

SAME = 1e-12
"""Budgets that are closer than this, relatively, are one item."""


@dataclass(frozen=True, eq=False)
class Menu:
    """The distinct items of a contract, from the largest budget and reward to the least.

    Args:
        epsilon: The privacy budget that each item buys, in bits, descending.
        reward: What it pays.

    Example:
        >>> menu = Menu(np.array([5.0, 3.0]), np.array([8.0, 6.0]))
        >>> menu.choose(0.9), menu.choose(1.5), menu.choose(2.5)
        (0, 1, None)
    """

    epsilon: FloatArray
    reward: FloatArray

    @property
    def items(self) -> int:
        """Number of distinct items."""
        return int(self.epsilon.size)

    def choose(self, sensitivity: float, largest_epsilon: float = math.inf) -> int | None:
        """Return the item that a device picks, ``argmax_k r_k - mu eps_k``, or None if it does better by staying away.

        A device that is indifferent takes the item with the larger budget, and takes part rather than not; that is the
        convention under which every device takes the item meant for it.

        Args:
            sensitivity: ``mu`` of any device, also one that the contract was not written for.
            largest_epsilon: ``q(sigma_min^2)``, the largest budget that the device can agree to.
        """
        require_positive("sensitivity", sensitivity)
        utility = self.reward - sensitivity * self.epsilon
        slack = 1e-12 * (self.reward + sensitivity * self.epsilon).max()
        allowed = self.epsilon <= largest_epsilon * (1 + SAME)
        best = max(float(np.max(utility, where=allowed, initial=-math.inf)), 0.0)
        wanted = np.flatnonzero(allowed & (utility >= best - slack))
        return int(wanted[0]) if wanted.size else None


def distinct_items(epsilon: FloatArray, reward: FloatArray) -> Menu:
    """Return the distinct items among those of all devices, in any order."""
    order = np.argsort(-epsilon, kind="stable")
    epsilon, reward = epsilon[order], reward[order]
    new = np.append(True, epsilon[1:] < epsilon[:-1] * (1 - SAME))
    return Menu(epsilon[new], reward[new])
