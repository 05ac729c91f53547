"""The moments of Lemma 1 of the paper: how far ``G``, ``N`` and the sampling matrices are from their means."""

from __future__ import annotations

from typing import Literal

import numpy as np

from codedfl.typing import FloatArray

Reading = Literal["printed", "corrected"]
"""A formula as printed in the paper, or corrected."""


def projection_moment(samples: int, coded_samples: int) -> float:
    """Return ``E ||G^T G / c - I||_F^2 = (m + m^2) / c``, as printed.

    Example:
        >>> projection_moment(3, 6)
        2.0
    """
    return (samples + samples**2) / coded_samples


def noise_moment(
    dimension: int, coded_samples: int, noise_variance: FloatArray, reading: Reading = "corrected"
) -> float:
    """Return ``E ||N^T N / c - sigma^2 I||_F^2 = (d + d^2) / c (sum_i sigma_i^2)^2``.

    ``N = sum_i N_i`` is Gaussian with the sum of the variances, so the moment has the square of the sum; the paper
    prints the sum of the squares, ``sum_i sigma_i^4``.

    Example:
        >>> noise_moment(1, 4, np.array([1.0, 1.0])), noise_moment(1, 4, np.array([1.0, 1.0]), "printed")
        (2.0, 1.0)
    """
    variance = np.asarray(noise_variance, np.float64)
    fourth = float(np.sum(variance**2)) if reading == "printed" else float(np.sum(variance)) ** 2
    return (dimension + dimension**2) / coded_samples * fourth


def cross_moment(dimension: int, samples: int, coded_samples: int, noise: float) -> float:
    """Return ``E ||G^T N||_F^2 = d m c sigma^2``; the paper's proof has ``dmn`` with an ``n`` that it does not define.

    Example:
        >>> cross_moment(2, 3, 5, 0.5)
        15.0
    """
    return dimension * samples * coded_samples * noise


def sampling_moment(samples: int, batch: int) -> float:
    """Return ``E ||l / b S - I||_F^2 = l (l - b) / b``, as printed, for devices and (with ``c`` and ``b_s``) the server.

    Example:
        >>> sampling_moment(6, 2)
        12.0
    """
    return samples * (samples - batch) / batch
