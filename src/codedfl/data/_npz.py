"""A user's own arrays in an .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import shown
from codedfl.data._dataset import require_same_rows
from codedfl.data._raw_tables import Columns
from codedfl.data._tabular import Table, as_float32, missing_values
from codedfl.errors import InputError
from codedfl.files import Arrays, read_npz, refusing_damage

_NUMBERS = "biuf"
_NUMBERS_OR_TEXT = _NUMBERS + "U"


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
    for field, given in (("data.bounds", columns.bounds), ("data.categories", columns.categories)):
        if given and not for_test:
            raise InputError(
                f"{field} = {shown(dict(given))} applies to .csv and .parquet files: scale and encode X in {shown(path)} instead."
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
    found = [name for name in test_names if name in arrays]
    if len(found) == 1:
        absent = next(name for name in test_names if name not in arrays)
        raise InputError(f"{shown(path)} has an array {found[0]!r} but no {shown(absent)}: give both or neither.")
    return train, _table(path, arrays, *test_names, "") if found else None


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
    if y.dtype.kind == "f":
        as_float32(f"the array {shown(target)} of {shown(path)}", y)
    return Table(
        path=path,
        features=as_float32(f"the array {shown(inputs)} of {shown(path)}", X),
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
