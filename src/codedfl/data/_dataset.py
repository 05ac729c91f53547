"""Datasets: raw inputs and targets for training and testing, and target columns as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import listing, shown
from codedfl._validation import require_finite
from codedfl.data._cells import as_float32, is_numeric
from codedfl.data._preprocessing import Preprocessing
from codedfl.errors import InputError
from codedfl.typing import FloatArray, IntArray, row_blocks

Task = Literal["classification", "regression"]
TaskChoice = Literal["auto", "classification", "regression"]

FEW_CLASSES = 10
"""Largest number of different whole numbers in a target that look like classes."""

MAX_CLASSES = 1000
"""A one-hot row has an entry for each class, so a column of free text or of row numbers would exhaust memory."""

MAX_TARGET = 1e15
"""Largest magnitude of a regression target: sums of squares of larger ones overflow float32."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Raw inputs and targets, before feature maps and partitions.

    Args:
        name: name of the dataset in results.
        task: what the targets mean.
        features: raw training inputs, (m, p), float32; float64 if that would lose digits in which rows differ.
        targets: training targets, (m, o), float32; one-hot rows for classification.
        test_features: raw test inputs, with the columns of ``features``.
        test_targets: test targets, with the columns of ``targets``.
        target_names: names of the classes, or of the outputs of a regression.
        feature_names: names of the raw inputs.
        devices: device of each training row, if the data names it.
        preprocessing: how the raw inputs came from the columns of a table; None for data that was numeric from the start.
        remarks: what the user should know about the data, one sentence each.

    Example:
        >>> X, Y = np.zeros((4, 2), np.float32), one_hot(np.array([0, 1, 1, 0]), 2)
        >>> data = Dataset("toy", "classification", X, Y, X, Y, ("no", "yes"), ("a", "b"))
        >>> data
        Dataset('toy', classification, 4 training and 4 test rows of 2 columns, 2 classes)
        >>> data.labels
        array([0, 1, 1, 0])
    """

    name: str
    task: Task
    features: FloatArray
    targets: FloatArray
    test_features: FloatArray
    test_targets: FloatArray
    target_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    devices: tuple[str, ...] | None = None
    preprocessing: Preprocessing | None = None
    remarks: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.task not in ("classification", "regression"):
            raise InputError(f"task = {shown(self.task)} must be 'classification' or 'regression'.")
        _require_table("features", self.features, self.feature_names)
        _require_table("targets", self.targets, self.target_names)
        _require_table("test_features", self.test_features, self.feature_names)
        _require_table("test_targets", self.test_targets, self.target_names)
        require_same_rows("features", self.features, "targets", self.targets)
        require_same_rows("test_features", self.test_features, "test_targets", self.test_targets)
        if self.devices is not None:
            require_same_rows("features", self.features, "devices", self.devices)
        require_targets("targets", self.targets, self.task)
        require_targets("test_targets", self.test_targets, self.task)

    def __repr__(self) -> str:
        rows = f"{len(self.features)} training and {len(self.test_features)} test rows of {len(self.feature_names)} columns"
        what = "classes" if self.task == "classification" else "outputs"
        return f"Dataset({self.name!r}, {self.task}, {rows}, {len(self.target_names)} {what})"

    @property
    def labels(self) -> IntArray:
        """The class of each training row, as an index into ``target_names``."""
        if self.task != "classification":
            raise InputError(f"the dataset {shown(self.name)} is a regression, which has no classes.")
        labels: IntArray = np.argmax(self.targets, axis=1)
        return labels


def one_hot(labels: npt.NDArray[np.integer[Any]], classes: int) -> FloatArray:
    """Return a float32 matrix with a one in column ``labels[i]`` of row i.

    Example:
        >>> one_hot(np.array([1, 0]), 3)
        array([[0., 1., 0.],
               [1., 0., 0.]], dtype=float32)
    """
    matrix = np.zeros((len(labels), classes), dtype=np.float32)
    matrix[np.arange(len(labels)), labels] = 1
    return matrix


def require_matrix(name: str, values: FloatArray) -> None:
    """Refuse anything but a non-empty, finite, two-dimensional array of floats."""
    if values.ndim != 2 or not np.issubdtype(values.dtype, np.floating):
        raise InputError(
            f"{name} has shape {values.shape} and dtype {values.dtype}: give a two-dimensional array of floats."
        )
    if values.size == 0:
        raise InputError(f"{name} has shape {values.shape}: at least one row and one column are needed.")
    require_finite(name, values)


def require_same_rows(
    name: str, values: Sequence[Any] | FloatArray, other: str, others: Sequence[Any] | FloatArray
) -> None:
    """Refuse two collections that describe the same rows but differ in length."""
    if len(values) != len(others):
        raise InputError(f"{name} has {len(values)} rows but {other} has {len(others)}: give one for each row.")


def _require_table(name: str, values: FloatArray, columns: tuple[str, ...]) -> None:
    require_matrix(name, values)
    if values.shape[1] != len(columns):
        raise InputError(f"{name} has {values.shape[1]} columns but {len(columns)} names: give one for each column.")


def require_targets(name: str, values: FloatArray, task: Task) -> None:
    """Refuse classification targets that are not one-hot and regression targets beyond ``MAX_TARGET``."""
    if task == "classification" and values.shape[1] < 2:
        raise InputError(f"{name} has {values.shape[1]} class: classification needs at least 2.")
    for block in row_blocks(*values.shape):
        part = values[block]
        if task == "regression":
            if np.abs(part).max() > MAX_TARGET:
                raise InputError(
                    f"{name} has values beyond {MAX_TARGET:g}, which training cannot square: rescale the target."
                )
            continue
        right = ((part == 0) | (part == 1)).all(axis=1) & (part.sum(axis=1) == 1)
        if not right.all():
            row = block.start + int(np.argmin(right))
            raise InputError(f"row {row} of {name} is not one-hot: put a single 1 in the column of its class.")


@dataclass(frozen=True)
class TargetEncoding:
    """The encoding of target columns as numbers, learnt from the training rows.

    Args:
        task: one-hot classes, or the numbers themselves.
        names: names of the classes, or of the outputs.
    """

    task: Task
    names: tuple[str, ...]

    def encode(self, targets: pd.DataFrame, path: Path) -> FloatArray:
        """Return the (m, o) float32 targets of rows read from ``path``."""
        if self.task == "classification":
            return one_hot(self.class_indices(targets, path), len(self.names))
        columns = [targets[name] for name in targets.columns]
        _require_numeric(columns, path)
        return np.column_stack([as_float32(_where(column, path), column.to_numpy(np.float64)) for column in columns])

    def class_indices(self, targets: pd.DataFrame, path: Path) -> IntArray:
        """Return the class of each row as an index into ``names``."""
        column = targets.iloc[:, 0]
        labels = _class_labels(column, path)
        position = {name: index for index, name in enumerate(self.names)}
        unknown = sorted({label for label in labels if label not in position})
        if unknown:
            raise InputError(
                f"{_where(column, path)} has the class(es) {listing(unknown)}, of which the training rows have none: add "
                "such rows or remove these."
            )
        return np.array([position[label] for label in labels], dtype=np.int64)


def fit_targets(targets: pd.DataFrame, task: TaskChoice, path: Path) -> TargetEncoding:
    """Learn from training rows how to encode targets.

    Numeric columns make a regression, and one column of text, categories or booleans a classification;
    ``task="classification"`` accepts whole numbers too.

    Example:
        >>> fit_targets(pd.DataFrame({"fruit": ["pear", "apple", "pear"]}), "auto", Path("fruit.csv"))
        TargetEncoding(task='classification', names=('apple', 'pear'))
    """
    if task not in ("auto", "classification", "regression"):
        raise InputError(f"data.task = {shown(task)} must be 'auto', 'classification' or 'regression'.")
    columns = [targets[name] for name in targets.columns]
    names = tuple(str(column.name) for column in columns)
    if task == "regression" or (task == "auto" and all(is_numeric(column) for column in columns)):
        _require_numeric(columns, path)
        for column in columns:
            if len(column) > 1 and column.nunique() == 1:
                raise InputError(f"{_where(column, path)} is the same in every row: there is nothing to learn from it.")
        return TargetEncoding("regression", names)
    if len(columns) > 1:
        raise InputError(
            f"data.target names {len(columns)} columns of {shown(path)} ({listing(names)}) to classify by: name a single one."
        )
    labels = set(_class_labels(columns[0], path))
    if not 2 <= len(labels) <= MAX_CLASSES:
        raise InputError(
            f"{_where(columns[0], path)} has {len(labels)} class(es), but a classification needs 2 to {MAX_CLASSES}: name "
            "another column in data.target."
        )
    order = sorted(labels, key=int) if is_numeric(columns[0]) else sorted(labels)
    return TargetEncoding("classification", tuple(order))


def remarks_on_target(targets: pd.DataFrame, task: Task) -> list[str]:
    """Return a remark if a column of numbers, which is predicted by a regression, looks like classes.

    Example:
        >>> remarks_on_target(pd.DataFrame({"ill": [0, 1, 1, 0]}), "regression")[0].split(":")[0]
        "the target 'ill' has only the values 0, 1, which look like classes, but numbers are predicted by a regression"
    """
    if task != "regression":
        return []
    remarks = []
    for name in targets:
        values = np.unique(targets[name].to_numpy(np.float64))
        if len(values) <= min(FEW_CLASSES, len(targets) // 2) and (values == np.rint(values)).all():
            remarks.append(
                f"the target {shown(name)} has only the values {listing(f'{value:.0f}' for value in values)}, which look like "
                "classes, but numbers are predicted by a regression: set data.task = 'classification' to predict classes, or"
                " data.task = 'regression' to confirm."
            )
    return remarks


def _class_labels(column: pd.Series, path: Path) -> list[str]:
    if is_numeric(column):
        values = column.to_numpy(np.float64)
        if not (np.isfinite(values) & (values == np.rint(values))).all():
            raise InputError(
                f"{_where(column, path)} has numbers that are not whole, which cannot be classes: use data.task = 'regression'."
            )
        return [str(int(value)) for value in column]
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    if not is_category and pd.api.types.infer_dtype(column, skipna=True) not in ("string", "boolean"):
        raise InputError(
            f"{_where(column, path)} has dtype {column.dtype}, which cannot be predicted: write it as numbers or text."
        )
    return [str(value) for value in column]


def _require_numeric(columns: list[pd.Series], path: Path) -> None:
    for column in columns:
        if not is_numeric(column):
            raise InputError(
                f"{_where(column, path)} has dtype {column.dtype}, which a regression cannot predict: write it as numbers, or "
                "use data.task = 'classification'."
            )


def _where(column: pd.Series, path: Path) -> str:
    return f"the target {shown(column.name)} of {shown(path)}"
