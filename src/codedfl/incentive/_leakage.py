"""The MI-DP budget of many devices at once, in terms of the variance that hides an entry, ``s = h^2 + sigma^2``."""

from __future__ import annotations

import math

import numpy as np

from codedfl.typing import FloatArray

LOG_TWO = math.log(2)


def mi_dp_bits_of(hidden_variance: FloatArray, coded_samples: float) -> FloatArray:
    """Return ``1/2 log2(1 + c / s)``, Theorem 2; infinite where ``s = 0``.

    Example:
        >>> mi_dp_bits_of(np.array([0.0, 1.0]), 3).tolist()
        [inf, 1.0]
    """
    with np.errstate(divide="ignore"):
        return np.asarray(0.5 / LOG_TWO * np.log1p(coded_samples / hidden_variance))


def hidden_variance_of(mi_dp_bits: FloatArray, coded_samples: float) -> FloatArray:
    """Return ``s = c / (2^(2 bits) - 1)``, the inverse of :func:`mi_dp_bits_of`; infinite where ``mi_dp_bits = 0``.

    Example:
        >>> hidden_variance_of(np.array([0.0, 1.0]), 3).tolist()
        [inf, 1.0]
    """
    shrink = -2 * LOG_TWO * mi_dp_bits
    with np.errstate(divide="ignore", over="ignore"):
        return np.asarray(coded_samples * np.exp(shrink) / -np.expm1(shrink))


def variance_per_bit(hidden_variance: FloatArray, coded_samples: float) -> FloatArray:
    """Return ``-ds/d(bits) = 2 ln2 s (s + c) / c``, the variance that one more bit of budget removes."""
    return 2 * LOG_TWO * hidden_variance * (hidden_variance / coded_samples + 1.0)
