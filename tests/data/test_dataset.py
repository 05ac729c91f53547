from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.data._dataset import Dataset, one_hot
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
