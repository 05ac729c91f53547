"""Users' own tables whose features are complete columns of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import listing, shown
from codedfl.data._problems import refuse_all
from codedfl.data._raw_tables import Columns, read_raw
from codedfl.errors import InputError
from codedfl.typing import FloatArray

_FLOAT32_LIMIT = float(np.finfo(np.float32).max)


@dataclass(frozen=True, eq=False)
class Table:
    """The contents of one file.

    Args:
        path: the file, for messages.
        features: (m, p), float32, finite.
        feature_names: names of the p columns.
        targets: the target column(s), without missing values, in the types of the file.
        devices: the device of each row, if the file names it.
    """

    path: Path
    features: FloatArray
    feature_names: tuple[str, ...]
    targets: pd.DataFrame
    devices: tuple[str, ...] | None = None

    def with_features(self, names: tuple[str, ...]) -> FloatArray:
        """Return the features in the order of ``names``; refuse a table with other features."""
        if self.feature_names == names:
            return self.features
        lacking = sorted(set(names) - set(self.feature_names))
        surplus = sorted(set(self.feature_names) - set(names))
        if lacking or surplus:
            raise InputError(
                f"the test rows in {shown(self.path)} lack the feature(s) {listing(lacking) or 'none'} and have the extra "
                f"feature(s) {listing(surplus) or 'none'}: give them the features of the training rows."
            )
        position = {name: column for column, name in enumerate(self.feature_names)}
        return np.ascontiguousarray(self.features[:, [position[name] for name in names]])


def as_float32(name: str, values: npt.NDArray[Any]) -> FloatArray:
    """Return numbers as a C-contiguous float32 array, or refuse missing and unrepresentable ones.

    Example:
        >>> as_float32("column 'a'", np.array([1, 2]))
        array([1., 2.], dtype=float32)
    """
    missing = int(np.count_nonzero(np.isnan(values)))
    if missing:
        raise missing_values(name, missing)
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=np.float32)
    outside = int(converted.size - np.count_nonzero(np.isfinite(converted)))
    if outside:
        raise InputError(
            f"{name} has {outside} value(s) that are infinite or beyond {_FLOAT32_LIMIT:.1e}: rescale them or remove their "
            "rows."
        )
    return converted


def missing_values(name: str, count: int) -> InputError:
    """Return the error for a column with missing values."""
    return InputError(
        f"{name} has {count} missing value(s) (empty, NaN, NA or None): fill them in or remove their rows."
    )


def read_frame(path: Path, columns: Columns, *, for_test: bool = False) -> Table:
    """Read a .csv or .parquet file whose features are complete columns of numbers or truth values.

    Args:
        path: the file.
        columns: the columns that are not features.
        for_test: the rows are test rows, whose file may lack the device column and the dropped columns.
    """
    raw = read_raw(path, columns, for_test=for_test)
    refuse_all(shown(path), raw.problems)
    names = list(raw.features.columns)
    return Table(path, _features(path, raw.features, names), tuple(names), raw.targets, raw.devices)


def _features(path: Path, frame: pd.DataFrame, names: list[str]) -> FloatArray:
    features = np.empty((len(frame), len(names)), dtype=np.float32)
    for position, name in enumerate(names):
        column = frame[name]
        if not (is_numeric(column) or pd.api.types.is_bool_dtype(column.dtype)):
            raise InputError(
                f"the feature column {shown(name)} of {shown(path)} has dtype {column.dtype}, which is not numeric or boolean: "
                "encode it as numbers, or leave it out with data.drop."
            )
        _refuse_missing(path, column)
        features[:, position] = as_float32(f"column {shown(name)} of {shown(path)}", column.to_numpy(dtype=np.float64))
    return features


def _refuse_missing(path: Path, column: pd.Series) -> None:
    missing = int(column.isna().sum())
    if missing:
        raise missing_values(f"column {shown(column.name)} of {shown(path)}", missing)


def is_numeric(column: pd.Series) -> bool:
    """Tell whether a column holds real numbers; booleans do not count.

    Example:
        >>> [is_numeric(pd.Series(values)) for values in ([1, 2], [0.5], [True], ["a"], [1j])]
        [True, True, False, False, False]
    """
    types = pd.api.types
    dtype = column.dtype
    return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype) and not types.is_complex_dtype(dtype)
