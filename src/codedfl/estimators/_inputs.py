"""The rows that an estimator is given: columns, and the device that each row belongs to."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, shown
from codedfl.errors import InputError


def without_column(X: Any, column: str | None, *, required: bool = False) -> tuple[Any, Any]:
    """Take the column that names devices out of a frame.

    Args:
        X: an array, or a pandas or polars frame.
        column: the name of the column; None for none.
        required: whether to refuse inputs without it.

    Returns:
        The other columns, and that column; None if there is none.

    Example:
        >>> frame = pd.DataFrame({"age": [40, 60], "hospital": ["a", "b"]})
        >>> rest, devices = without_column(frame, "hospital")
        >>> list(rest.columns), list(devices)
        (['age'], ['a', 'b'])
    """
    if column is None:
        return X, None
    names = list(getattr(X, "columns", ()))
    if column in names:
        return X.drop(columns=column) if isinstance(X, pd.DataFrame) else X.drop(column), X[column]
    if required:
        has = f"has only the columns {shown(names)}" if names else "is an array without column names"
        hint = did_you_mean(str(column), list(map(str, names)))
        raise InputError(f"device_column = {shown(column)} is not in X, which {has}: name one of its columns.{hint}")
    return X, None


def column_names(y: Any) -> tuple[str, ...]:
    """Return the names of the columns of targets; empty if they have none, or not each its own.

    Example:
        >>> column_names(pd.Series([1.0, 2.0], name="dose")), column_names(np.zeros(2))
        (('dose',), ())
    """
    names = tuple(getattr(y, "columns", (getattr(y, "name", None),)))
    usable = all(isinstance(name, str) and name for name in names) and len(set(names)) == len(names)
    return names if usable else ()


def device_names(groups: Any, rows: int) -> tuple[str, ...]:
    """Return the name of the device of each row.

    Args:
        groups: any labels, one per row.
        rows: number of rows.

    Raises:
        InputError: if there is not one label per row, or some are missing.

    Example:
        >>> device_names([2, 1, 2], rows=3)
        ('2', '1', '2')
    """
    labels = np.asarray(groups)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1 or len(labels) != rows:
        raise InputError(f"groups has shape {labels.shape} for {rows} rows of X: give one device for each row.")
    missing = int(np.count_nonzero(pd.isna(labels)))
    if missing:
        raise InputError(f"groups names no device for {missing} of {rows} rows: name one, or leave these rows out.")
    return tuple(str(label) for label in labels.tolist())
