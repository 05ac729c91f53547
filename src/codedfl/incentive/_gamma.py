"""The server's utility ``Gamma`` of a device's noise (Sec. V-A)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from codedfl.typing import FloatArray


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
