"""Users' own rows that are complete numbers: columns of a table, or the arrays of an .npz file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import listing, shown
from codedfl._validation import refuse_all
from codedfl.data._cells import as_float32, as_floats, is_numeric, missing_values
from codedfl.data._dataset import require_same_rows
from codedfl.data._tables import Columns, read_raw
from codedfl.errors import InputError
from codedfl.files import Arrays, read_npz, refusing_damage
from codedfl.typing import FloatArray

_NUMBERS = "biuf"
_NUMBERS_OR_TEXT = _NUMBERS + "U"
"""Kinds of numpy's types that hold them."""


@dataclass(frozen=True, eq=False)
class Table:
    """The contents of one file.

    Args:
        path: the file, for messages.
        features: (m, p), finite; float32, or float64 if single precision would lose digits in which rows differ.
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


def read_numeric_table(path: Path, columns: Columns, *, for_test: bool = False) -> Table:
    """Read the rows of a file whose features are numbers or truth values, without missing ones."""
    if path.suffix.lower() == ".npz":
        return read_npz_tables(path, columns, for_test=for_test)[0]
    return read_frame(path, columns, for_test=for_test)


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
    columns = []
    for name in names:
        column = frame[name]
        if not (is_numeric(column) or pd.api.types.is_bool_dtype(column.dtype)):
            raise InputError(
                f"the feature column {shown(name)} of {shown(path)} has dtype {column.dtype}, which is not numeric or boolean: "
                "encode it as numbers, or leave it out with data.drop."
            )
        values = column.to_numpy(np.float64, na_value=np.nan)
        columns.append(as_floats(f"column {shown(name)} of {shown(path)}", values))
    return np.column_stack(columns) if columns else np.empty((len(frame), 0), np.float32)


def read_npz_tables(path: Path, columns: Columns, *, for_test: bool = False) -> tuple[Table, Table | None]:
    """Read the training rows of an .npz file, and its test rows if it has any.

    The inputs are the array ``X``, (m, p); the targets the array that ``columns.target`` names, ``y`` by default, (m,) or
    (m, o); the device of each row the array that ``columns.device`` names, ``device`` by default, if present. The test
    rows are ``X_test`` and ``y_test``.

    Args:
        path: the file.
        columns: names of the arrays.
        for_test: the file holds only test rows, in ``X`` and ``y``.
    """
    if columns.drop:
        raise InputError(
            f"data.drop = {shown(list(columns.drop))} applies to .csv and .parquet files: leave the columns out of X in "
            f"{shown(path)} instead."
        )
    for field, values in (("data.bounds", columns.bounds), ("data.categories", columns.categories)):
        if values and not for_test:
            raise InputError(
                f"{field} = {shown(dict(values))} applies to .csv and .parquet files: scale and encode X in {shown(path)} "
                "instead."
            )
    if len(columns.target) > 1:
        raise InputError(
            f"data.target = {shown(list(columns.target))} names more than one array of {shown(path)}: name one, with a column "
            "for each output."
        )
    target = columns.target[0] if columns.target else "y"
    if for_test:
        return _table(path, read_npz(path, ("X", target)), "X", target, ""), None
    test_names = ("X_test", f"{target}_test")
    required = ("X", target, columns.device) if columns.device else ("X", target)
    arrays = read_npz(path, required, ("device", *test_names))
    train = _table(path, arrays, "X", target, columns.device or "device")
    present, absent = ([name for name in test_names if (name in arrays) is there] for there in (True, False))
    if present and absent:
        raise InputError(f"{shown(path)} has an array {present[0]!r} but no {shown(absent[0])}: give both or neither.")
    return train, _table(path, arrays, *test_names, "") if present else None


def _table(path: Path, arrays: Arrays, inputs: str, target: str, device: str) -> Table:
    X, y, devices = arrays[inputs], arrays[target], arrays.get(device)
    _require_array(path, inputs, X, (2,), _NUMBERS)
    _require_array(path, target, y, (1, 2), _NUMBERS_OR_TEXT)
    require_same_rows(f"{inputs} in {shown(path)}", X, target, y)
    if devices is not None:
        _require_array(path, device, devices, (1,), _NUMBERS_OR_TEXT)
        require_same_rows(f"{inputs} in {shown(path)}", X, device, devices)
    name = target.removesuffix("_test")
    names = [name] if y.ndim == 1 or y.shape[1] == 1 else [f"{name}_{output}" for output in range(y.shape[1])]
    # Text may hold invalid Unicode, which shows only when it is read.
    with refusing_damage(path, "an .npz file"):
        targets = pd.DataFrame(dict(zip(names, y.reshape(len(y), -1).T, strict=True)))
        device_names = None if devices is None else tuple(str(value) for value in devices.tolist())
    unnamed = [name for name in device_names or () if name.lower() in ("", "nan")]
    if unnamed:
        raise missing_values(f"the array {shown(device)} of {shown(path)}", len(unnamed))
    if np.issubdtype(y.dtype, np.floating):
        as_float32(f"the array {shown(target)} of {shown(path)}", y)
    return Table(
        path=path,
        features=as_floats(f"the array {shown(inputs)} of {shown(path)}", X),
        feature_names=tuple(f"x{column}" for column in range(X.shape[1])),
        targets=targets,
        devices=device_names,
    )


def _require_array(path: Path, name: str, array: npt.NDArray[Any], dimensions: tuple[int, ...], kinds: str) -> None:
    if array.ndim not in dimensions or array.dtype.kind not in kinds or array.size == 0:
        shapes = " or ".join(f"{count}-dimensional" for count in dimensions)
        content = "numbers" if kinds == _NUMBERS else "numbers or text"
        raise InputError(
            f"the array {shown(name)} of {shown(path)} has shape {array.shape} and dtype {np.dtype(array.dtype)}: give a "
            f"non-empty {shapes} array of {content}."
        )
