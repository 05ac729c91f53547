"""Gradient steps: the one function that devices and the server run in a round."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from codedfl import native
from codedfl.training._sampling import Batch, BernoulliBatches
from codedfl.typing import FloatArray, IntArray

PerColumn = float | FloatArray
"""One number for all columns of a model, or one for each, (columns,)."""


def accumulate_gradients(
    features: FloatArray,
    labels: FloatArray,
    model: FloatArray,
    batches: Sequence[Batch],
    *,
    scale: float,
    step_size: PerColumn,
    make_up: PerColumn = 0.0,
) -> FloatArray:
    """Take one gradient step for each batch, starting from ``model``, and return the sum of the gradients.

    Step ``u`` computes ``g_u = scale * X_S^T (X_S W_u - Y_S) - make_up * W_u`` on the sampled rows ``S`` and moves to
    ``W_{u+1} = W_u - eta g_u``; the result is ``sum_u g_u``. With ``scale = l_i / b`` this is a device's local training, (3)
    in the paper; with ``scale = 1 / b_s`` on coded data and ``make_up = sigma^2`` it is the server's, (4).

    Several models that train on the same batches may be given side by side as columns: the rows are then gathered once for all
    of them.

    Args:
        features: ``X``, (l, d).
        labels: ``Y``, (l, o).
        model: ``W_k``, (d, o), or R models side by side, (d, R o); left as it is.
        batches: the sampled rows of each step.
        scale: what makes the sampled gradient unbiased.
        step_size: ``eta_k``.
        make_up: ``sigma^2`` of the make-up term ``-sigma^2 W``.

    Returns:
        The accumulated gradient, of the shape of the model.

    Example:
        >>> X, Y = np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]])
        >>> accumulate_gradients(X, Y, np.zeros((1, 1)), [None, None], scale=1.0, step_size=0.1)
        array([[-7.5]])
        >>> accumulate_gradients(X, Y, np.zeros((1, 2)), [None, None], scale=1.0, step_size=np.array([0.1, 0.2]))
        array([[-7.5, -5. ]])
    """
    sampled = for_kernel(batches, len(features))
    if (
        sampled is None
        or isinstance(step_size, np.ndarray)
        or isinstance(make_up, np.ndarray)
        or not native.suits(features, labels, model)
    ):
        return _with_numpy(features, labels, model, batches, scale, step_size, make_up)
    party = native.Party(features, labels, sampled, scale, [native.Model(model, step_size, make_up)])
    steps = native.Steps([party])
    steps.take()
    total: FloatArray = steps.totals[0][0]
    return total


def for_kernel(batches: Sequence[Batch], samples: int) -> native.Draws | list[IntArray] | None:
    """Return batches of so many rows as the compiled kernel takes them; None if there are none, or if one is all rows."""
    if isinstance(batches, BernoulliBatches) and batches.samples == samples:
        return batches.draws
    sampled = [batch for batch in batches if batch is not None]
    return sampled if 0 < len(sampled) == len(batches) else None


def _with_numpy(
    features: FloatArray,
    labels: FloatArray,
    model: FloatArray,
    batches: Sequence[Batch],
    scale: float,
    step_size: PerColumn,
    make_up: PerColumn,
) -> FloatArray:
    number, runs = model.dtype.type, model.shape[1] // labels.shape[1]
    step_size, make_up = np.asarray(step_size, number), np.asarray(make_up, number)
    total = np.zeros_like(model)
    local = model
    for u, batch in enumerate(batches):
        if u > 0:
            local = model - step_size * total
        sampled, targets = (features, labels) if batch is None else (_gather(features, batch), labels[batch])
        residual = sampled @ local
        residual.reshape(len(sampled), runs, labels.shape[1])[:] -= targets[:, None, :]
        residual *= number(scale)
        total += sampled.T @ residual
        if make_up.any():
            total -= make_up * local
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
