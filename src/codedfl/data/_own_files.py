"""Load users' own files: tables in .csv and .parquet files, and arrays in .npz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from codedfl._messages import shown
from codedfl.data._dataset import Dataset
from codedfl.data._fitting import fit_with_remarks
from codedfl.data._npz import read_npz_tables
from codedfl.data._partition import split_rows
from codedfl.data._problems import refuse_all
from codedfl.data._raw_tables import Columns, RawTable, read_raw
from codedfl.data._remarks import remarks_on_devices, remarks_on_target
from codedfl.data._tabular import Table, read_frame
from codedfl.data._targets import TargetEncoding, TaskChoice, fit_targets
from codedfl.errors import InputError
from codedfl.files import require_file
from codedfl.typing import FloatArray, IntArray

FILE_ENDINGS = (".csv", ".tsv", ".npz", ".parquet")


def is_file_name(source: str) -> bool:
    """Tell by its ending whether a source is a file rather than the name of a dataset."""
    return source.lower().endswith(FILE_ENDINGS)


def load_file(
    path: Path,
    columns: Columns,
    *,
    task: TaskChoice,
    test_fraction: float,
    test_file: str,
    rng: np.random.Generator,
) -> Dataset:
    """Load a file, with test rows from ``test_file``, else from the file itself (.npz), else split off at random.

    Args:
        path: a .csv, .parquet or .npz file.
        columns: its columns that are not features.
        task: "auto" takes numbers for a regression, and text, categories and booleans for a classification.
        test_fraction: fraction of the rows to test on, if there are no separate test rows.
        test_file: a file with test rows, or "".
        rng: source of the random split.
    """
    require_file("data.dataset", path)
    if path.suffix.lower() == ".npz":
        return _load_arrays(path, columns, task, test_fraction, test_file, rng)
    table = read_raw(path, columns)
    encoding, targets, problems = _encode(table, columns, task)
    rows, test_rows = np.arange(len(table.features)), None
    if not (test_file or problems):
        rows, test_rows = split_rows(len(rows), test_fraction, _labels(encoding, targets), rng, table.devices)
    preprocessing, remarks = fit_with_remarks(
        table.features,
        rows=rows,
        bounds=columns.bounds,
        categories=columns.categories,
        source=shown(path),
        problems=problems,
    )
    features = preprocessing.transform(table.features, source=shown(path))
    if test_rows is None:
        test = _read_test_table(Path(test_file), columns)
        test_features = preprocessing.transform(test.features, source=shown(test.path))
        test_targets = encoding.encode(test.targets, test.path)
    else:
        test_features, test_targets = features[test_rows], targets[test_rows]
    devices = None if table.devices is None else tuple(table.devices[row] for row in rows)
    about_target = remarks_on_target(table.targets, encoding.task) if task == "auto" else []
    about_devices = remarks_on_devices(table.devices, devices) if table.devices and devices else []
    return Dataset(
        name=path.stem,
        task=encoding.task,
        features=features[rows],
        targets=targets[rows],
        test_features=test_features,
        test_targets=test_targets,
        target_names=encoding.names,
        feature_names=preprocessing.output_names,
        devices=devices,
        preprocessing=preprocessing,
        remarks=(*about_target, *remarks, *about_devices),
    )


def _encode(table: RawTable, columns: Columns, task: TaskChoice) -> tuple[TargetEncoding, FloatArray, list[str]]:
    """Return the targets as numbers, and everything that is wrong with them and with the roles of columns."""
    encoding, targets = TargetEncoding("regression", columns.target), np.empty((0, 1), np.float32)
    problems = list(table.problems)
    complete = len(table.targets.columns) == len(columns.target) > 0 and not table.targets.isna().to_numpy().any()
    if complete:
        try:
            encoding = fit_targets(table.targets, task, table.path)
            targets = encoding.encode(table.targets, table.path)
        except InputError as error:
            problems.append(str(error))
    return encoding, targets, problems


def _labels(encoding: TargetEncoding, targets: FloatArray) -> IntArray | None:
    return np.argmax(targets, axis=1) if encoding.task == "classification" else None


def _load_arrays(
    path: Path, columns: Columns, task: TaskChoice, test_fraction: float, test_file: str, rng: np.random.Generator
) -> Dataset:
    """Load an .npz file."""
    train, test = read_npz_tables(path, columns)
    if test_file:
        if test is not None:
            raise InputError(
                f"data.test_file = {shown(test_file)} is given although {shown(path)} has its own X_test: remove one of them."
            )
        _require_test_file(Path(test_file))
        test = read_numeric_table(Path(test_file), columns, for_test=True)
    _refuse_constant_features(train)
    encoding = fit_targets(train.targets, task, path)
    targets = encoding.encode(train.targets, path)
    rows, test_rows = np.arange(len(targets)), None
    if test is None:
        rows, test_rows = split_rows(len(rows), test_fraction, _labels(encoding, targets), rng, train.devices)
    return Dataset(
        name=path.stem,
        task=encoding.task,
        features=train.features[rows],
        targets=targets[rows],
        test_features=train.features[test_rows] if test is None else test.with_features(train.feature_names),
        test_targets=targets[test_rows] if test is None else encoding.encode(test.targets, test.path),
        target_names=encoding.names,
        feature_names=train.feature_names,
        devices=None if train.devices is None else tuple(train.devices[row] for row in rows),
        remarks=tuple(remarks_on_target(train.targets, encoding.task)) if task == "auto" else (),
    )


def read_numeric_table(path: Path, columns: Columns, *, for_test: bool = False) -> Table:
    """Read the rows of a file whose features are numbers or truth values, without missing ones."""
    if path.suffix.lower() == ".npz":
        return read_npz_tables(path, columns, for_test=for_test)[0]
    return read_frame(path, columns, for_test=for_test)


def _read_test_table(path: Path, columns: Columns) -> RawTable:
    """Read test rows as they are in the file."""
    _require_test_file(path)
    if path.suffix.lower() == ".npz":
        arrays = read_npz_tables(path, columns, for_test=True)[0]
        return RawTable(path, pd.DataFrame(arrays.features, columns=list(arrays.feature_names)), arrays.targets, None)
    table = read_raw(path, columns, for_test=True)
    refuse_all(shown(path), table.problems)
    return table


def _require_test_file(path: Path) -> None:
    if not is_file_name(path.name):
        raise InputError(f"data.test_file = {shown(path)} must end in {', '.join(FILE_ENDINGS)}.")
    require_file("data.test_file", path)


def _refuse_constant_features(table: Table) -> None:
    """Refuse a table without any difference between rows."""
    if len(table.features) > 1 and not np.ptp(table.features, axis=0).any():
        raise InputError(
            f"every feature of {shown(table.path)} is constant: give at least one column that differs between rows."
        )
