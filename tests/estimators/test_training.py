"""Training on ready arrays."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.config import load_config
from codedfl.data import Dataset
from codedfl.errors import InputError
from codedfl.estimators import CodedRegressor
from codedfl.estimators._training import SCORED_ROWS
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
