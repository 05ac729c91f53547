from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

from codedfl.data._targets import MAX_CLASSES, TargetEncoding, TaskChoice, fit_targets
from codedfl.errors import InputError

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
