"""The Stackelberg game: its players and its outcome."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.incentive._gamma import Gamma
from codedfl.incentive._leakage import hidden_variance_of, mi_dp_bits_of
from codedfl.incentive._traits import DeviceTraits
from codedfl.typing import BoolArray, FloatArray

LARGEST_RATIO = 1e9
"""Of the second least sensitivity to the least; a share of the reward is below rounding from 1e12 on."""


@dataclass(frozen=True, eq=False)
class Game:
    """Devices that share one total reward in proportion to the privacy budgets they give up.

    Args:
        traits: Two devices or more.
        coded_samples: ``c >= 1``.

    Raises:
        InputError: There is only one device, or ``coded_samples`` is below 1.

    Example:
        >>> Game(DeviceTraits([1, 2], min_noise_variance=[0, 1]), 15).largest_mi_dp_bits.tolist()
        [inf, 2.0]
    """

    traits: DeviceTraits
    coded_samples: int

    def __post_init__(self) -> None:
        if self.traits.devices < 2:
            raise InputError(
                f"sensitivity has {self.traits.devices} device(s): give two or more, because a lone device gets the whole"
                " reward for any privacy budget, however small, and so has no best one."
            )
        least, second = np.partition(self.sensitivity, 1)[:2]
        if second > LARGEST_RATIO * least:
            raise InputError(
                f"sensitivity has {least:.6g}, and next {second:.6g}: the game needs two devices that differ by a factor of at "
                f"most {LARGEST_RATIO:g}, because otherwise the second gives up nothing that numbers can show."
            )
        require_at_least("coded_samples", self.coded_samples, 1)

    @property
    def sensitivity(self) -> FloatArray:
        """``mu_i``, the cost of one bit of privacy to each device."""
        return self.traits.sensitivity

    @cached_property
    def largest_mi_dp_bits(self) -> FloatArray:
        """``q_i(sigma_min,i^2) = 1/2 log2(1 + c / (h_i^2 + sigma_min,i^2))``, the cap on each budget; may be infinite."""
        return mi_dp_bits_of(self.traits.least_hidden_variance, self.coded_samples)

    def noise_variance(self, mi_dp_bits: FloatArray) -> FloatArray:
        """Return ``q_i^-1(bits_i) = c / (2^(2 bits_i) - 1) - h_i^2``, never below the least; infinite at 0."""
        hidden = hidden_variance_of(mi_dp_bits, self.coded_samples)
        noise: FloatArray = np.maximum(hidden - self.traits.interference, self.traits.min_noise_variance)
        return noise

    def noise_value(self, mi_dp_bits: FloatArray, gamma: Gamma) -> float:
        """Return ``sum Gamma(q_i^-1(bits_i))`` over the participants, the devices with ``bits_i > 0``."""
        with np.errstate(over="ignore"):
            values = np.asarray(gamma.value(self.noise_variance(mi_dp_bits)[mi_dp_bits > 0]), dtype=np.float64)
            total = float(values.sum())
        if math.isnan(total) or total == math.inf:
            raise InputError(
                f"gamma gives {total} for a noise variance: give a concave, non-increasing, real function of it."
            )
        return total


@dataclass(frozen=True)
class StackelbergCheck:
    """Whether an outcome is an equilibrium.

    Args:
        best_response_residual: The most that a device gains by changing its privacy budget alone, over the total reward.
        least_utility: The smallest utility of a device; staying out gives 0, so it should not be below 0.
        holds: Whether no device gains more than 1e-9 of the total reward by a change, or by leaving.
    """

    best_response_residual: float
    least_utility: float
    holds: bool


@dataclass(frozen=True, eq=False, repr=False)
class StackelbergOutcome(ShortRepr):
    """The budget and reward of each device, in the caller's order.

    Args:
        sensitivity: ``mu_i``.
        mi_dp_bits: MI-DP of each device in bits, ``bits_i``; 0 for a device that does not take part.
        noise_variance: ``sigma_i^2``; infinite for a device that does not take part, which uploads no coded data.
        reward: ``R bits_i / E``.
        utility: ``U_i = R bits_i / E - mu_i bits_i``.
        largest_mi_dp_bits: The caps on them; infinite if the game was played without caps.
        participants: Mask of the devices with ``bits_i > 0``, two or more.
        total_reward: ``R``.
        total_noise_variance: ``sum sigma_i^2`` over participants.
        server_utility: ``sum Gamma(sigma_i^2) - lambda R`` over participants, whichever leader chose R; None without a lambda.
        reward_weight: ``lambda``; None when the total reward was given.
    """

    sensitivity: FloatArray
    mi_dp_bits: FloatArray
    noise_variance: FloatArray
    reward: FloatArray
    utility: FloatArray
    largest_mi_dp_bits: FloatArray
    participants: BoolArray
    total_reward: float
    total_noise_variance: float
    server_utility: float | None
    reward_weight: float | None

    def verify(self) -> StackelbergCheck:
        """Compare every device's budget with its best response to the others, independently of the solver.

        With the others' total ``O``, the utility ``R eps / (O + eps) - mu eps`` is concave in ``eps`` and its derivative
        ``R O / (O + eps)^2 - mu`` vanishes at ``eps = sqrt(R O / mu) - O``; the best answer is that value within its limits.
        """
        # A difference, total minus own, would lose small budgets next to a large one.
        before = np.append(0.0, np.cumsum(self.mi_dp_bits[:-1]))
        after = np.append(np.cumsum(self.mi_dp_bits[:0:-1])[::-1], 0.0)
        others = before + after
        stationary = np.sqrt(self.total_reward) / np.sqrt(self.sensitivity) * np.sqrt(others) - others
        answer = np.clip(stationary, 0.0, self.largest_mi_dp_bits)
        best = self.total_reward * (answer / (others + answer)) - self.sensitivity * answer
        residual = float((best - self.utility).max()) / self.total_reward
        least = float(self.utility.min())
        return StackelbergCheck(max(residual, 0.0), least, residual <= 1e-9 and least >= -1e-9 * self.total_reward)
