"""Utilities of the server, other than the paper's."""

from __future__ import annotations

from dataclasses import dataclass

from codedfl.typing import FloatArray


@dataclass(frozen=True)
class PowerLoss:
    """``Gamma(sigma^2) = -scale * (sigma^2)^power`` with a power of 1 or more."""

    power: float
    scale: float = 1.0

    def value(self, noise_variance: FloatArray) -> FloatArray:
        return -self.scale * noise_variance**self.power

    def slope(self, noise_variance: FloatArray) -> FloatArray:
        return -self.scale * self.power * noise_variance ** (self.power - 1)
