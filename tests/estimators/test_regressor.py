"""The regressor against centralised least squares."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import polars
import pytest

from codedfl.errors import InputError
from codedfl.estimators import CodedRegressor
from codedfl.models import Predictor
from codedfl.typing import FloatArray
from tests.estimators.problems import EVERYONE_ARRIVES, QUICK, correlated, least_squares, single_precision_bound

X = correlated(150, 6)
NOISE = np.random.default_rng(1).normal(size=(150, 2))
Y = X / X.std(axis=0) @ np.arange(12.0).reshape(6, 2) + 100.0 + NOISE


@pytest.mark.parametrize("targets", [Y[:, 0], Y[:, :1], Y])
def test_exact_statistics_give_least_squares(targets: FloatArray) -> None:
    model = CodedRegressor("fed3r", random_state=0).fit(X, targets)
    predicted = model.predict(X)
    assert predicted.shape == targets.shape
    two_dimensional = targets.reshape(len(X), -1)
    error = np.linalg.norm(predicted.reshape(len(X), -1) - least_squares(X, two_dimensional))
    assert error <= single_precision_bound(X, two_dimensional)


@pytest.mark.parametrize("standardize", [True, False])
def test_coefficients_are_those_of_the_raw_columns(standardize: bool) -> None:
    one = CodedRegressor(**QUICK, standardize=standardize).fit(X, Y[:, 0])
    assert one.coef_.shape == (6,)
    np.testing.assert_allclose(X @ one.coef_ + one.intercept_, one.predict(X), rtol=1e-12)
    several = CodedRegressor(**QUICK, standardize=standardize).fit(X, Y)
    assert (several.coef_.shape, np.shape(several.intercept_)) == ((2, 6), (2,))
    np.testing.assert_allclose(X @ several.coef_.T + several.intercept_, several.predict(X), rtol=1e-12)


def test_curvature_coded_learning_converges_to_least_squares() -> None:
    r"""Iterate ``k`` weighs ``k^4`` in the average, and on well-conditioned data the errors of iterates shrink geometrically.

    The average of ``K`` iterates then errs by ``1 / K^5`` and its loss by ``1 / K^10``, so twice the rounds divide it by
    ``2^10``, and by ``2^9`` at least when the sums that stand for these integrals are short.
    """
    inputs = np.random.default_rng(0).normal(size=(150, 6))
    model = CodedRegressor("ccfl", fleet=EVERYONE_ARRIVES, devices=5, rounds=80, random_state=0)
    history = model.fit(inputs, inputs @ np.arange(12.0).reshape(6, 2) + NOISE).history_
    assert (history["mean_arrivals"].iloc[1:] == 5).all()
    excess = history.set_index("round")["excess_loss"]
    assert excess[80] < 2.0**-9 * excess[40]


def test_the_curve_is_that_of_the_training_rows() -> None:
    model = CodedRegressor(**QUICK).fit(X, Y)
    last = model.history_.iloc[-1]
    predicted = model.predict(X)
    halved = 0.5 / len(X)
    assert last["training_loss"] == pytest.approx(halved * np.sum((predicted - Y) ** 2), rel=1e-5)
    assert last["excess_loss"] == pytest.approx(halved * np.sum((predicted - least_squares(X, Y)) ** 2), rel=1e-3)
    assert last["training_score"] == pytest.approx(model.score(X, Y), abs=1e-6)
    assert not [name for name in model.history_ if "test" in str(name)]
    assert (last["round"], last["simulated_time_s"]) == (model.n_iter_, model.simulated_time_s_)
    assert model.charged_time_s_ > model.simulated_time_s_ > 0


def test_single_precision_does_not_cost_the_digits_in_which_rows_differ() -> None:
    rng = np.random.default_rng(0)
    seconds = rng.uniform(0, 100, size=(80, 1))
    stamps, target = 1.7e9 + seconds, 1e6 + 0.01 * seconds[:, 0]
    assert np.unique(stamps.astype(np.float32)).size <= 2
    model = CodedRegressor("fed3r", random_state=0).fit(stamps, target)
    assert model.score(stamps, target) > 1 - 1e-9


def test_a_bound_keeps_targets_from_being_centred() -> None:
    """With an epsilon, nothing about the targets may come from the pooled rows."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2000, 3))
    target = np.clip(inputs @ [0.3, 0.0, -0.2] + 0.1 * rng.normal(size=2000), -1, 1)
    private = CodedRegressor(epsilon=4.0, label_bound=1.0, threat_model="sums-only", random_state=0)
    moved = private.fit(inputs, target).score(inputs, target)
    assert moved > 0.5
    assert (private.scheme_, private.privacy_["covers"]) == ("dp-gd", "everything")
    assert 0 < private.privacy_["epsilon"] <= 4.0
    far = private.fit(inputs, target + 1000.0)
    assert np.abs(far.predict(inputs)).max() < 10  # targets were clipped to 1, not shifted
    with pytest.raises(InputError, match=r"^label_bound = 0 leaves the targets .* unbounded"):
        CodedRegressor(epsilon=4.0).fit(inputs, target)


