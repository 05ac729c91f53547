"""The least noise of updates that keeps a budget, beside whatever else is released."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from codedfl.errors import InputError
from codedfl.privacy._account import epsilon_of
from codedfl.privacy._gaussian import gaussian_mu
from codedfl.privacy._inputs import require_count, require_positive_number, require_probability
from codedfl.privacy._mechanisms import GaussianMechanism, Mechanism, merge, require_sampling_rate
from codedfl.privacy._roots import monotone_root

_LOGS = math.log(1e-6), math.log(1e12)
"""Range of logarithms of noise multipliers that are searched."""

_TOLERANCE = 1e-4
"""Relative precision of a noise multiplier that is searched for."""


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
