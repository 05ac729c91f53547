"""What noise is worth: to the server (``Gamma``, Sec. V-A), and as the MI-DP budget of a device (Theorem 2)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from codedfl.typing import FloatArray

LOG_TWO = math.log(2)


@runtime_checkable
class Gamma(Protocol):
    """The server's utility of one device's coded data, as a function of its noise variance.

    It must be concave and non-increasing on ``[0, inf)``, and decrease somewhere. Both methods work entry by entry on arrays.

    Example:
        >>> class Linear:
        ...     def value(self, noise_variance):
        ...         return -noise_variance
        ...     def slope(self, noise_variance):
        ...         return -np.ones_like(noise_variance)
        >>> isinstance(Linear(), Gamma)
        True
    """

    def value(self, noise_variance: FloatArray) -> FloatArray:
        """Return ``Gamma(sigma^2)``."""
        ...

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        """Return the derivative of ``Gamma`` in ``sigma^2``, zero or less and non-increasing."""
        ...


@dataclass(frozen=True)
class QuarticLoss:
    """``Gamma(sigma^2) = -sigma^4``, minus the square of the variance: the utility of Sec. VI.

    Example:
        >>> QuarticLoss().value(np.array([3.0])).tolist(), QuarticLoss().slope(np.array([3.0])).tolist()
        ([-9.0], [-6.0])
    """

    def value(self, noise_variance: FloatArray) -> FloatArray:
        """Return ``-sigma^4``."""
        return -np.square(noise_variance)

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        """Return ``-2 sigma^2``."""
        return -2.0 * noise_variance


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
