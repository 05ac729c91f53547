"""Gradient steps: the one function that devices and the server run in a round."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self, SupportsIndex, overload

import numpy as np

from codedfl import native
from codedfl.arrays import FloatArray, IntArray

Batch = IntArray | None
"""Indices of the sampled rows; None for all rows."""

PerColumn = float | FloatArray
"""One number for all columns of a model, or one for each, (columns,)."""


@dataclass(frozen=True, eq=False)
class Batches(Sequence[IntArray]):
    """The batches of several steps, one after the other in one array.

    Args:
        rows: indices of the sampled rows of all steps.
        ends: where batches end; that of step ``u`` is ``rows[ends[u] : ends[u + 1]]``.

    Example:
        >>> list(Batches.joined([np.array([3, 4]), np.array([1])]))
        [array([3, 4]), array([1])]
    """

    rows: IntArray
    ends: IntArray

    @classmethod
    def joined(cls, batches: Sequence[IntArray]) -> Self:
        """Join batches into one array."""
        ends = np.zeros(len(batches) + 1, np.int64)
        np.cumsum([batch.size for batch in batches], out=ends[1:])
        return cls(np.concatenate(batches, dtype=np.int64), ends)

    def __len__(self) -> int:
        return self.ends.size - 1

    @overload
    def __getitem__(self, step: SupportsIndex) -> IntArray: ...

    @overload
    def __getitem__(self, step: slice) -> Sequence[IntArray]: ...

    def __getitem__(self, step: SupportsIndex | slice) -> IntArray | Sequence[IntArray]:
        if isinstance(step, slice):
            return [self[u] for u in range(*step.indices(len(self)))]
        u = range(len(self))[step]
        return self.rows[self.ends[u] : self.ends[u + 1]]


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
    joined = _for_kernel(features, labels, model, batches, step_size, make_up)
    if joined is None:
        return _with_numpy(features, labels, model, batches, scale, step_size, make_up)
    return native.accumulate(
        features,
        labels,
        model,
        joined.rows,
        joined.ends,
        scale=scale,
        step_size=float(step_size),
        make_up=float(make_up),
    )


def _for_kernel(
    features: FloatArray,
    labels: FloatArray,
    model: FloatArray,
    batches: Sequence[Batch],
    step_size: PerColumn,
    make_up: PerColumn,
) -> Batches | None:
    """Return the batches joined, if the compiled kernel is there and made for such steps; it takes one sampled model."""
    if (
        isinstance(step_size, np.ndarray)
        or isinstance(make_up, np.ndarray)
        or not native.suits(features, labels, model)
    ):
        return None
    if isinstance(batches, Batches):
        return batches
    sampled = [batch for batch in batches if batch is not None]
    return Batches.joined(sampled) if 0 < len(sampled) == len(batches) else None


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
