"""What the server remembers of every device, and carries along with the model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from codedfl.coding import Curvature
from codedfl.typing import FloatArray

WINDOW_SHARE = 1 / 3
"""Share of a device's rows over which its gradients are averaged."""

LARGEST_SHARE = 0.5
"""Largest weight of a new gradient against what is remembered; above, the delay no longer damps what the model gets wrong."""


@dataclass(frozen=True)
class DeviceMemory:
    """The gradient of every device as a linear function of the model: ``h_i(W) = H^_i W - b_i``.

    ``H^_i = U C_i U^T + t_i (I - U U^T)`` comes from the sketch. Each gradient ``g_i`` that arrives at a model ``W_k`` is a
    sample of ``b_i = H^_i W_k - g_i``, averaged over the last rows that the device computed on. At a fixed point of training
    all samples are taken at the same ``W``, where ``h_i`` is the true gradient whatever ``H^_i``: the sketch does not move it.

    Args:
        coefficients: the part of ``b_i`` that the sketch made, in the basis ``U``: ``(C_i - t_i) U^T W_k``, averaged, (N, k, o).
        residuals: the rest, ``t_i W_k - g_i``, averaged, (N, d, o).
        rows: rows behind the averages, (N,).
        windows: largest number of rows to average over, (N,).
    """

    coefficients: FloatArray
    residuals: FloatArray
    rows: FloatArray
    windows: FloatArray

    @classmethod
    def from_prior(cls, intercepts: FloatArray, rows: FloatArray, samples: FloatArray, dimension: int) -> DeviceMemory:
        """Return the memory before the first round: ``b_i`` as the sketch has it, within the basis.

        Args:
            intercepts: ``U^T X_i^T Y_i``, (N, k, o).
            rows: rows behind them, (N,).
            samples: ``l_i``, (N,).
            dimension: ``d``.
        """
        devices, _, outputs = intercepts.shape
        return cls(intercepts, np.zeros((devices, dimension, outputs)), rows.astype(np.float64), WINDOW_SHARE * samples)

    def updated(
        self,
        arrived: Iterable[tuple[int, FloatArray, int]],
        model: FloatArray,
        curvature: Curvature,
    ) -> DeviceMemory:
        """Return the memory after a round.

        Args:
            arrived: index, gradient and batch size of each device that arrived.
            model: ``W_k``.
            curvature: ``U``, ``C_i`` and ``t_i``.
        """
        in_basis, blocks, tails = curvature.basis.T @ model, curvature.blocks, curvature.tails
        coefficients, residuals, rows = self.coefficients.copy(), self.residuals.copy(), self.rows.copy()
        for i, gradient, batch in arrived:
            known = rows[i]
            rows[i] = min(known + batch, max(self.windows[i], batch))
            share = 1.0 if known == 0 else min(batch / rows[i], LARGEST_SHARE)
            coefficients[i] += share * (blocks[i] @ in_basis - tails[i] * in_basis - coefficients[i])
            residuals[i] += share * (tails[i] * model - gradient - residuals[i])
        return DeviceMemory(coefficients, residuals, rows, self.windows)

    def gradient(self, model: FloatArray, curvature: Curvature) -> FloatArray:
        """Return ``sum_i h_i(W)`` over the devices of which anything is known."""
        in_basis, blocks, tails = curvature.basis.T @ model, curvature.blocks, curvature.tails
        known = self.rows > 0
        tail = float(tails[known].sum())
        inside = blocks[known].sum(axis=0) @ in_basis - tail * in_basis - self.coefficients[known].sum(axis=0)
        total: FloatArray = curvature.basis @ inside + tail * model - self.residuals[known].sum(axis=0)
        return total
