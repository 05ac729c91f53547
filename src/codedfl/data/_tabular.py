"""Users' own tables: .csv and .parquet files, read with pandas."""

from __future__ import annotations

import csv
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import did_you_mean, listing, shown
from codedfl.errors import InputError
from codedfl.files import read_parquet, refuse_too_many_columns, refusing_damage
from codedfl.typing import FloatArray

_FLOAT32_LIMIT = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Columns:
    """Columns of a file that are not features.

    Args:
        target: column(s) to predict (``data.target``).
        device: column that names the device of each row, or "" (``data.device_column``).
        drop: columns to leave out (``data.drop``).
    """

    target: tuple[str, ...]
    device: str = ""
    drop: tuple[str, ...] = ()


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
    """Read a .csv or .parquet file: every column without another role is a feature.

    Args:
        path: the file.
        columns: the columns that are not features.
        for_test: the rows are test rows, whose file may lack the device column and the dropped columns.
    """
    frame = read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    names = [str(name) for name in frame.columns]
    frame.columns = pd.Index(names, dtype=object)
    _refuse_repeated_names(path, names)
    if len(frame) == 0:
        raise InputError(f"{shown(path)} has no rows: give a file with at least one.")
    _require_columns(path, names, columns, for_test)
    features = [name for name in names if name not in (*columns.target, columns.device, *columns.drop)]
    if not features:
        raise InputError(f"{shown(path)} has no column left as a feature: shorten data.target or data.drop.")
    for name in columns.target:
        _refuse_missing(path, frame[name])
    has_devices = bool(columns.device) and columns.device in names
    return Table(
        path=path,
        features=_features(path, frame, features),
        feature_names=tuple(features),
        targets=frame[list(columns.target)],
        devices=_devices(path, frame[columns.device]) if has_devices else None,
    )


def _read_csv(path: Path) -> pd.DataFrame:
    with refusing_damage(path, "a .csv file"), warnings.catch_warnings():
        # pandas only warns about a row with more fields than the header, and drops the surplus.
        warnings.simplefilter("error", pd.errors.ParserWarning)
        _check_header(path)
        return pd.read_csv(path, index_col=False, low_memory=False)


def _check_header(path: Path) -> None:
    """Refuse empty and repeated names, which pandas would change, and too many columns, which would take it hours."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        header = next(filter(None, csv.reader(file)), [])
    refuse_too_many_columns(path, len(header))
    if "" in header:
        raise InputError(
            f"column {header.index('') + 1} of {shown(path)} has no name: name it, or write the file without row numbers."
        )
    _refuse_repeated_names(path, header)


def _refuse_repeated_names(path: Path, names: Sequence[str]) -> None:
    repeated, count = Counter(names).most_common(1)[0] if names else ("", 0)
    if count > 1:
        raise InputError(f"{shown(path)} has more than one column {shown(repeated)}: give each column its own name.")


def _require_columns(path: Path, names: list[str], columns: Columns, for_test: bool) -> None:
    if not columns.target:
        raise InputError(
            f"data.target is empty: name the column(s) to predict, out of those of {shown(path)}: {listing(names)}."
        )
    roles = [("data.target", name) for name in columns.target]
    if not for_test:
        roles += [("data.device_column", columns.device)] if columns.device else []
        roles += [("data.drop", name) for name in columns.drop]
    seen: dict[str, str] = {}
    for field, name in roles:
        if name not in names:
            raise InputError(
                f"{field} = {shown(name)} is not a column of {shown(path)}, which has: {listing(names)}."
                + did_you_mean(name, names)
            )
        if name in seen and not (field == seen[name] == "data.drop"):
            raise InputError(f"the column {shown(name)} is named in {seen[name]} and again in {field}: name it once.")
        seen[name] = field


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


def _devices(path: Path, column: pd.Series) -> tuple[str, ...]:
    _refuse_missing(path, column)
    return tuple(str(value) for value in column)


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
