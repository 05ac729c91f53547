"""Work through large arrays a few rows at a time, so that temporaries stay small, whether they are in memory or mapped."""

from __future__ import annotations

from collections.abc import Iterator
from mmap import mmap

import numpy as np

from codedfl.errors import InputError
from codedfl.typing import FloatArray

ENTRIES_PER_BLOCK = 2**21


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """Yield slices that cover ``rows`` rows in order, each of about ``ENTRIES_PER_BLOCK`` entries.

    Example:
        >>> list(row_blocks(rows=5, columns=2**20))
        [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, ENTRIES_PER_BLOCK // max(1, columns))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def require_finite_matrix(name: str, values: FloatArray) -> None:
    """Refuse a matrix with a NaN or an infinity, without a mask of the whole matrix."""
    count, first = 0, (0, 0)
    for block in row_blocks(*values.shape):
        finite = np.isfinite(values[block])
        bad = finite.size - int(np.count_nonzero(finite))
        if bad and not count:
            row, column = divmod(int(np.argmin(finite)), values.shape[1])
            first = (block.start + row, column)
        count += bad
    if count:
        raise InputError(
            f"{name} has {count} value(s) that are NaN or infinite, the first at index {first}: "
            "remove those rows or fill the values in."
        )


def mapped_file(values: FloatArray) -> str | None:
    """Return the file that an array is a view of, or None if it is in memory.

    Example:
        >>> mapped_file(np.zeros((2, 2))) is None
        True
    """
    # An array computed from a mapped one may be of type numpy.memmap too: only what is at the bottom tells.
    owner = values
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    return str(getattr(owner, "filename", "")) if isinstance(owner.base, mmap) else None
