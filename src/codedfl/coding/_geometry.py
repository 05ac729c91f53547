"""Clipping: how far a sample is scaled down so that it changes a sum by a known amount at most, and in which coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from codedfl.typing import FloatArray


@dataclass(frozen=True)
class Geometry:
    """A public linear map ``x' = D x`` that shrinks a few directions: ``D = (I - V diag(1 - c) V^T) ...``, the first part first.

    Devices clip gradients and add noise in these coordinates. Directions in which all samples have much in common then neither
    use up the clip norm nor slow training down.

    Args:
        directions: for each part, orthonormal columns ``V``, (d, r).
        factors: for each part, the factors ``c`` by which they shrink, (r,).

    Example:
        >>> shrinking = Geometry((np.eye(3, 1),), (np.array([0.5]),))
        >>> shrinking.forward(np.ones((3, 1))).ravel()
        array([0.5, 1. , 1. ])
    """

    identity_name: ClassVar[str] = "codedfl.training._private_sum.Geometry"

    directions: tuple[FloatArray, ...] = ()
    factors: tuple[FloatArray, ...] = ()

    def forward(self, columns: FloatArray) -> FloatArray:
        """Return ``D G`` for columns ``G``, (d, o)."""
        for directions, factors in zip(self.directions, self.factors, strict=True):
            columns = _shrunk(columns, directions, factors)
        return columns

    def backward(self, columns: FloatArray) -> FloatArray:
        """Return ``D^T W'``: the model on ``x`` that predicts what ``W'`` predicts on ``x'``."""
        for directions, factors in zip(self.directions[::-1], self.factors[::-1], strict=True):
            columns = _shrunk(columns, directions, factors)
        return columns

    def rows(self, features: FloatArray) -> FloatArray:
        """Return ``x'`` of every row, (l, d)."""
        return self.forward(features.T).T if self.directions else features

    def arrays(self, dimension: int) -> dict[str, FloatArray]:
        """Return the parts side by side, as the arrays of a message: directions (d, r) and factors (r,)."""
        return {
            "directions": np.hstack([np.zeros((dimension, 0), np.float32), *self.directions]).astype(np.float32),
            "factors": np.concatenate([np.zeros(0), *self.factors]).astype(np.float64),
        }

    def norms(self, features: FloatArray, block: int = 4096) -> FloatArray:
        """Return ``||D x||`` of every row."""
        parts = [features[start : start + block] for start in range(0, len(features), block)]
        return np.concatenate([np.linalg.norm(self.rows(part), axis=1) for part in parts]) if parts else np.zeros(0)


def _shrunk(columns: FloatArray, directions: FloatArray, factors: FloatArray) -> FloatArray:
    V = directions.astype(columns.dtype, copy=False)
    shrunk: FloatArray = columns - V @ ((1.0 - factors).astype(columns.dtype)[:, None] * (V.T @ columns))
    return shrunk


def clip_weights(norms: FloatArray, bound: float) -> FloatArray:
    """Return ``min(1, B / ||z||)`` for the norms of vectors ``z``.

    Example:
        >>> clip_weights(np.array([0.5, 4.0]), 1.0)
        array([1.  , 0.25])
    """
    weights: FloatArray = bound / np.maximum(norms, bound)
    return weights


def clipped_total(features: FloatArray, bound: float) -> FloatArray:
    """Return ``sum x min(1, B / ||x||)``, (d,): one sample changes it by at most ``B``.

    Example:
        >>> clipped_total(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        array([0.6, 1.3])
    """
    total: FloatArray = clip_weights(Geometry().norms(features), bound).astype(features.dtype) @ features
    return total


def clipped_labels(labels: FloatArray, bound: float) -> FloatArray:
    """Return ``y min(1, B_Y / ||y||)`` of every sample.

    Args:
        labels: ``y``, (l, o).
        bound: ``B_Y``.

    Example:
        >>> clipped_labels(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        array([[0.6, 0.8],
               [0. , 0.5]])
    """
    weights = clip_weights(np.linalg.norm(labels, axis=1), bound).astype(labels.dtype)
    return np.ascontiguousarray(weights[:, None] * labels)
