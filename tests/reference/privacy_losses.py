"""Privacy losses sampled from the definition of each mechanism, and what they say about delta."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def normal_log_density(x: Matrix, mean: float) -> Matrix:
    return -0.5 * (x - mean) ** 2 - 0.5 * math.log(2 * math.pi)


def sampled_gaussian_losses(
    noise_multiplier: float, rate: float, direction: str, draws: int, rng: np.random.Generator
) -> Matrix:
    """``ln p / q`` of one release: with the sample it is ``N(1/z, 1)`` if the sample is in the batch, else ``N(0, 1)``."""
    shift = 1 / noise_multiplier
    in_batch = rng.random(draws) < rate
    present = direction == "remove"
    x = rng.standard_normal(draws) + (shift * in_batch if present else 0.0)
    with_sample = np.log((1 - rate) * np.exp(normal_log_density(x, 0)) + rate * np.exp(normal_log_density(x, shift)))
    without = normal_log_density(x, 0)
    losses: Matrix = with_sample - without if present else without - with_sample
    return losses


def coded_losses(
    coded_samples: int, signal_to_noise: float, direction: str, draws: int, rng: np.random.Generator
) -> Matrix:
    """``ln p / q`` of ``c`` numbers of variance ``1 + r`` with the sample and 1 without it."""
    present = direction == "remove"
    variance = 1 + signal_to_noise
    energy = (variance if present else 1.0) * rng.chisquare(coded_samples, draws)
    log_ratio: Matrix = -0.5 * energy / variance - 0.5 * coded_samples * math.log(variance) + 0.5 * energy
    return log_ratio if present else -log_ratio


def delta_from_losses(losses: Matrix, epsilon: float) -> tuple[float, float]:
    """The mean of ``(1 - e^(epsilon - L))_+`` and its standard error."""
    terms = np.maximum(0.0, -np.expm1(np.minimum(epsilon - losses, 0.0)))
    return float(terms.mean()), float(terms.std() / math.sqrt(len(terms)))
