"""Load a dataset by name, or from a user's own .csv, .parquet or .npz file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from codedfl._messages import did_you_mean, shown
from codedfl._validation import refuse_all
from codedfl.data._dataset import Dataset, TargetEncoding, Task, TaskChoice, fit_targets, remarks_on_target
from codedfl.data._fitting import fit_with_remarks
from codedfl.data._memmap import is_federation_folder
from codedfl.data._numeric import Table, read_npz_tables, read_numeric_table
from codedfl.data._partition import remarks_on_devices, split_rows
from codedfl.data._registry import REGISTRY, dataset_names, load_named
from codedfl.data._tables import Columns, RawTable, read_raw
from codedfl.errors import InputError
from codedfl.files import require_file
from codedfl.plugins import find_plugin
from codedfl.typing import FloatArray, IntArray

FILE_ENDINGS = (".csv", ".tsv", ".npz", ".parquet")


def load_dataset(
    source: str,
    *,
    data_dir: Path | None = None,
    target: Sequence[str] = (),
    device_column: str = "",
    drop: Sequence[str] = (),
    bounds: Mapping[str, tuple[float | str, float | str]] | None = None,
    categories: Mapping[str, tuple[str, ...]] | None = None,
    task: TaskChoice = "auto",
    test_fraction: float = 0.2,
    test_file: str = "",
    rng: np.random.Generator,
) -> Dataset:
    """Load a dataset that is known by name, or a file.

    Args:
        source: a name (see ``list_datasets``), or a path that ends in .csv, .tsv, .parquet or .npz.
        data_dir: folder with the files of named datasets; by default that in the environment variable ``CODEDFL_DATA``,
            else ``data`` in the current directory.
        target: column(s) of a file to predict; for an .npz file the name of one array, ``y`` by default.
        device_column: column of a file that names the device of each row; for an .npz file the name of an array,
            ``device`` by default and if present.
        drop: columns of a file to leave out.
        bounds: lower and upper bound of columns of a table, see `fit_preprocessing`.
        categories: categories of columns of a table, see `fit_preprocessing`.
        task: "auto" takes numbers for a regression, and text, categories and booleans for a classification.
        test_fraction: fraction of the rows to test on, for data without test rows of their own.
        test_file: a file with test rows, in place of a random split.
        rng: source of the random split.

    Raises:
        InputError: something is wrong with the arguments or the files; the message says what, and what to do.

    Example:
        >>> data = load_dataset("digits", rng=np.random.default_rng(0))
        >>> data.features.shape, data.test_features.shape, data.task
        ((1438, 64), (359, 64), 'classification')
    """
    # A single name is an easy slip for a sequence of names, and would be taken letter by letter.
    columns = Columns(
        target=(target,) if isinstance(target, str) else tuple(target),
        device=device_column,
        drop=(drop,) if isinstance(drop, str) else tuple(drop),
        bounds=dict(bounds or {}),
        categories=dict(categories or {}),
    )
    if is_file_name(source):
        return load_file(Path(source), columns, task=task, test_fraction=test_fraction, test_file=test_file, rng=rng)
    if is_federation_folder(source):
        raise InputError(
            f"data.dataset = {shown(source)} is a folder, which holds no raw inputs: use open_federation for it."
        )
    if source not in REGISTRY and find_plugin("dataset", source) is None:
        known = dataset_names()
        raise InputError(
            f"data.dataset = {shown(source)} is neither a known dataset ({', '.join(known)}) nor a folder with a "
            f"federation nor a path that ends in {', '.join(FILE_ENDINGS)}.{did_you_mean(source, known)}"
        )
    _refuse_file_options(source, columns, test_file)
    if source in REGISTRY:  # all of them are, so nothing needs to be loaded to know
        _refuse_other_task(source, task, "classification")
    dataset = load_named(source, data_dir, test_fraction, rng)
    _refuse_other_task(source, task, dataset.task)
    return dataset


def _refuse_file_options(source: str, columns: Columns, test_file: str) -> None:
    options: dict[str, object] = {
        "data.target": list(columns.target),
        "data.device_column": columns.device,
        "data.drop": list(columns.drop),
        "data.bounds": columns.bounds,
        "data.categories": columns.categories,
        "data.test_file": test_file,
    }
    for field, value in options.items():
        if value:
            raise InputError(
                f"{field} = {shown(value)} applies to a file, not to data.dataset = {shown(source)}: leave it out."
            )


def _refuse_other_task(source: str, task: TaskChoice, actual: Task) -> None:
    if task not in ("auto", actual):
        raise InputError(
            f"data.task = {shown(task)} does not fit data.dataset = {shown(source)}, a {actual}: use 'auto'."
        )


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
