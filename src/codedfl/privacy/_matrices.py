"""Checks on the matrices that an attack or an audit is given."""

from __future__ import annotations

import numpy as np

from codedfl._validation import require_finite
from codedfl.errors import InputError
from codedfl.typing import FloatArray


def require_matrix(name: str, values: FloatArray) -> None:
    """Refuse what is not a finite matrix with at least one row and one column."""
    if values.ndim != 2 or values.size == 0 or not np.issubdtype(values.dtype, np.floating):
        raise InputError(
            f"{name} has shape {values.shape} and dtype {values.dtype}: give a two-dimensional array of floats with at least "
            "one row and one column."
        )
    require_finite(name, values)


def require_same_columns(name: str, values: FloatArray, other: str, others: FloatArray) -> None:
    """Refuse two matrices that should have the same columns but differ in their number."""
    if values.shape[1] != others.shape[1]:
        raise InputError(
            f"{name} has {values.shape[1]} columns but {other} has {others.shape[1]}: give the same columns in both."
        )


def require_same_rows(name: str, values: FloatArray, other: str, others: FloatArray) -> None:
    """Refuse two matrices that should describe the same rows but differ in their number."""
    if len(values) != len(others):
        raise InputError(f"{name} has {len(values)} rows but {other} has {len(others)}: give one for each row.")
