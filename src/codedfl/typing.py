"""Array types that the package passes around, and how large arrays are allocated and traversed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
"""Real numbers: float32 for training, float64 for accounting."""

IntArray = npt.NDArray[np.int64]
"""Indices and counts."""

BoolArray = npt.NDArray[np.bool_]
"""Masks."""

ENTRIES_PER_BLOCK = 2**21
_CACHE_LINE = 64


def holds_numbers(dtype: Any) -> bool:
    """Tell whether arrays of a type hold real numbers or truth values.

    Example:
        >>> [holds_numbers(np.dtype(code)) for code in ("f4", "i8", "?", "c8", "U3", "O")]
        [True, True, True, False, False, False]
    """
    return dtype.kind in "biuf"


def aligned_empty(shape: tuple[int, ...], dtype: npt.DTypeLike) -> FloatArray:
    """Return an uninitialised array that starts on a cache line.

    Numpy's own arrays start 16 bytes after one. Every other vector of 32 bytes then straddles two lines, which makes the gradient
    steps of the compiled kernel 5% slower.

    Example:
        >>> array = aligned_empty((3, 2), np.float32)
        >>> array.shape, array.dtype, array.ctypes.data % 64
        ((3, 2), dtype('float32'), 0)
    """
    wanted = np.dtype(dtype)
    size = math.prod(shape) * wanted.itemsize
    buffer = np.empty(size + _CACHE_LINE, np.uint8)
    start = -buffer.ctypes.data % _CACHE_LINE
    array: FloatArray = buffer[start : start + size].view(wanted).reshape(shape)
    return array


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices that cover ``rows`` rows in order, each of about ``ENTRIES_PER_BLOCK`` entries.

    Temporaries of one block stay small, whether the array is in memory or mapped from a file.

    Example:
        >>> list(row_blocks(rows=5, columns=2**20))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, ENTRIES_PER_BLOCK // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
