"""Gradients of all devices at a model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_finite
from codedfl.coding import Rows
from codedfl.errors import InputError
from codedfl.typing import FloatArray

BLOCK_ROWS = 2048


@dataclass(frozen=True, eq=False)
class Gradients:
    """What each device's data says about a model.

    Args:
        gradient: ``D_i = X_i^T R_i`` with ``R_i = X_i W - Y_i``, (N, d, o).
        residual: ``||R_i||_F^2``, (N,).
        spread: ``sum_j ||x_j||^2 ||r_j||^2`` over the samples of a device, (N,).
    """

    gradient: FloatArray
    residual: FloatArray
    spread: FloatArray


def gradients_at(parts: tuple[Rows, ...], model: FloatArray) -> Gradients:
    """Compute every device's gradient and what its batches scatter by, in float64 and in blocks of rows."""
    W = np.asarray(model, np.float64)
    gradient = np.zeros((len(parts), *W.shape))
    residual, spread = np.zeros(len(parts)), np.zeros(len(parts))
    for i, part in enumerate(parts):
        for block in part.blocks(BLOCK_ROWS):
            X = block.features.astype(np.float64)
            R = X @ W - block.labels
            squares = np.sum(R**2, axis=1)
            gradient[i] += X.T @ R
            residual[i] += squares.sum()
            spread[i] += np.sum(np.sum(X**2, axis=1) * squares)
    return Gradients(gradient, residual, spread)


def checked_model(model: FloatArray, dimension: int, outputs: int) -> FloatArray:
    """Return a model in float64.

    Raises:
        InputError: if it has another shape than the data needs, or is not finite.
    """
    W = np.asarray(model, np.float64)
    if W.shape != (dimension, outputs):
        raise InputError(f"model has shape {W.shape}, the data needs {(dimension, outputs)}.")
    require_finite("model", W)
    return W
