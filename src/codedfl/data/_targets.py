"""Target columns as the numbers that a linear model fits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from codedfl._messages import listing, shown
from codedfl.data._dataset import Task, one_hot
from codedfl.data._tabular import as_float32, is_numeric
from codedfl.errors import InputError
from codedfl.typing import FloatArray, IntArray

TaskChoice = Literal["auto", "classification", "regression"]

MAX_CLASSES = 1000
"""A one-hot row has an entry for each class, so a column of free text or of row numbers would exhaust memory."""


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
