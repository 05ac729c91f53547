"""Load a dataset by name, or from a user's own .csv, .parquet or .npz file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from codedfl._messages import did_you_mean, shown
from codedfl.data._dataset import Dataset
from codedfl.data._memmap import is_federation_folder
from codedfl.data._npz import read_npz_tables
from codedfl.data._partition import split_rows
from codedfl.data._registry import REGISTRY, load_named
from codedfl.data._tabular import Columns, Table, read_frame
from codedfl.data._targets import TargetEncoding, TaskChoice, fit_targets
from codedfl.errors import InputError
from codedfl.files import require_file

FILE_ENDINGS = (".csv", ".npz", ".parquet")


def load_dataset(
    source: str,
    *,
    data_dir: Path | None = None,
    target: Sequence[str] = (),
    device_column: str = "",
    drop: Sequence[str] = (),
    task: TaskChoice = "auto",
    test_fraction: float = 0.2,
    test_file: str = "",
    rng: np.random.Generator,
) -> Dataset:
    """Load a dataset that is known by name, or a file.

    Args:
        source: a name (see ``list_datasets``), or a path that ends in .csv, .parquet or .npz.
        data_dir: folder with the files of named datasets; by default that in the environment variable ``CODEDFL_DATA``,
            else ``data`` in the current directory.
        target: column(s) of a file to predict; for an .npz file the name of one array, ``y`` by default.
        device_column: column of a file that names the device of each row; for an .npz file the name of an array,
            ``device`` by default and if present.
        drop: columns of a file to leave out.
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
    )
    if is_file_name(source):
        return load_file(Path(source), columns, task=task, test_fraction=test_fraction, test_file=test_file, rng=rng)
    if is_federation_folder(source):
        raise InputError(
            f"data.dataset = {shown(source)} is a folder, which holds no raw inputs: use open_federation for it."
        )
    if source not in REGISTRY:
        raise InputError(
            f"data.dataset = {shown(source)} is neither a known dataset ({', '.join(REGISTRY)}) nor a folder with a "
            f"federation nor a path that ends in {', '.join(FILE_ENDINGS)}.{did_you_mean(source, list(REGISTRY))}"
        )
    _refuse_file_options(source, columns, test_file, task)
    return load_named(source, data_dir, test_fraction, rng)


def _refuse_file_options(source: str, columns: Columns, test_file: str, task: TaskChoice) -> None:
    options: dict[str, object] = {
        "data.target": list(columns.target),
        "data.device_column": columns.device,
        "data.drop": list(columns.drop),
        "data.test_file": test_file,
    }
    for field, value in options.items():
        if value:
            raise InputError(
                f"{field} = {shown(value)} applies to a file, not to data.dataset = {shown(source)}: leave it out."
            )
    if task not in ("auto", "classification"):
        raise InputError(
            f"data.task = {shown(task)} does not fit data.dataset = {shown(source)}, a classification: use 'auto'."
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
    train, test = _read(path, columns)
    if test_file:
        if test is not None:
            raise InputError(
                f"data.test_file = {shown(test_file)} is given although {shown(path)} has its own X_test: remove one of them."
            )
        test = _read_test(Path(test_file), columns)
    if len(train.features) > 1 and not np.ptp(train.features, axis=0).any():
        raise InputError(
            f"every feature of {shown(path)} is constant: give at least one column that differs between rows."
        )
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
        raise InputError(f"data.test_file = {shown(path)} must end in {', '.join(FILE_ENDINGS)}.")
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
