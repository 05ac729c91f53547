"""The privacy that a run has to keep, and the noise that this takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from scipy import optimize

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.privacy._accountant import PrivacyAccountant
from codedfl.privacy._composition import epsilon_of
from codedfl.privacy._gaussian import gaussian_mu
from codedfl.privacy._inputs import require_count, require_positive_number, require_probability
from codedfl.privacy._mechanisms import CodedMechanism, GaussianMechanism, Mechanism, merge, require_sampling_rate
from codedfl.privacy._numerics import monotone_root
from codedfl.typing import FloatArray

_LOGS = math.log(1e-6), math.log(1e12)
"""Range of logarithms of noise multipliers that are searched."""

_TOLERANCE = 1e-4
"""Relative precision of a noise multiplier that is searched for."""

ThreatModel = Literal["each-message", "sums-only"]
"""Whether the server sees every message of a device, or only sums over devices (secure aggregation)."""

UNLIKELY = 0.01
"""Probability with which fewer devices than expected may arrive in a round of sums; such a round is not opened."""


def noise_multiplier_for(
    epsilon: float, delta: float, *, updates: int, sampling_rate: float = 1.0, besides: Sequence[Mechanism] = ()
) -> float:
    """Return the least noise multiplier at which all updates, and what is released besides, keep a budget.

    Args:
        epsilon: positive, in nats.
        delta: between 0 and 1, both excluded.
        updates: ``K``, number of updates.
        sampling_rate: ``q``; every row is in each update's batch with this probability, independently.
        besides: other releases from the same data, such as a coded upload.

    Returns:
        ``z``, the standard deviation of the noise per update over the clip norm, rounded up: :func:`epsilon_of` of it does not
        exceed ``epsilon``. For full batches alone it is ``sqrt(K) / mu`` to the precision of a number, else within 0.02%.

    Raises:
        InputError: if a number is out of range, or the other releases leave nothing of the budget.

    Example:
        >>> round(noise_multiplier_for(1.0, 1e-5, updates=1), 6)
        3.730632
        >>> round(noise_multiplier_for(2.0, 1e-5, updates=1000, sampling_rate=0.01), 2)
        0.96
    """
    require_positive_number("epsilon", epsilon)
    require_probability("delta", delta)
    require_count("updates", updates)
    require_sampling_rate("sampling_rate", sampling_rate)
    used = epsilon_of(besides, delta)
    if used >= epsilon:
        raise InputError(
            f"epsilon = {epsilon} leaves nothing for the updates, as the other releases use {used:.6g} at delta = {delta}: "
            "allow a larger epsilon, or add noise to those."
        )

    def log_excess(log_noise: float) -> float:
        mechanism = GaussianMechanism(math.exp(log_noise), int(updates), float(sampling_rate))
        found = epsilon_of([mechanism, *besides], delta)
        return math.log(max(found, 1e-6 * epsilon) / epsilon)

    # Gaussian differential privacy, exact for full batches and else the limit of many updates: mu^2 = K q^2 (e^(1/z^2) - 1).
    whole = gaussian_mu(epsilon, delta)
    taken = merge(besides)
    exact = sampling_rate == 1 and not taken.sampled and not taken.coded
    other = taken.mu if exact else gaussian_mu(used, delta) if used > 0 else 0.0
    left = math.sqrt(max((whole - other) * (whole + other), 1e-12 * whole * whole)) / math.sqrt(updates)
    if exact:
        guess = -math.log(left)
        return _rounded_up(log_excess, guess, 1e-15)
    guess = -0.5 * math.log(math.log1p(min((left / sampling_rate) ** 2, 1e300)))
    root = monotone_root(
        log_excess, guess, _LOGS, rising=False, step=0.05, growth=3.0, xtol=_TOLERANCE / 2, rtol=2.0**-50
    )
    if root == math.inf:
        raise InputError(
            f"epsilon = {epsilon} leaves too little for the updates, as the other releases use {used:.6g} at delta = {delta}: "
            "allow a larger epsilon, or add noise to those."
        )
    root = max(root, _LOGS[0])
    return _rounded_up(log_excess, root, _TOLERANCE / 2)


def _rounded_up(log_excess: Callable[[float], float], log_noise: float, step: float) -> float:
    """Return the noise multiplier, raised by as many doubling steps as it takes to keep the budget."""
    while log_excess(log_noise) > 0:
        log_noise += step
        step *= 2
    return math.exp(log_noise)


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
