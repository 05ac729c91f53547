"""The randomness of what a device releases: seeded in a simulation, from the operating system on a device.

Whoever draws an upload asks its `Noise` for projections and for Gaussian noise, and does not know where they come from.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from codedfl._validation import require_non_negative
from codedfl.coding import Rows
from codedfl.privacy._discrete import RandomBytes, gaussian_noise_on_grid
from codedfl.typing import FloatArray

BLOCK_ROWS = 4096
"""Rows held in double precision at once."""


@dataclass(frozen=True, eq=False)
class Noise(ABC):
    """The noise of one device's release.

    Args:
        rng: the source of projections and of choices among rows, drawn from once.
        variance: ``sigma_i^2``, of the noise on what tells about features.
        label_variance: ``sigma_Y^2``, of the noise on what tells about labels.
    """

    rng: np.random.Generator
    variance: float = 0.0
    label_variance: float = 0.0

    def __post_init__(self) -> None:
        require_non_negative("noise_variance", self.variance)
        require_non_negative("label_noise_variance", self.label_variance)

    exact: ClassVar[bool]
    """Whether noise is drawn exactly, so that computations in front of it must be in double precision."""

    @property
    def deviation(self) -> float:
        """``sigma_i``."""
        return math.sqrt(self.variance)

    @property
    def label_deviation(self) -> float:
        """``sigma_Y``."""
        return math.sqrt(self.label_variance)

    @abstractmethod
    def added(
        self, values: FloatArray, deviation: float, *, sensitivity: float = math.inf, error: float = 0.0
    ) -> FloatArray:
        """Return ``values + N(0, s^2)``, entry by entry.

        Args:
            values: what is released.
            deviation: ``s``; 0 for no noise.
            sensitivity: the most by which one sample changes the values, in Euclidean norm; infinite if it is not known.
            error: a bound on the error with which they were computed, in the same norm.
        """

    @abstractmethod
    def precise(self, values: FloatArray) -> FloatArray:
        """Return values in the precision in which to compute with them."""

    @abstractmethod
    def blocks(self, rows: Rows) -> Iterator[Rows]:
        """Yield rows in the precision in which to compute with them, block by block."""

    def of(self, variance: float, label_variance: float = 0.0) -> Self:
        """Return the same source with other variances."""
        return replace(self, variance=variance, label_variance=label_variance)


@dataclass(frozen=True, eq=False)
class SeededNoise(Noise):
    """Noise of a simulation, in the precision of the data. Whoever knows the seed knows the noise.

    Example:
        >>> noise = SeededNoise(np.random.default_rng(0), variance=4.0)
        >>> noise.added(np.zeros(2), noise.deviation).round(3).tolist()
        [0.251, -0.264]
    """

    exact: ClassVar[bool] = False

    def added(
        self,
        values: FloatArray,
        deviation: float,
        *,
        sensitivity: float = math.inf,  # noqa: ARG002 (rounding is not accounted for in a simulation)
        error: float = 0.0,  # noqa: ARG002
    ) -> FloatArray:
        """Return the values with noise from the generator."""
        if deviation == 0:
            return values
        dtype: Any = np.float32 if values.dtype == np.float32 else np.float64
        draws: FloatArray = self.rng.standard_normal(values.shape, dtype=dtype)
        draws *= draws.dtype.type(deviation)
        draws += values
        return draws

    def precise(self, values: FloatArray) -> FloatArray:
        """Return the values as they are."""
        return values

    def blocks(self, rows: Rows) -> Iterator[Rows]:
        """Yield the rows as they are, in one block."""
        yield rows


@dataclass(frozen=True, eq=False)
class ExactNoise(Noise):
    """Noise of a device: drawn in integers from bytes of the operating system, which meets the attack on floating-point noise.

    Args:
        random_bytes: the source of the noise; the generator serves projections alone.
    """

    random_bytes: RandomBytes = os.urandom
    exact: ClassVar[bool] = True

    def added(
        self, values: FloatArray, deviation: float, *, sensitivity: float = math.inf, error: float = 0.0
    ) -> FloatArray:
        """Return the values with a discrete Gaussian on a grid, see `codedfl.privacy.gaussian_noise_on_grid`."""
        if deviation == 0:
            return values
        return gaussian_noise_on_grid(
            values,
            deviation,
            sensitivity,
            computation_error=0.0 if sensitivity == math.inf else error,
            random_bytes=self.random_bytes,
        )

    def precise(self, values: FloatArray) -> FloatArray:
        """Return the values in double precision."""
        return values.astype(np.float64)

    def blocks(self, rows: Rows) -> Iterator[Rows]:
        """Yield the rows in double precision, in blocks, so that a mapped file is never in memory as a whole."""
        for block in rows.blocks(BLOCK_ROWS):
            yield Rows(self.precise(block.features), self.precise(block.labels), block.weights)
