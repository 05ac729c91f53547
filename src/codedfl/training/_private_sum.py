"""A gradient that a device may send: clipped per sample, in a public geometry, plus noise."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy.special

from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray


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

    def norms(self, features: FloatArray, block: int = 4096) -> FloatArray:
        """Return ``||D x||`` of every row."""
        parts = [features[start : start + block] for start in range(0, len(features), block)]
        return np.concatenate([np.linalg.norm(self.rows(part), axis=1) for part in parts]) if parts else np.zeros(0)


def _shrunk(columns: FloatArray, directions: FloatArray, factors: FloatArray) -> FloatArray:
    V = directions.astype(columns.dtype, copy=False)
    shrunk: FloatArray = columns - V @ ((1.0 - factors).astype(columns.dtype)[:, None] * (V.T @ columns))
    return shrunk


@dataclass(frozen=True, eq=False)
class PrivateSum:
    """``D sum_S x r^T min(1, C / (||D x|| ||r||)) + N(0, s^2)``, ``r = W^T x - y``: a Gaussian mechanism of sensitivity ``C``.

    The gradient of one sample is an outer product, so its norm is a product of two norms and no gradient is ever formed alone.

    Args:
        clip_norm: ``C``.
        norms: ``||D x||`` of every row of the device, (l,).
        standard_deviation: ``s``.
        streams: the source of the noise: purpose ``update-noise``, by device and round.
        device: index of the device.
        round: ``k``.
        geometry: ``D``.
        softmax: whether ``r = softmax(W^T x) - y``, the residual of multinomial logistic regression.
    """

    clip_norm: float
    norms: FloatArray
    standard_deviation: float
    streams: Streams
    device: int
    round: int
    geometry: Geometry = field(default_factory=Geometry)
    softmax: bool = False

    def release(
        self, features: FloatArray, labels: FloatArray, batch: IntArray | None, model: FloatArray, scale: float
    ) -> FloatArray:
        """Return what the device sends for one model, times ``scale``."""
        X, Y, norms = (
            (features, labels, self.norms) if batch is None else (features[batch], labels[batch], self.norms[batch])
        )
        total = clipped_sum(X, Y, norms, model, self.clip_norm, self.geometry, softmax=self.softmax)
        if self.standard_deviation > 0:
            rng = self.streams.at("update-noise", device=self.device, round=self.round)
            total = total + (self.standard_deviation * rng.standard_normal(total.shape)).astype(total.dtype)
        released: FloatArray = total * total.dtype.type(scale)
        return released


def clipped_sum(
    features: FloatArray,
    labels: FloatArray,
    norms: FloatArray,
    model: FloatArray,
    clip_norm: float,
    geometry: Geometry,
    *,
    softmax: bool,
) -> FloatArray:
    """Return ``D sum x r^T min(1, C / (||D x|| ||r||))`` over all rows, (d, o): one sample changes it by at most ``C``.

    Args:
        features: ``x``, (l, d).
        labels: ``y``, (l, o).
        norms: ``||D x||``, (l,).
        model: ``W``, (d, o).
        clip_norm: ``C``.
        geometry: ``D``.
        softmax: whether ``r = softmax(W^T x) - y`` instead of ``W^T x - y``.

    Example:
        >>> X, Y = np.array([[3.0, 4.0]]), np.array([[1.0]])
        >>> clipped_sum(X, Y, np.array([5.0]), np.zeros((2, 1)), 1.0, Geometry(), softmax=False).ravel()
        array([-0.6, -0.8])
    """
    residual = features @ model
    if softmax:
        residual = scipy.special.softmax(residual, axis=1)
    residual -= labels
    sizes = norms * np.linalg.norm(residual, axis=1)
    weights = clip_norm / np.maximum(sizes, clip_norm)
    residual *= weights[:, None].astype(residual.dtype)
    return geometry.forward(features.T @ residual)
