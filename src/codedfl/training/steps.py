"""Gradient steps: the one function that devices and the server run in a round."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from codedfl.arrays import FloatArray, IntArray

Batch = IntArray | None
"""Indices of the sampled rows; None for all rows."""


def accumulate_gradients(
    features: FloatArray,
    labels: FloatArray,
    model: FloatArray,
    batches: Sequence[Batch],
    *,
    scale: float,
    step_size: float,
    make_up: float = 0.0,
) -> FloatArray:
    """Take one gradient step for each batch, starting from ``model``, and return the sum of the gradients.

    Step ``u`` computes ``g_u = scale * X_S^T (X_S W_u - Y_S) - make_up * W_u`` on the sampled rows ``S`` and moves to
    ``W_{u+1} = W_u - eta g_u``; the result is ``sum_u g_u``. With ``scale = l_i / b`` this is a device's local training, (3)
    in the paper; with ``scale = 1 / b_s`` on coded data and ``make_up = sigma^2`` it is the server's, (4).

    Args:
        features: ``X``, (l, d).
        labels: ``Y``, (l, o).
        model: ``W_k``, (d, o); left as it is.
        batches: the sampled rows of each step.
        scale: what makes the sampled gradient unbiased.
        step_size: ``eta_k``.
        make_up: ``sigma^2`` of the make-up term ``-sigma^2 W``.

    Returns:
        The accumulated gradient, (d, o).

    Example:
        >>> X, Y = np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]])
        >>> accumulate_gradients(X, Y, np.zeros((1, 1)), [None, None], scale=1.0, step_size=0.1)
        array([[-7.5]])
    """
    total = np.zeros_like(model)
    local = model
    for u, batch in enumerate(batches):
        if u > 0:
            local = model - model.dtype.type(step_size) * total
        sampled, targets = (features, labels) if batch is None else (_gather(features, batch), labels[batch])
        residual = sampled @ local
        residual -= targets
        residual *= residual.dtype.type(scale)
        total += sampled.T @ residual
        if make_up:
            total -= model.dtype.type(make_up) * local
    return total


_buffers = threading.local()


def _gather(features: FloatArray, rows: IntArray) -> FloatArray:
    """Copy rows into this thread's buffer, which is reused: a fresh array costs more in page faults than the copy itself."""
    size = rows.size * features.shape[1]
    buffer: FloatArray | None = getattr(_buffers, "rows", None)
    if buffer is None or buffer.size < size or buffer.dtype != features.dtype:
        buffer = _buffers.rows = np.empty(size + size // 2, features.dtype)
    out = buffer[:size].reshape(rows.size, features.shape[1])
    # mode="clip" because numpy's default mode buffers the whole output; the indices are within range.
    return np.take(features, rows, axis=0, out=out, mode="clip")
