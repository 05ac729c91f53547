"""Work through large arrays a few rows at a time, so that temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from codedfl._checks import require_finite
from codedfl.arrays import FloatArray

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
    """Refuse a matrix with a NaN or an infinity, without a mask of the whole matrix when there is none."""
    if not all(np.isfinite(values[block]).all() for block in row_blocks(*values.shape)):
        require_finite(name, values)
