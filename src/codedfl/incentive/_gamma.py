"""What noise on a device's coded data costs the server: the utility ``Gamma`` of Sec. V-A."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from codedfl.errors import InputError
from codedfl.typing import FloatArray


@runtime_checkable
class Gamma(Protocol):
    """The server's utility of one device's coded data, as a function of its noise variance.

    Concave and non-increasing on ``[0, inf)``, and falling somewhere. Both methods work entry by entry on arrays.

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
class PowerLoss:
    """``Gamma(sigma^2) = -scale * (sigma^2)^power``.

    Args:
        power: 1 or more, so that the utility is concave; 1 is linear in the variance.
        scale: Positive; how much noise matters beside rewards.

    Example:
        >>> PowerLoss(power=3).slope(np.array([2.0])).tolist()
        [-12.0]
    """

    power: float
    scale: float = 1.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.power) and self.power >= 1):
            raise InputError(f"power = {self.power} must be a finite number, 1 or more, for a concave utility.")
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"scale = {self.scale} must be a positive finite number.")

    def value(self, noise_variance: FloatArray) -> FloatArray:
        """Return ``-scale * (sigma^2)^power``."""
        return -self.scale * noise_variance**self.power

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        """Return ``-scale * power * (sigma^2)^(power - 1)``."""
        return -self.scale * self.power * noise_variance ** (self.power - 1)


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
