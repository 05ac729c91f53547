"""Least squares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from codedfl.losses._loss import Loss
from codedfl.typing import FloatArray

if TYPE_CHECKING:
    from codedfl.coding import Gram
    from codedfl.data import Task


@dataclass(frozen=True)
class Square(Loss):
    """``1/2 ||eta - y||^2``: (1) in the paper, whose optimum has a closed form."""

    name: ClassVar[str] = "square"
    tasks: ClassVar[tuple[Task, ...]] = ("classification", "regression")
    curvature: ClassVar[float] = 1.0
    quadratic: ClassVar[bool] = True
    in_kernel: ClassVar[bool] = True
    clip_share: ClassVar[float] = 0.75
    noise_share: ClassVar[float] = 0.1

    def value(self, outputs: FloatArray, labels: FloatArray) -> float:
        """Return ``1/2 ||eta - y||^2``, summed over rows."""
        return 0.5 * float(np.sum(np.square(outputs - labels, dtype=np.float64)))

    def predictions(self, outputs: FloatArray) -> FloatArray:
        """Return the outputs themselves."""
        return outputs

    def link(self, means: FloatArray) -> FloatArray:
        """Return the means themselves."""
        return means

    def curvature_weights(self, outputs: FloatArray) -> FloatArray:
        """Return 1 for every row: ``V = I``."""
        return np.ones(outputs.shape[:-1])

    def optimum(self, gram: Gram) -> FloatArray:
        """Return the least-squares solution; that of least norm where it is not unique."""
        return gram.optimum


SQUARE = Square()
