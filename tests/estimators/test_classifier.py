"""The classifier: least squares on one-hot classes, probabilities, privacy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.special
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import log_loss

from codedfl.errors import InputError
from codedfl.estimators import CodedClassifier
from codedfl.models import Predictor, evaluate_file
from codedfl.typing import FloatArray
from tests.estimators.problems import QUICK, correlated, least_squares, single_precision_bound

X = correlated(150, 6)
Z = (X - X.mean(axis=0)) / X.std(axis=0)
NOISY = Z + 0.7 * np.random.default_rng(2).normal(size=Z.shape)
TWO = (NOISY[:, 0] > 0).astype(int)
FOUR = NOISY[:, :4].argmax(axis=1)


SMALL = {"learning_rate.scale": 0.5, "coding.coded_samples": 50}


def one_hot(labels: Any) -> FloatArray:
    return np.asarray(np.eye(labels.max() + 1)[labels])


def test_exact_statistics_give_the_largest_output_of_least_squares() -> None:
    model = CodedClassifier("fed3r", random_state=0).fit(X, FOUR)
    outputs, bound = least_squares(X, one_hot(FOUR)), single_precision_bound(X, one_hot(FOUR))
    assert np.linalg.norm(model.decision_function(X) - outputs) <= bound
    best, second = np.sort(outputs, axis=1)[:, :-3:-1].T
    clear = best - second > 2 * bound
    assert clear.sum() > 0.9 * len(X)
    assert (model.predict(X)[clear] == outputs.argmax(axis=1)[clear]).all()


def test_two_classes_have_one_output() -> None:
    model = CodedClassifier("fed3r", random_state=0).fit(X, TWO)
    assert (model.coef_.shape, model.intercept_.shape) == ((1, 6), (1,))
    outputs = least_squares(X, one_hot(TWO))
    error = np.linalg.norm(model.decision_function(X) - (outputs[:, 1] - outputs[:, 0]))
    assert error <= np.sqrt(2) * single_precision_bound(X, one_hot(TWO))
    assert (model.predict(X) == (model.decision_function(X) > 0)).all()


@pytest.mark.parametrize("labels", [TWO, FOUR])
def test_coefficients_are_those_of_the_raw_columns(labels: Any) -> None:
    model = CodedClassifier(**QUICK).fit(X, labels)
    outputs = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(outputs.squeeze(), model.decision_function(X), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    "names",
    [np.array(["no", "yes"]), np.array([7, -1]), np.array([True, False]), np.array([0.0, 3.0]), np.array([0, 9], "u1")],
)
def test_classes_come_back_as_they_were(tmp_path: Path, names: Any) -> None:
    model = CodedClassifier(**QUICK).fit(X, names[TWO])
    assert model.classes_.dtype == names.dtype
    assert (model.classes_ == np.unique(names)).all()
    assert set(model.predict(X)) <= set(names)
    assert model.score(X, names[TWO]) > 0.7
    model.predictor().save(tmp_path / "model.safetensors")
    predicted = Predictor.load(tmp_path / "model.safetensors").predict(X)
    assert predicted.dtype == names.dtype
    assert (predicted == model.predict(X)).all()


@pytest.mark.parametrize(
    "names", [np.array(["no", "yes"]), np.array([7, -1]), np.array([True, False]), np.array([0.0, 3.0])]
)
def test_a_saved_model_finds_target_and_devices_in_a_table(tmp_path: Path, names: Any) -> None:
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(site=np.where(np.arange(len(X)) % 2, "x", "y"))
    truth = pd.Series(names[TWO], name="truth")
    model = CodedClassifier("fed3r", device_column="site", random_state=0).fit(frame, truth)
    frame.assign(truth=truth).to_csv(tmp_path / "rows.csv", index=False)
    found = evaluate_file(model.predictor(), tmp_path / "rows.csv")
    assert found.scores["accuracy"] == model.score(frame, truth)
    assert [part.name for part in found.devices] == ["y", "x"]


@pytest.mark.parametrize("labels", [TWO, FOUR])
def test_probabilities_agree_with_outputs_where_classes_are_about_as_likely(labels: Any) -> None:
    r"""The derivative of ``softmax(k z)`` at ``z = 1 / k`` is the identity up to its mean, and its second one at most ``k``."""
    model = CodedClassifier("fed3r", random_state=0).fit(X, labels)
    classes = len(model.classes_)
    start, towards = X.mean(axis=0), X[0]
    coefficients = np.linalg.lstsq(np.column_stack([X, np.ones(len(X))]), one_hot(labels), rcond=None)[0]
    outputs = np.vstack([start, towards]) @ coefficients[:-1] + coefficients[-1]
    probabilities = model.predict_proba(np.vstack([start, towards]))
    np.testing.assert_allclose(probabilities, scipy.special.softmax(classes * outputs, axis=1), rtol=1e-4)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, rtol=1e-12)
    distance = np.abs(outputs - 1 / classes).max(axis=1)
    assert (np.abs(probabilities - outputs).max(axis=1) <= classes**2 * distance**2).all()
    assert log_loss(labels, model.predict_proba(X)) < np.log(classes)


@pytest.fixture(scope="module")
def digits() -> tuple[FloatArray, Any]:
    inputs, labels = load_digits(return_X_y=True)
    return inputs, labels


def test_epsilon_covers_everything(digits: tuple[FloatArray, Any]) -> None:
    model = CodedClassifier(epsilon=2.0, random_state=0).fit(*digits)
    assert (model.scheme_, model.privacy_["covers"]) == ("dp-gd", "everything")
    assert 0 < model.privacy_["epsilon"] <= 2.0
    assert model.privacy_["threat_model"] == "each message"
    assert any("means and scales" in clause for clause in model.privacy_["outside"])
    assert model.score(*digits) > 0.7  # ten classes
    # It is a logistic regression: outputs are logits, which have no square loss.
    assert not {"training_loss", "excess_loss"} & set(model.history_)
    outputs = model.decision_function(digits[0])
    np.testing.assert_allclose(model.predict_proba(digits[0]), scipy.special.softmax(outputs, axis=1), rtol=1e-12)
    assert log_loss(digits[1], model.predict_proba(digits[0])) < np.log(10)


def test_only_what_is_fitted_to_pooled_rows_is_outside(digits: tuple[FloatArray, Any]) -> None:
    given: dict[str, Any] = {"features": "rff", "gamma": 1e-3, "standardize": False}
    outside = CodedClassifier(epsilon=2.0, random_state=0, **given).fit(*digits).privacy_["outside"]
    assert not [clause for clause in outside if "pooled" in clause]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("scheme", "what"), [("fedavg", "nothing"), pytest.param("scfl", "its upload alone", marks=pytest.mark.slow)]
)
def test_a_scheme_that_does_not_keep_epsilon_says_so(scheme: str, what: str) -> None:
    model = CodedClassifier(scheme, epsilon=2.0, rounds=2, devices=2, random_state=0, config=SMALL)
    with pytest.warns(UserWarning, match=f"epsilon = 2 of .* covers {what}"):
        model.fit(X, TWO)


def test_divergence_is_a_warning() -> None:
    model = CodedClassifier("fedavg", **QUICK, config={"learning_rate.scale": 1e4})
    with pytest.warns(ConvergenceWarning, match="FedAvg diverged"):
        model.fit(X, TWO)


def test_without_epsilon_nothing_is_promised() -> None:
    privacy = CodedClassifier(**QUICK).fit(X, TWO).privacy_
    assert (privacy["epsilon"], privacy["covers"]) == (np.inf, "nothing")


def test_one_class_is_refused() -> None:
    with pytest.raises(InputError, match="a single class, 3: at least 2 classes are needed"):
        CodedClassifier(**QUICK).fit(X, np.full(len(X), 3))
