"""Datasets from a user's own .csv, .parquet and .npz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from codedfl._reading import require_file
from codedfl.data._dataset import Dataset
from codedfl.data._npz import read_npz_tables
from codedfl.data._splits import split_rows
from codedfl.data._table import Columns, Table
from codedfl.data._tabular import read_frame
from codedfl.data._targets import TargetEncoding, TaskChoice, fit_targets
from codedfl.errors import InputError

FILE_ENDINGS = (".csv", ".npz", ".parquet")


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
        test_fraction: fraction of the rows to test on, if there are no test rows apart.
        test_file: a file with test rows, or "".
        rng: randomness of the split.
    """
    require_file("data.dataset", path)
    train, test = _read(path, columns)
    if test_file:
        if test is not None:
            raise InputError(
                f"data.test_file = {test_file!r} is given although {str(path)!r} has its own X_test: remove one of them."
            )
        test = _read_test(Path(test_file), columns)
    encoding = fit_targets(train.targets, task, path)
    if test is None:
        return _split(train, encoding, test_fraction, rng)
    return Dataset(
        name=path.stem,
        task=encoding.task,
        features=train.features,
        targets=encoding.encode(train.targets, path),
        test_features=test.with_features(train.feature_names),
        test_targets=encoding.encode(test.targets, test.path),
        target_names=encoding.names,
        feature_names=train.feature_names,
        devices=train.devices,
    )


def _read(path: Path, columns: Columns) -> tuple[Table, Table | None]:
    if path.suffix.lower() == ".npz":
        return read_npz_tables(path, columns)
    return read_frame(path, columns), None


def _read_test(path: Path, columns: Columns) -> Table:
    if not is_file_name(path.name):
        raise InputError(f"data.test_file = {str(path)!r} must end in {', '.join(FILE_ENDINGS)}.")
    require_file("data.test_file", path)
    if path.suffix.lower() == ".npz":
        return read_npz_tables(path, columns, for_test=True)[0]
    return read_frame(path, columns, for_test=True)


def _split(table: Table, encoding: TargetEncoding, test_fraction: float, rng: np.random.Generator) -> Dataset:
    targets = encoding.encode(table.targets, table.path)
    labels = np.argmax(targets, axis=1) if encoding.task == "classification" else None
    train, test = split_rows(len(targets), test_fraction, labels, rng)
    return Dataset(
        name=table.path.stem,
        task=encoding.task,
        features=table.features[train],
        targets=targets[train],
        test_features=table.features[test],
        test_targets=targets[test],
        target_names=encoding.names,
        feature_names=table.feature_names,
        devices=None if table.devices is None else tuple(table.devices[row] for row in train),
    )
