"""Rows from a user's file as a saved model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, listing, shown
from codedfl.data import Columns, TargetEncoding, is_file_name, read_npz_tables, read_table
from codedfl.errors import InputError
from codedfl.files import read_npz, require_file
from codedfl.models._predictor import Predictor
from codedfl.typing import FloatArray, holds_numbers


@dataclass(frozen=True, eq=False)
class LabelledRows:
    """Rows of which the truth is known.

    Args:
        inputs: numeric inputs of the model, (n, p).
        targets: (n, o); one-hot rows for a classification.
        devices: the device of each row; None if the file does not name it.
    """

    inputs: FloatArray
    targets: FloatArray
    devices: tuple[str, ...] | None


def read_inputs(model: Predictor, path: Path) -> FloatArray:
    """Read the inputs of a model from a file, (n, p).

    Args:
        model: the model. Its columns are found by name in any order, and others are ignored.
        path: a .csv or .parquet table, or an .npz file with the array ``X``, whose columns are in the order of the model's.

    Raises:
        InputError: if the file cannot be read or does not fit the model.
    """
    _require_table(path)
    if path.suffix.lower() == ".npz":
        return _inputs_from_array(model, read_npz(path, ("X",))["X"], path)
    return model.inputs_of(read_table(path), source=shown(path))


def read_labelled(
    model: Predictor, path: Path, *, target: Sequence[str] = (), device_column: str | None = None
) -> LabelledRows:
    """Read inputs and targets of a model from a file.

    Args:
        model: the model.
        path: a .csv or .parquet table, or an .npz file with the arrays ``X`` and ``y``.
        target: column(s) with the truth, or the name of an array; by default those that the model was trained to predict.
        device_column: column, or array, that names the device of each row; by default that of the training data, if the file has
            it.

    Raises:
        InputError: if the file cannot be read, does not fit the model, or has classes that the model does not know.
    """
    _require_table(path)
    names = tuple(target) or model.target_columns
    encoding = TargetEncoding(model.task, model.target_names)
    if path.suffix.lower() == ".npz":
        arrays = read_npz(path, ("X",), None)
        names = names[:1] if target or names[:1] in [(name,) for name in arrays] else ()
        table, _ = read_npz_tables(path, Columns(names, device_column or ""))
        inputs, targets, devices = _inputs_from_array(model, arrays["X"], path), table.targets, table.devices
    else:
        frame = read_table(path)
        if not names:
            columns = [str(column) for column in frame.columns]
            others = [name for name in columns if name not in model.input_names] or columns
            raise InputError(
                f"target is not given, and the model does not know its name: name the target column of {shown(path)}, out of "
                f"(from the last) {listing(others[::-1])}."
            )
        targets = frame[[_column(frame, name, path) for name in names]]
        _refuse_missing(targets, path)
        inputs = model.inputs_of(frame, source=shown(path))
        devices = _devices(model, frame, device_column, path)
    wanted = 1 if model.task == "classification" else len(model.target_names)
    if targets.shape[1] != wanted:
        raise InputError(
            f"the target has {targets.shape[1]} column(s) in {shown(path)}, but the model predicts {wanted}: name "
            f"{listing(model.target_columns or model.target_names)}."
        )
    encoded = encoding.encode(targets, path)
    if model.task == "regression" and model.precision == np.float64:
        encoded = targets.to_numpy(np.float64)  # single precision may lose the digits in which rows differ
    return LabelledRows(inputs, encoded, devices)


def _require_table(path: Path) -> None:
    require_file("", path)
    if not is_file_name(path.name):
        raise InputError(f"{shown(path)} is not a table: give a file that ends in .csv, .parquet or .npz.")


def _inputs_from_array(model: Predictor, values: FloatArray, path: Path) -> FloatArray:
    names, width = model.input_names, len(model.input_names) or model.feature_map.input_dimension
    if values.ndim != 2 or values.shape[1] != width or not holds_numbers(values.dtype):
        raise InputError(
            f"the array 'X' of {shown(path)} has shape {values.shape} and dtype {values.dtype}, but the model takes numbers of "
            f"shape (n, {width})" + (f", with the columns {listing(names)}." if names else ".")
        )
    if names:
        return model.inputs_of(pd.DataFrame(values, columns=list(names)), source=shown(path))
    return values.astype(np.result_type(values, np.float32), copy=False)


def _column(frame: pd.DataFrame, name: str, path: Path) -> str:
    if name not in frame.columns:
        columns = [str(column) for column in frame.columns]
        raise InputError(
            f"{shown(path)} has no column {shown(name)}, only: {listing(columns)}." + did_you_mean(name, columns)
        )
    return name


def _devices(model: Predictor, frame: pd.DataFrame, chosen: str | None, path: Path) -> tuple[str, ...] | None:
    name = model.device_column if chosen is None else _column(frame, chosen, path)
    if not name or name not in frame.columns:
        return None
    _refuse_missing(frame[[name]], path)
    return tuple(map(str, frame[name]))


def _refuse_missing(frame: pd.DataFrame, path: Path) -> None:
    counts = frame.isna().sum()
    for name in frame.columns:
        if counts[name]:
            raise InputError(
                f"column {shown(name)} of {shown(path)} has {counts[name]} missing value(s): fill them in or remove their rows."
            )