def test_random_fourier_features() -> None:
    rng = np.random.default_rng(0)
    inputs = rng.uniform(-2, 2, size=(300, 2))
    target = np.sin(2 * inputs[:, 0]) * inputs[:, 1] + 7.0
    linear = CodedRegressor("fed3r", random_state=0).fit(inputs, target)
    mapped = CodedRegressor("fed3r", features="rff", dimension=80, random_state=0).fit(inputs, target)
    assert mapped.coef_.shape == (80,)
    assert mapped.n_features_in_ == 2
    assert linear.score(inputs, target) < 0.5 < 0.95 < mapped.score(inputs, target)


@pytest.mark.parametrize("features", ["none", "rff"])
@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_the_saved_model_is_the_estimator(tmp_path: Path, features: Literal["none", "rff"], offset: float) -> None:
    """Both compute in double precision, by sums of the same terms in another order.

    To first order, the two differ by twice the unit roundoff per operation, times the sum of the sizes of all terms. For raw
    columns ten operations lead to a term: two divisions for a coefficient, five for the intercept, three for the sum.
    """
    rng = np.random.default_rng(0)
    inputs = np.column_stack([1.7e9 + 60 * np.arange(200), 1.7e18 + 1e9 * rng.uniform(0, 100, 200)])
    target = 0.01 * np.arange(200) + offset
    model = CodedRegressor("fed3r", features=features, random_state=0).fit(inputs, target)
    expected = model.predict(inputs)
    model.predictor().save(tmp_path / "model.safetensors")
    found = Predictor.load(tmp_path / "model.safetensors").predict(inputs)
    assert found.shape == expected.shape == (200,)
    terms = np.abs(inputs) if features == "none" else np.ones((1, 100))
    sizes = float((terms @ np.abs(model.coef_)).max() + abs(model.intercept_))
    operations = 10 if features == "none" else 100 + 2
    assert np.abs(found - expected).max() <= operations * np.finfo(np.float64).eps * sizes
    assert np.abs(found - expected).max() < 1e-3 * np.ptp(target)


def test_a_bound_without_epsilon_is_refused() -> None:
    with pytest.raises(InputError, match=r"^label_bound = 1\.0 clips .* there is none: give epsilon too, or leave"):
        CodedRegressor("fed3r", label_bound=1.0).fit(X, Y)


def test_a_centre_without_a_bound_is_refused() -> None:
    with pytest.raises(InputError, match=r"^label_center = 3\.0 comes before a bound, but there is none"):
        CodedRegressor(epsilon=2.0, label_center=3.0).fit(X, Y)


def test_a_centre_is_part_of_predictions() -> None:
    given: dict[str, Any] = {"epsilon": 8.0, "label_bound": 3.0, "random_state": 0}
    plain = CodedRegressor(**given).fit(X, Y[:, 0])
    moved = CodedRegressor(**given, label_center=64.0).fit(X, Y[:, 0] + 64)
    for found in (moved.predict(X), moved.predictor().predict(X)):
        assert np.allclose(found, plain.predict(X) + 64, rtol=0, atol=1e-3)


def test_targets_keep_their_names() -> None:
    several = pd.DataFrame(Y, columns=["sum", "rest"])
    for targets, names in (
        (several, ("sum", "rest")),
        (several["sum"], ("sum",)),
        (polars.Series("p", Y[:, 0]), ("p",)),
    ):
        predictor = CodedRegressor("fed3r", random_state=0).fit(X, targets).predictor()
        assert predictor.target_names == predictor.target_columns == names
    unnamed = CodedRegressor("fed3r", random_state=0).fit(X, Y).predictor()
    assert (unnamed.target_names, unnamed.target_columns) == (("y0", "y1"), ())
