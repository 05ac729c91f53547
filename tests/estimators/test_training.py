from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from codedfl.config import load_config
from codedfl.data import Dataset
from codedfl.errors import InputError
from codedfl.estimators import CodedRegressor
from codedfl.estimators._training import SCORED_ROWS, column_names, device_names, without_column
from codedfl.experiment import build_experiment
from tests.estimators.problems import QUICK


def test_an_experiment_takes_a_ready_dataset_in_place_of_the_named_one() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(12, 3)).astype(np.float32), rng.normal(size=(12, 2)).astype(np.float32)
    sites = tuple("aabbccaabbcc")
    dataset = Dataset("ready", "regression", X, Y, X[:5], Y[:5], ("u", "v"), ("p", "q", "r"), sites)
    config = load_config(overrides={"features.map": "none", "features.scaling": "none"})
    federation = build_experiment(config, dataset=dataset).setting.federation
    assert federation.device_names == ("a", "b", "c")
    assert (federation.device(1)[0] == X[[2, 3, 8, 9]]).all()
    assert (federation.test_labels == Y[:5]).all()


def test_many_rows_are_scored_on_a_part_of_them() -> None:
    """The standard error of R2 from ``n`` rows is about ``2 R (1 - R2) / sqrt(n)``."""
    rng = np.random.default_rng(0)
    X = np.sort(rng.normal(size=(3 * SCORED_ROWS, 1)), axis=0)  # sorted: the first rows would be a poor sample
    y = X[:, 0] + rng.normal(size=len(X))
    model = CodedRegressor("fed3r", random_state=0).fit(X, y)
    r2, error = model.score(X, y), 2 * np.sqrt(0.5) * 0.5 / np.sqrt(SCORED_ROWS)
    assert model.history_["training_score"].iloc[-1] == pytest.approx(r2, abs=4 * error)
    assert abs(model.score(X[:SCORED_ROWS], y[:SCORED_ROWS]) - r2) > 8 * error


def test_numbers_beyond_single_precision() -> None:
    X = np.random.default_rng(0).normal(size=(40, 2))
    y = X @ [1.0, 2.0]
    small = CodedRegressor("fed3r", random_state=0).fit(X, y)
    large = CodedRegressor("fed3r", random_state=0).fit(1e60 * X, 1e80 * y)
    np.testing.assert_allclose(large.coef_, 1e20 * small.coef_, rtol=1e-5)
    with pytest.raises(InputError, match="X has values that are too large for single precision"):
        CodedRegressor(**QUICK, standardize=False).fit(1e60 * X, y)


def test_constant_columns_and_targets_are_harmless() -> None:
    X = np.column_stack([np.full(30, 1e9), np.random.default_rng(0).normal(size=30)])
    model = CodedRegressor(**QUICK).fit(X, np.full(30, 5.0))
    np.testing.assert_allclose(model.predict(X), 5.0)


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
