"""Datasets: raw inputs and targets for training and testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from codedfl._messages import shown
from codedfl._validation import require_finite
from codedfl.data._preprocessing import Preprocessing
from codedfl.errors import InputError
from codedfl.typing import FloatArray, IntArray, row_blocks

Task = Literal["classification", "regression"]

MAX_TARGET = 1e15
"""Largest magnitude of a regression target: sums of squares of larger ones overflow float32."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Raw inputs and targets, before feature maps and partitions.

    Args:
        name: name of the dataset in results.
        task: what the targets mean.
        features: raw training inputs, (m, p), float32.
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
