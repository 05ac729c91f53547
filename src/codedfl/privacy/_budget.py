"""Which of (coded samples, noise variance, epsilon, delta) is missing, and its value."""

from __future__ import annotations

import math

from codedfl._validation import require_at_least, require_non_negative
from codedfl.errors import InputError
from codedfl.privacy._adjacency import Adjacency
from codedfl.privacy._exact import log_delta
from codedfl.privacy._exposure import Exposure
from codedfl.privacy._solving import (
    exact_epsilon,
    largest_signal_to_noise,
    most_coded_samples,
    require_probability,
)


def solve_budget(
    exposure: Exposure,
    adjacency: Adjacency,
    coded_samples: int | None,
    noise_variance: float | None,
    epsilon: float | None,
    delta: float | None,
) -> tuple[int, float, float, float]:
    """Return all four numbers of a budget, of which exactly one is None.

    Example:
        >>> c, variance, epsilon, delta = solve_budget(Exposure(), "add-remove", 10_000, None, 8.0, 1e-5)
        >>> round(variance, 2)
        42.91
    """
    _check(coded_samples, noise_variance, epsilon, delta)
    if coded_samples is None and noise_variance is not None and epsilon is not None and delta is not None:
        return _coded_samples(exposure, adjacency, noise_variance, epsilon, delta), noise_variance, epsilon, delta
    if noise_variance is None and coded_samples is not None and epsilon is not None and delta is not None:
        return coded_samples, _noise_variance(exposure, adjacency, coded_samples, epsilon, delta), epsilon, delta
    if coded_samples is not None and noise_variance is not None:
        ratio = exposure.signal_to_noise(noise_variance)
        if epsilon is None and delta is not None:
            return coded_samples, noise_variance, exact_epsilon(delta, coded_samples, ratio, adjacency), delta
        if delta is None and epsilon is not None:
            found = math.exp(log_delta(epsilon, coded_samples, ratio, adjacency))
            return coded_samples, noise_variance, epsilon, found
    known = {"coded_samples": coded_samples, "noise_variance": noise_variance, "epsilon": epsilon, "delta": delta}
    given = [name for name, value in known.items() if value is not None]
    raise InputError(
        f"{' and '.join(given) if given else 'nothing'} given: give exactly three of {', '.join(known)}, "
        "and the fourth is solved for."
    )


def _check(coded_samples: int | None, noise_variance: float | None, epsilon: float | None, delta: float | None) -> None:
    """Refuse values out of range."""
    if coded_samples is not None:
        require_at_least("coded_samples", coded_samples, 1)
    if noise_variance is not None:
        require_non_negative("noise_variance", noise_variance)
    if epsilon is not None:
        require_non_negative("epsilon", epsilon)
    if delta is not None:
        require_probability("delta", delta)


def _noise_variance(
    exposure: Exposure, adjacency: Adjacency, coded_samples: int, epsilon: float, delta: float
) -> float:
    """Return the least noise variance that keeps the budget, or refuse one that the labels alone exceed."""
    ratio = largest_signal_to_noise(epsilon, delta, coded_samples, adjacency)
    if exposure.of_labels < ratio:
        return exposure.noise_variance(ratio)
    alone = exact_epsilon(delta, coded_samples, exposure.of_labels, adjacency)
    least = exposure.label_norm_bound**2 / (exposure.devices * ratio)
    raise InputError(
        f"label_noise_variance = {exposure.label_noise_variance} cannot keep epsilon = {epsilon}, as the labels alone use "
        f"{alone:.6g} at delta = {delta}: raise it above {least:.6g}, or allow a larger epsilon."
    )


def _coded_samples(
    exposure: Exposure, adjacency: Adjacency, noise_variance: float, epsilon: float, delta: float
) -> int:
    """Return the largest number of coded samples that keeps the budget, or refuse one that a single sample exceeds."""
    ratio = exposure.signal_to_noise(noise_variance)
    if math.isinf(ratio):
        unprotected = "noise_variance" if noise_variance == 0 else "label_noise_variance"
        raise InputError(f"{unprotected} = 0 keeps no epsilon with any number of coded samples: give a positive one.")
    found = most_coded_samples(epsilon, delta, ratio, adjacency)
    if found == 0:
        least = exact_epsilon(delta, 1, ratio, adjacency)
        raise InputError(
            f"epsilon = {epsilon} cannot be kept, as a single coded sample uses {least:.6g} at delta = {delta}: "
            "allow that much, or raise the noise."
        )
    return found
