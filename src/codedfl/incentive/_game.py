"""The Stackelberg game: its players, the equilibrium of the followers for a total reward, and the outcome (Sec. V, VI-B)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.incentive._traits import DeviceTraits
from codedfl.incentive._utility import Gamma, hidden_variance_of, mi_dp_bits_of
from codedfl.typing import BoolArray, FloatArray, ShortRepr

LARGEST_RATIO = 1e9
"""Of the second least sensitivity to the least; a share of the reward is below rounding from 1e12 on."""

SMALLEST_SHARE = 1e-12
"""A device with a smaller share of the total is indifferent to leaving, up to rounding: it stays out."""


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


def free_intensity(sensitivity: FloatArray) -> float:
    """Return ``E / R`` of the equilibrium without caps: the total privacy budget per unit of reward.

    Device i maximises ``U_i = R bits_i / E - mu_i bits_i`` with ``E = sum_j bits_j``. Its best answer obeys
    ``bits_i = E max(1 - mu_i E / R, 0)``. In order of ``mu``, participants join while ``mu_{n+1} < (sum_{j<=n+1} mu_j) / n``;
    summing over the n participants gives ``E / R = (n - 1) / S`` with ``S = sum_{j<=n} mu_j``.

    Example:
        >>> free_intensity(np.array([3.0, 1.0, 1.0]))
        0.5
    """
    ascending = np.sort(sensitivity)
    total = np.cumsum(ascending)
    count = np.arange(2, len(ascending))
    joins = np.concatenate([[True, True], ascending[2:] * count < total[2:]])
    n = int(np.argmin(joins)) if not joins.all() else len(joins)
    intensity = (n - 1) / total[n - 1]
    members = ascending * intensity < 1 - SMALLEST_SHARE
    return float((np.count_nonzero(members) - 1) / ascending[members].sum())


def free_response(total_reward: float, sensitivity: FloatArray) -> FloatArray:
    """Return each device's equilibrium privacy budget without caps, in closed form.

    ``bits_i = ((n-1)/S) (1 - (n-1) mu_i / S) R`` for the n participants of :func:`free_intensity`, 0 for others. The
    equilibrium is unique, has at least two participants, and scales with ``R``.

    Args:
        total_reward: ``R``, positive.
        sensitivity: ``mu_i``, two or more, positive, in any order.

    Returns:
        ``bits_i`` in the order of ``sensitivity``.

    Example:
        >>> free_response(8.0, np.array([3.0, 1.0, 1.0])).tolist()
        [0.0, 2.0, 2.0]
    """
    intensity = free_intensity(sensitivity)
    return intensity * total_reward * _shares(sensitivity, intensity)


def capped_response(total_reward: float, sensitivity: FloatArray, largest_mi_dp_bits: FloatArray) -> FloatArray:
    """Return each device's equilibrium privacy budget when each can give up at most ``largest_mi_dp_bits``.

    The total budget ``E`` is the unique root of ``sum_i clip(1 - mu_i E / R, 0, cap_i / E) = 1``, whose left side falls
    from N to 0 as ``E`` grows; ``bits_i = clip(E (1 - mu_i E / R), 0, cap_i)``. The root is bracketed, found, and
    then made exact: with ``K`` the sum of the capped budgets and ``M`` the sum of the sensitivities of the n interior
    devices, ``M (E/R)^2 - (n - 1) (E/R) - K/R = 0``.

    Args:
        total_reward: ``R``, positive.
        sensitivity: ``mu_i``, two or more, positive, in any order.
        largest_mi_dp_bits: ``cap_i``, positive; infinite for a device without a cap.

    Returns:
        ``bits_i`` in the order of ``sensitivity``.

    Example:
        >>> capped_response(8.0, np.array([3.0, 1.0, 1.0]), np.array([9.0, 0.5, 0.5])).round(4).tolist()
        [0.633, 0.5, 0.5]
    """
    intensity = free_intensity(sensitivity)
    free = intensity * total_reward * _shares(sensitivity, intensity)
    if (free <= largest_mi_dp_bits).all():
        return free
    caps = largest_mi_dp_bits / total_reward

    def excess(t: float) -> float:
        return float(np.clip(1 - sensitivity * t, 0, caps / t).sum()) - 1

    # caps only ever lower the sum at the intensity without caps, where it is 1
    low = high = intensity
    while excess(low) <= 0:
        low, high = low / 2, low
    if low < high:  # otherwise the cap binds only by rounding
        intensity = float(brentq(excess, low, high, xtol=1e-300, rtol=1e-14))
    capped = (1 - sensitivity * intensity) * intensity >= caps
    inside = (_shares(sensitivity, intensity) > 0) & ~capped
    n, slope, fixed = np.count_nonzero(inside), sensitivity[inside].sum(), caps[capped].sum()
    intensity = fixed if n == 0 else ((n - 1) + np.sqrt((n - 1) ** 2 + 4 * slope * fixed)) / (2 * slope)
    bits = intensity * total_reward * _shares(sensitivity, intensity)
    return np.minimum(np.where(capped, largest_mi_dp_bits, bits), largest_mi_dp_bits)


def reward_at_intensity(intensity: float, sensitivity: FloatArray, largest_mi_dp_bits: FloatArray) -> float:
    """Return the total reward whose equilibrium with caps has a given ``E / R``; infinite if there is none.

    ``E / R`` never rises with R, so at ``E / R = 1 / mu_k`` the result is the reward above which device k takes part.
    With ``a_i = max(1 - mu_i E / R, 0)``, the root y of the piecewise linear ``sum_i min(a_i, cap_i y) = 1`` is ``1 / E``.

    Args:
        intensity: ``E / R``, below :func:`free_intensity`.
        sensitivity: ``mu_i``.
        largest_mi_dp_bits: ``cap_i``.

    Example:
        >>> mu, caps = np.array([3.0, 1.0, 1.0]), np.array([9.0, 0.5, 0.5])
        >>> reward_at_intensity(1 / 3, mu, caps)
        3.0
        >>> capped_response(3.0, mu, caps).tolist(), bool(capped_response(3.01, mu, caps)[0] > 0)
        ([0.0, 0.5, 0.5], True)
    """
    wanted = np.maximum(1 - sensitivity * intensity, 0)
    breaks = wanted / largest_mi_dp_bits
    order = np.argsort(breaks)
    below = np.concatenate([[0.0], np.cumsum(wanted[order])])  # sum over the devices before each break
    finite = np.where(np.isfinite(largest_mi_dp_bits), largest_mi_dp_bits, 0.0)[order]
    above = np.cumsum(finite[::-1])[::-1]
    at_break = below[:-1] + breaks[order] * above
    k = int(np.argmax(at_break >= 1)) if (at_break >= 1).any() else len(order) - 1
    y = (1 - below[k]) / above[k] if above[k] > 0 else 0.0
    return float(1 / (intensity * y)) if y > 0 else float("inf")


def _shares(sensitivity: FloatArray, intensity: float) -> FloatArray:
    share = 1 - sensitivity * intensity
    return np.where(share > SMALLEST_SHARE, share, 0.0)
