"""The privacy that a run has to keep, and the noise that this takes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import optimize

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.privacy._account import epsilon_of
from codedfl.privacy._accountant import PrivacyAccountant
from codedfl.privacy._gaussian import gaussian_mu
from codedfl.privacy._mechanisms import CodedMechanism, Mechanism
from codedfl.privacy._noise_multiplier import noise_multiplier_for
from codedfl.typing import FloatArray

ThreatModel = Literal["each-message", "sums-only"]
"""Whether the server sees every message of a device, or only sums over devices (secure aggregation)."""

UNLIKELY = 0.01
"""Probability with which fewer devices than expected may arrive in a round of sums; such a round is not opened."""


@dataclass(frozen=True)
class PrivacyTarget:
    """One (epsilon, delta) for everything that a device sends, when one sample is added or removed.

    Args:
        epsilon: in nats.
        delta: between 0 and 1.
        threat_model: what the server sees.
        label_bound: ``B_Y``, the largest norm of a sample's labels; 1 for one-hot labels.
        spent: mechanisms that used part of the budget before training, such as a private choice of the clip norm.

    Example:
        >>> target = PrivacyTarget(2.0, 1e-5)
        >>> round(target.noise_multiplier(updates=16) / target.noise_multiplier(), 6)
        4.0
    """

    epsilon: float
    delta: float
    threat_model: ThreatModel = "each-message"
    label_bound: float = 1.0
    spent: tuple[Mechanism, ...] = ()

    def __post_init__(self) -> None:
        require_positive("privacy.epsilon", self.epsilon)
        require_positive("privacy.label_bound", self.label_bound)
        if not 0 < self.delta < 1:
            raise InputError(f"privacy.delta = {self.delta} must lie between 0 and 1, both excluded.")

    @property
    def sums_only(self) -> bool:
        """Whether the server sees sums over devices alone."""
        return self.threat_model == "sums-only"

    def noise_multiplier(
        self, *, updates: int = 1, sampling_rate: float = 1.0, besides: Sequence[Mechanism] = ()
    ) -> float:
        """Return the noise over the sensitivity that each of some releases needs, given what else is released."""
        return noise_multiplier_for(
            self.epsilon, self.delta, updates=updates, sampling_rate=sampling_rate, besides=(*self.spent, *besides)
        )

    def multiplier_for_share(self, share: float) -> float:
        """Return the noise multiplier of a release that uses a share of the budget, ``1 / (mu sqrt(share))``.

        Gaussian mechanisms compose by adding ``mu^2``, so shares of ``mu^2`` add up to the whole.
        """
        return 1.0 / (gaussian_mu(self.epsilon, self.delta) * math.sqrt(share))


@lru_cache(maxsize=256)
def coded_noise(target: PrivacyTarget, rows: int, norm_bound: float, share: float = 1.0) -> FloatArray:
    """Return the noise variances ``sigma^2`` and ``sigma_Y^2`` of coded features and labels that keep a target.

    Both get half of the signal-to-noise ratio ``r``: ``sigma^2 = 2 B^2 / r`` and ``sigma_Y^2 = 2 B_Y^2 / r``.

    Args:
        target: what to keep.
        rows: coded rows, of all uploads together: several are as private as one of all their rows, since rows are independent.
        norm_bound: ``B``.
        share: share of epsilon and delta that the upload may use by itself.

    Example:
        >>> coded_noise(PrivacyTarget(1.0, 1e-5), 10_000, 1.0).round(1)
        array([535.9, 535.9])
    """
    ratio = PrivacyAccountant(
        coded_samples=rows, epsilon=share * target.epsilon, delta=share * target.delta
    ).signal_to_noise
    if target.spent and share == 1.0:
        ratio = _ratio_besides_spent(target, rows, ratio)
    # A little more than that, so that rounding never puts the epsilon above the target.
    noise = (1 + 1e-10) * 2 * np.array([norm_bound, target.label_bound]) ** 2 / ratio
    noise.setflags(write=False)  # it is cached
    return noise


def _ratio_besides_spent(target: PrivacyTarget, rows: int, most: float) -> float:
    """Return the largest signal-to-noise ratio that keeps the target together with what was spent before."""

    def excess(log_ratio: float) -> float:
        return epsilon_of((CodedMechanism(rows, math.exp(log_ratio)), *target.spent), target.delta) - target.epsilon

    high = math.log(most)
    low = high - 0.5
    while excess(low) > 0:
        low -= 1.0
    found = float(optimize.brentq(excess, low, high, xtol=1e-4)) if excess(high) > 0 else high
    while excess(found) > 0:  # the root may lie a little to the wrong side
        found -= 1e-4
    return math.exp(found)


def least_arrivals(arrival_probability: FloatArray) -> int:
    """Return the number of devices that arrive in a round with a probability of 99% or more, at least 1.

    A device whose share of the noise counts on ``m`` shares adds ``1 / m`` of the variance, so a sum of ``m`` updates or more has
    all the noise that it needs. A round with fewer is not opened. The number of arrivals has a Poisson binomial law.

    Args:
        arrival_probability: of each device, (N,).

    Example:
        >>> least_arrivals(np.full(20, 0.98)), least_arrivals(np.ones(20))
        (18, 20)
    """
    law = np.ones(1)
    for probability in arrival_probability:
        law = np.convolve(law, [1.0 - probability, probability])
    below = np.cumsum(law) - law  # P(arrivals < m)
    return max(1, int(np.flatnonzero(below <= UNLIKELY + 1e-12)[-1]))
