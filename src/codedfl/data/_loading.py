"""Load a dataset by name, or from a user's own .csv, .parquet or .npz file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from codedfl._messages import did_you_mean, shown
from codedfl.data._dataset import Dataset, Task
from codedfl.data._memmap import is_federation_folder
from codedfl.data._own_files import FILE_ENDINGS, is_file_name, load_file
from codedfl.data._raw_tables import Columns
from codedfl.data._registry import REGISTRY, dataset_names, load_named
from codedfl.data._targets import TaskChoice
from codedfl.errors import InputError
from codedfl.plugins import find_plugin


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
