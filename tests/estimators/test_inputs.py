"""Which row belongs to which device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from codedfl.errors import InputError
from codedfl.estimators._inputs import column_names, device_names, without_column


@pytest.mark.parametrize(
    "groups",
    [
        ["b", "a", "b"],
        np.array(["b", "a", "b"]),
        np.array([["b"], ["a"], ["b"]]),
        pd.Series(["b", "a", "b"], index=[7, 8, 9]),
        pd.Series(["b", "a", "b"], dtype="category"),
        pl.Series(["b", "a", "b"]),
    ],
)
def test_any_labels_name_devices(groups: Any) -> None:
    assert device_names(groups, 3) == ("b", "a", "b")


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ([1, 2], r"groups has shape \(2,\) for 3 rows"),
        (np.zeros((3, 2)), r"groups has shape \(3, 2\)"),
        (["a", None, "b"], "no device for 1 of 3 rows"),
        ([1.0, np.nan, np.nan], "no device for 2 of 3 rows"),
    ],
)
def test_unclear_devices_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        device_names(groups, 3)


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame])
def test_the_column_of_devices_is_no_input(frame: Any) -> None:
    rest, devices = without_column(frame({"a": [1, 2], "site": ["x", "y"], "b": [3, 4]}), "site", required=True)
    assert (list(rest.columns), list(devices)) == (["a", "b"], ["x", "y"])
    same, none = without_column(rest, "site")
    assert same is rest
    assert none is None


def test_a_column_of_almost_that_name_is_suggested() -> None:
    with pytest.raises(InputError, match=r"name one of its columns\. Did you mean 'site'\?$"):
        without_column(pd.DataFrame({3: [1, 2], "site": ["x", "y"]}), "Site", required=True)


def test_only_targets_with_names_of_their_own_have_names() -> None:
    values = np.zeros((2, 2))
    for targets, names in (
        (pd.DataFrame(values, columns=["a", "b"]), ("a", "b")),
        (pl.DataFrame(values, schema=["a", "b"]), ("a", "b")),
        (pd.Series([1.0], name="a"), ("a",)),
        (pl.Series("a", [1.0]), ("a",)),
        (pd.DataFrame(values, columns=["a", "a"]), ()),
        (pd.DataFrame(values), ()),
        (pd.Series([1.0]), ()),
        (pl.Series([1.0]), ()),
        ([1.0, 2.0], ()),
    ):
        assert column_names(targets) == names
