"""A gradient that a device may send: clipped per sample, in a public geometry, plus noise."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from codedfl.coding import Geometry
from codedfl.losses import Loss
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class PrivateSum:
    """``D sum_S x r^T min(1, C / (||D x|| ||r||)) + N(0, s^2)``: a Gaussian mechanism of sensitivity ``C``, ``r`` the residual.

    The gradient of one sample is an outer product, so its norm is a product of two norms and no gradient is ever formed alone.

    Args:
        clip_norm: ``C``.
        norms: ``||D x||`` of every row of the device, (l,).
        standard_deviation: ``s``.
        streams: the source of the noise: purpose ``update-noise``, by device and round.
        device: index of the device.
        round: ``k``.
        geometry: ``D``.
    """

    clip_norm: float
    norms: FloatArray
    standard_deviation: float
    streams: Streams
    device: int
    round: int
    geometry: Geometry = field(default_factory=Geometry)

    def release(
        self,
        features: FloatArray,
        labels: FloatArray,
        batch: IntArray | None,
        model: FloatArray,
        scale: float,
        loss: Loss,
    ) -> FloatArray:
        """Return what the device sends for one model, times ``scale``."""
        X, Y, norms = (
            (features, labels, self.norms) if batch is None else (features[batch], labels[batch], self.norms[batch])
        )
        total = clipped_sum(X, Y, norms, model, self.clip_norm, self.geometry, loss)
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
    loss: Loss,
) -> FloatArray:
    """Return ``D sum x r^T min(1, C / (||D x|| ||r||))`` over all rows, (d, o): one sample changes it by at most ``C``.

    Args:
        features: ``x``, (l, d).
        labels: ``y``, (l, o).
        norms: ``||D x||``, (l,).
        model: ``W``, (d, o).
        clip_norm: ``C``.
        geometry: ``D``.
        loss: the loss with the residual ``r = mu(W^T x) - y``.

    Example:
        >>> from codedfl.losses import SQUARE
        >>> X, Y = np.array([[3.0, 4.0]]), np.array([[1.0]])
        >>> clipped_sum(X, Y, np.array([5.0]), np.zeros((2, 1)), 1.0, Geometry(), SQUARE).ravel()
        array([-0.6, -0.8])
    """
    residual = loss.residuals(features @ model, labels)
    sizes = norms * np.linalg.norm(residual, axis=1)
    weights = clip_norm / np.maximum(sizes, clip_norm)
    residual *= weights[:, None].astype(residual.dtype)
    return geometry.forward(features.T @ residual)
