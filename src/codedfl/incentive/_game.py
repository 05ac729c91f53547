"""The Stackelberg game's data: who plays, how privacy turns into noise, and what the server makes of noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.incentive._leakage import epsilon_of
from codedfl.incentive._traits import DeviceTraits
from codedfl.typing import FloatArray


class NoiseValue(Protocol):
    """What the server makes of noise: ``Gamma``, concave and non-increasing in the noise variance, entry by entry."""

    def value(self, noise_variance: FloatArray) -> FloatArray:
        """Return ``Gamma(sigma_i^2)`` for each device."""
        ...


@dataclass(frozen=True, eq=False)
class Game:
    """Devices that share one total reward in proportion to the privacy budgets they give up.

    Use :meth:`create`, which checks its input.

    Attributes:
        sensitivity: ``mu_i``, what a bit of privacy costs a device.
        coded_samples: ``c``.
        interference: ``h_i^2``.
        min_noise_variance: ``sigma_min,i^2``, the least noise a device can add.
        most_bits: ``q_i(sigma_min,i^2) = 1/2 log2(1 + c / (h_i^2 + sigma_min,i^2))``, the most it can give up; may be infinite.
    """

    sensitivity: FloatArray
    coded_samples: int
    interference: FloatArray
    min_noise_variance: FloatArray
    most_bits: FloatArray

    @classmethod
    def create(
        cls,
        sensitivities: npt.ArrayLike,
        *,
        coded_samples: int,
        interference: npt.ArrayLike = 0.0,
        min_noise_variance: npt.ArrayLike = 0.0,
    ) -> Game:
        """Check the input and return the game; interference and least noise are one number for all or one for each device.

        Example:
            >>> Game.create([1, 2], coded_samples=15, min_noise_variance=[0, 1]).most_bits.tolist()
            [inf, 2.0]
        """
        traits = DeviceTraits(sensitivities, interference, min_noise_variance)
        if traits.devices < 2:
            raise InputError(
                f"sensitivity has {traits.devices} device(s): give two or more, because a lone device gets the whole reward for"
                " any privacy budget, however small, and so has no best one."
            )
        require_at_least("coded_samples", coded_samples, 1)
        most_bits = epsilon_of(traits.least_hidden_variance, coded_samples)
        most_bits.setflags(write=False)
        return cls(traits.sensitivity, coded_samples, traits.interference, traits.min_noise_variance, most_bits)

    def noise_variance(self, epsilon: FloatArray) -> FloatArray:
        """Return ``q_i^-1(epsilon_i) = c / (2^(2 epsilon_i) - 1) - h_i^2``, never below the least; infinite at 0."""
        shrink = -2 * math.log(2) * epsilon
        with np.errstate(divide="ignore", over="ignore"):
            hidden = self.coded_samples * np.exp(shrink) / -np.expm1(shrink)
        noise: FloatArray = np.maximum(hidden - self.interference, self.min_noise_variance)
        return noise

    def noise_value(self, epsilon: FloatArray, gamma: NoiseValue) -> float:
        """Return ``sum Gamma(q_i^-1(epsilon_i))`` over the participants, the devices with ``epsilon_i > 0``."""
        with np.errstate(over="ignore"):
            values = np.asarray(gamma.value(self.noise_variance(epsilon)[epsilon > 0]), dtype=np.float64)
        total = float(values.sum())
        if math.isnan(total) or total == math.inf:
            raise InputError(
                f"gamma gives {total} for a noise variance: give a concave, non-increasing, real function of it."
            )
        return total
