from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from codedfl.data import Dataset, TargetEncoding, TaskChoice, fit_targets, one_hot
from codedfl.data._dataset import MAX_CLASSES, remarks_on_target
from codedfl.errors import InputError


def toy() -> Dataset:
    X = np.ones((4, 2), dtype=np.float32)
    Y = one_hot(np.array([0, 1, 2, 1]), 3)
    return Dataset("toy", "classification", X, Y, X[:2], Y[:2], ("a", "b", "c"), ("x", "y"), ("d", "d", "e", "e"))


def test_labels_are_the_classes_of_the_training_rows() -> None:
    assert toy().labels.tolist() == [0, 1, 2, 1]
    with pytest.raises(InputError, match="'toy' is a regression, which has no classes"):
        _ = replace(toy(), task="regression").labels


NAN = np.full((4, 2), np.nan, dtype=np.float32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task": "ranking"}, "task = 'ranking' must be"),
        ({"features": np.ones(4, np.float32)}, r"features has shape \(4,\)"),
        ({"features": np.ones((4, 2), np.int64)}, "dtype int64: give a two-dimensional array of floats"),
        ({"features": NAN}, r"features has 8 value\(s\) that are NaN"),
        ({"features": np.ones((4, 3), np.float32)}, "features has 3 columns but 2 names"),
        ({"features": np.ones((3, 2), np.float32)}, "features has 3 rows but targets has 4"),
        ({"test_features": np.ones((0, 2), np.float32)}, r"test_features has shape \(0, 2\): at least one row"),
        ({"test_features": np.ones((3, 2), np.float32)}, "test_features has 3 rows but test_targets has 2"),
        ({"targets": np.full((4, 3), 1 / 3, np.float32)}, "row 0 of targets is not one-hot"),
        ({"test_targets": np.zeros((2, 3), np.float32)}, "row 0 of test_targets is not one-hot"),
        ({"target_names": ("a", "b")}, "targets has 3 columns but 2 names"),
        ({"devices": ("d",)}, "features has 4 rows but devices has 1"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replace(toy(), **change)


def test_a_single_class_is_refused() -> None:
    X = np.ones((2, 1), dtype=np.float32)
    with pytest.raises(InputError, match="targets has 1 class: classification needs at least 2"):
        Dataset("toy", "classification", X, X, X, X, ("a",), ("x",))


PATH = Path("my.csv")


def fit(task: TaskChoice = "auto", **columns: Any) -> TargetEncoding:
    return fit_targets(pd.DataFrame(columns), task, PATH)


def test_numbers_make_a_regression_with_an_output_for_each_column() -> None:
    frame = pd.DataFrame({"u": [1, 2], "v": [0.5, 1.5]})
    encoding = fit_targets(frame, "auto", PATH)
    assert encoding == TargetEncoding("regression", ("u", "v"))
    np.testing.assert_array_equal(encoding.encode(frame, PATH), np.array([[1, 0.5], [2, 1.5]], dtype=np.float32))


@pytest.mark.parametrize(
    ("values", "task", "names"),
    [
        (["b", "a", "b"], "auto", ("a", "b")),
        ([True, False, True], "auto", ("False", "True")),
        (pd.Categorical([10, 2, 10]), "auto", ("10", "2")),
        ([10, 2, 10], "classification", ("2", "10")),
        ([10.0, -2.0, 10.0], "classification", ("-2", "10")),
        (pd.array([10, 2, 10], dtype="Int64"), "classification", ("2", "10")),
    ],
)
def test_classes_are_sorted_by_name_and_numbers_by_size(values: Any, task: TaskChoice, names: tuple[str, ...]) -> None:
    encoding = fit(task, y=values)
    assert encoding == TargetEncoding("classification", names)
    encoded = encoding.encode(pd.DataFrame({"y": values}), PATH)
    assert [encoding.names[index] for index in encoded.argmax(axis=1)] == [
        str(int(value) if isinstance(value, float) else value) for value in values
    ]


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("regression", {"y": ["a", "b"]}, r"target 'y' of 'my\.csv' has dtype .*, which a regression cannot predict"),
        ("regression", {"y": [True, False]}, "has dtype bool, which a regression cannot predict"),
        ("auto", {"y": ["a", "b"], "z": [1, 2]}, r"names 2 columns of 'my\.csv' \(y, z\) to classify by"),
        ("classification", {"y": [1, 2], "z": [1, 2]}, "names 2 columns"),
        ("classification", {"y": [1.5, 2]}, "has numbers that are not whole"),
        ("classification", {"y": [np.inf, 2]}, "has numbers that are not whole"),
        ("auto", {"y": ["a", "a"]}, r"has 1 class\(es\), but a classification needs 2 to 1000"),
        ("classification", {"y": range(MAX_CLASSES + 1)}, r"has 1001 class\(es\)"),
        ("auto", {"y": pd.to_datetime(["2020-01-01", "2021-01-01"])}, "has dtype datetime64.* cannot be predicted"),
        ("ranking", {"y": [1]}, r"data\.task = 'ranking' must be"),
    ],
)
def test_targets_that_do_not_fit_are_refused(task: Any, columns: dict[str, Any], message: str) -> None:
    assert task in get_args(TaskChoice) or task == "ranking"
    with pytest.raises(InputError, match=message):
        fit(task, **columns)


def test_an_unknown_class_in_test_rows_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"target 'y' of 'test\.csv' has the class\(es\) c, of which the training rows"
    ):
        fit(y=["a", "b"]).encode(pd.DataFrame({"y": ["a", "c"]}), Path("test.csv"))


def test_text_in_the_test_rows_of_a_regression_is_refused() -> None:
    with pytest.raises(InputError, match=r"target 'y' of 'test\.csv' has dtype"):
        fit(y=[1, 2]).encode(pd.DataFrame({"y": ["a", "c"]}), Path("test.csv"))


@pytest.mark.parametrize(
    ("values", "looks_like_classes"),
    [
        ([0, 1] * 10, True),
        ([0.0, 1.0] * 10, True),
        ([1, 2, 3, 4, 5] * 4, True),
        ([0, 1], False),
        ([0.5, 1] * 10, False),
        (list(range(11)) * 3, False),
    ],
)
def test_numbers_that_look_like_classes_are_pointed_out(values: list[float], looks_like_classes: bool) -> None:
    found = remarks_on_target(pd.DataFrame({"y": values}), "regression")
    assert len(found) == looks_like_classes
    assert not found or "set data.task = 'classification' to predict classes" in found[0]
    assert remarks_on_target(pd.DataFrame({"y": values}), "classification") == []
