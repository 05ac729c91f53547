"""What comes out of a Stackelberg game, and whether it is an equilibrium."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedfl.typing import BoolArray, FloatArray


@dataclass(frozen=True)
class StackelbergCheck:
    """Whether an outcome is an equilibrium.

    Attributes:
        best_response_residual: The most that a device gains by changing its privacy budget alone, over the total reward.
        least_utility: The smallest utility of a device; not below 0, what staying out gives.
        holds: Whether no one gains more than 1e-9 of the total reward by a change, or by leaving.
    """

    best_response_residual: float
    least_utility: float
    holds: bool


@dataclass(frozen=True, eq=False)
class StackelbergOutcome:
    """What each device gives up and gets, in the caller's order of devices.

    Attributes:
        sensitivity: ``mu_i``.
        epsilon: ``epsilon_i`` in bits; 0 for a device that does not take part.
        noise_variance: ``sigma_i^2``; infinite for a device that does not take part, which uploads no coded data.
        reward: ``R epsilon_i / E``.
        utility: ``U_i = R epsilon_i / E - mu_i epsilon_i``.
        most_bits: The caps on epsilon that were played with; infinite without.
        participants: Mask of the devices with ``epsilon_i > 0``, two or more.
        total_reward: ``R``.
        total_noise_variance: ``sum sigma_i^2`` over participants.
        server_utility: ``sum Gamma(sigma_i^2) - lambda R`` over participants, whichever leader chose R; None without a lambda.
        lam: ``lambda``; None when the total reward was given.
    """

    sensitivity: FloatArray
    epsilon: FloatArray
    noise_variance: FloatArray
    reward: FloatArray
    utility: FloatArray
    most_bits: FloatArray
    participants: BoolArray
    total_reward: float
    total_noise_variance: float
    server_utility: float | None
    lam: float | None

    def verify(self) -> StackelbergCheck:
        """Search for a better privacy budget for every device, the others' kept; it knows nothing of how epsilon was found.

        Utilities are concave in a device's own budget and negative beyond ``R / mu_i``, so a golden-section search over
        ``[0, min(R / mu_i, cap_i)]`` finds the best.
        """
        others = self.epsilon.sum() - self.epsilon

        def utility(bits: FloatArray) -> FloatArray:
            value: FloatArray = self.total_reward * bits / (others + bits) - self.sensitivity * bits
            return value

        low, high = np.zeros_like(others), np.minimum(self.total_reward / self.sensitivity, self.most_bits)
        best = np.maximum(utility(high), 0.0)
        golden = (math.sqrt(5) - 1) / 2
        for _ in range(80):
            left, right = high - golden * (high - low), low + golden * (high - low)
            at_left, at_right = utility(left), utility(right)
            best = np.maximum(best, np.maximum(at_left, at_right))
            low, high = np.where(at_left < at_right, left, low), np.where(at_left < at_right, high, right)
        residual = float((best - self.utility).max()) / self.total_reward
        least = float(self.utility.min())
        return StackelbergCheck(max(residual, 0.0), least, residual <= 1e-9 and least >= -1e-9 * self.total_reward)
