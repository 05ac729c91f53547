"""The kernel's functions, for numpy arrays."""

from __future__ import annotations

import ctypes
import threading
from typing import TYPE_CHECKING

import numpy as np

from codedfl.native.library import library

if TYPE_CHECKING:
    from codedfl.arrays import FloatArray, IntArray

MOST_OUTPUTS = 40
"""With more outputs than that, products of gathered rows by BLAS are as fast."""

_FUNCTIONS = {np.dtype(np.float32): "accumulate_float32", np.dtype(np.float64): "accumulate_float64"}
_CACHE_LINE = 64
_local = threading.local()


def suits(features: FloatArray, labels: FloatArray, model: FloatArray) -> bool:
    """Return whether the kernel can compute gradients of these arrays, and is there."""
    outputs, dtype = model.shape[1], model.dtype
    return (
        library() is not None
        and dtype in _FUNCTIONS
        and dtype == features.dtype == labels.dtype
        and features.shape == (len(labels), len(model))
        and labels.shape[1] == outputs
        and 0 < outputs <= MOST_OUTPUTS
        and features.flags.c_contiguous
        and labels.flags.c_contiguous
        and model.flags.c_contiguous
        and len(model) > 0
    )


def accumulate(
    features: FloatArray,
    labels: FloatArray,
    model: FloatArray,
    rows: IntArray,
    ends: IntArray,
    *,
    scale: float,
    step_size: float,
    make_up: float,
) -> FloatArray:
    """Return the sum of the gradients of all steps (see ``accumulate_gradients``), for arrays that the kernel suits.

    Rows ``ends[u]`` to ``ends[u + 1]`` of ``rows`` are the batch of step ``u``.

    Raises:
        IndexError: a row is out of range.
    """
    kernel = library()
    assert kernel is not None
    (samples, d), o, total = features.shape, model.shape[1], np.empty_like(model)
    rows, ends = np.ascontiguousarray(rows, np.int64), np.ascontiguousarray(ends, np.int64)
    refused = getattr(kernel, _FUNCTIONS[model.dtype])(
        _address(features),
        _address(labels),
        samples,
        d,
        o,
        _address(model),
        _address(rows),
        rows.size,
        _address(ends),
        ends.size - 1,
        scale,
        step_size,
        make_up,
        _address(total),
        _workspace(d, o, model.itemsize),
    )
    if refused:
        raise IndexError(f"A sampled row is out of range: there are {len(features)} rows.")
    return total


def sample(
    key: tuple[int, int], device: int, round: int, samples: int, batch_size: int, steps: int
) -> tuple[IntArray, IntArray]:
    """Return the rows and ends of Bernoulli batches, the same as ``bernoulli_batches`` finds on this stream."""
    kernel = library()
    assert kernel is not None
    ends = np.empty(steps + 1, np.int64)
    mean = steps * batch_size
    room = mean + 8 * int(mean**0.5) + 64
    while True:
        rows = np.empty(room, np.int64)
        chosen = kernel.sample(
            *key, device, round, samples, batch_size / samples, steps, _address(rows), room, _address(ends)
        )
        if chosen >= 0:
            return rows[:chosen], ends
        room = steps * samples + 8


def _address(array: FloatArray | IntArray) -> object:
    """Return what ctypes passes as the array's address; the short way is not open to read-only and to empty arrays."""
    try:
        return ctypes.byref(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):
        return array.ctypes.data


def _workspace(d: int, outputs: int, item_bytes: int) -> int:
    """Return the address of this thread's buffer, which grows when it must and is reused."""
    held: dict[tuple[int, int, int], int] | None = getattr(_local, "held", None)
    if held is None:
        held = _local.held = {}
        _local.buffer = np.empty(0, np.uint8)
    shape = d, outputs, item_bytes
    if shape not in held:
        kernel = library()
        assert kernel is not None
        needed = kernel.workspace_size(*shape) * item_bytes + _CACHE_LINE
        if needed > _local.buffer.size:
            held.clear()
            _local.buffer = np.empty(needed, np.uint8)
        address = _local.buffer.ctypes.data
        held[shape] = address + -address % _CACHE_LINE
    return held[shape]
