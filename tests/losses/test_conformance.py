"""Every loss passes the same suite, and the suite catches losses that are broken on purpose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from codedfl.identity import identity
from codedfl.losses import LOSSES, SOFTMAX, SQUARE, Loss, Softmax, Square
from codedfl.typing import FloatArray
from tests.losses import suite
from tests.losses.suite import CHECKS, Check


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_every_loss_conforms(loss: Loss, check: Check) -> None:
    check(loss)


@dataclass(frozen=True)
class ValueTwice(Square):
    """Forgets the half."""

    def value(self, outputs: FloatArray, labels: FloatArray) -> float:
        return 2 * super().value(outputs, labels)


@dataclass(frozen=True)
class ValueOfTheMean(Softmax):
    """Averages over rows."""

    def value(self, outputs: FloatArray, labels: FloatArray) -> float:
        return super().value(outputs, labels) / len(outputs)


@dataclass(frozen=True)
class ResidualOfSomethingElse(Softmax):
    """Logistic outputs of every class by itself."""

    def predictions(self, outputs: FloatArray) -> FloatArray:
        logistic: FloatArray = 1 / (1 + np.exp(-outputs))
        return logistic


@dataclass(frozen=True)
class ResidualOfTheOtherSign(Square):
    """Label minus prediction."""

    def residuals(self, outputs: FloatArray, labels: FloatArray) -> FloatArray:
        return -super().residuals(outputs, labels)


@dataclass(frozen=True)
class CurvatureTooSmall(Softmax):
    """That of one logit."""

    curvature: ClassVar[float] = 0.25


@dataclass(frozen=True)
class CurvatureTooLarge(Softmax):
    """That of least squares."""

    curvature: ClassVar[float] = 1.0


@dataclass(frozen=True)
class WeightsOverAllOutputs(Softmax):
    """A trace over K directions, of which one changes nothing."""

    def curvature_weights(self, outputs: FloatArray) -> FloatArray:
        weights: FloatArray = super().curvature_weights(outputs) * (outputs.shape[-1] - 1) / outputs.shape[-1]
        return weights


@dataclass(frozen=True)
class SumsOverTheFirstAxis(Softmax):
    """Right for one run, wrong for several side by side."""

    def predictions(self, outputs: FloatArray) -> FloatArray:
        exponentials = np.exp(outputs - outputs.max(axis=-1, keepdims=True))
        shares: FloatArray = exponentials / exponentials.sum(axis=1, keepdims=True)
        return shares


@dataclass(frozen=True)
class WrongLink(Softmax):
    """The inverse of a logistic function."""

    def link(self, means: FloatArray) -> FloatArray:
        odds: FloatArray = np.log(means / (1 - means))
        return odds


@dataclass(frozen=True)
class ForgetsSinglePrecision(Square):
    """Computes residuals in float64."""

    def residuals(self, outputs: FloatArray, labels: FloatArray) -> FloatArray:
        return super().residuals(outputs.astype(np.float64), labels)


@dataclass(frozen=True)
class SpoilsWhatItReads(Square):
    """Overwrites the first run that shares rows with others."""

    def residuals(self, outputs: FloatArray, labels: FloatArray) -> FloatArray:
        residuals = super().residuals(outputs, labels)
        if residuals.ndim == 3:
            residuals[:, 0] *= 0.5
        return residuals


@dataclass(frozen=True)
class ClaimsAClosedForm(Softmax):
    """Says that a Gram matrix is enough."""

    quadratic: ClassVar[bool] = True


BROKEN: dict[Loss, Check] = {
    ValueTwice(): suite.the_gradient_is_that_of_the_value,
    ValueOfTheMean(): suite.the_value_adds_up,
    ResidualOfSomethingElse(): suite.the_residual_is_the_prediction_minus_the_label,
    ResidualOfTheOtherSign(): suite.the_residual_is_the_prediction_minus_the_label,
    CurvatureTooSmall(): suite.no_second_derivative_exceeds_the_curvature_and_one_reaches_it,
    CurvatureTooLarge(): suite.no_second_derivative_exceeds_the_curvature_and_one_reaches_it,
    WeightsOverAllOutputs(): suite.curvature_weights_are_traces,
    SumsOverTheFirstAxis(): suite.residuals_in_place_equal_those_out_of_place,
    WrongLink(): suite.predictions_lie_in_the_range_of_the_link,
    ForgetsSinglePrecision(): suite.single_precision_stays,
    SpoilsWhatItReads(): suite.residuals_in_place_equal_those_out_of_place,
    ClaimsAClosedForm(): suite.the_closed_form_is_stationary,
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda loss: type(loss).__name__)
def test_the_suite_catches_a_broken_loss(broken: Loss) -> None:
    with pytest.raises(AssertionError):
        BROKEN[broken](broken)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_every_check_catches_something(check: Check) -> None:
    """A check that no broken loss fails would say nothing."""

    def fails(broken: Loss) -> bool:
        try:
            check(broken)
        except AssertionError:
            return True
        return False

    assert any(fails(broken) for broken in BROKEN)


def test_losses_are_told_apart_by_their_content() -> None:
    assert identity(Softmax()) == identity(SOFTMAX)
    assert identity(Square()) == identity(SQUARE) != identity(SOFTMAX)
    assert Softmax() == SOFTMAX
    assert len({SQUARE, Square(), SOFTMAX, Softmax()}) == 2


@pytest.mark.parametrize("strength", [0.1, 10.0])
def test_the_optimum_of_logistic_regression_is_stationary(strength: float) -> None:
    """Scikit-learn minimises the loss plus ``||W||^2 / (2 C)``, until no entry of the mean gradient exceeds its tolerance."""
    X, y = load_iris(return_X_y=True)
    tolerance = 1e-8
    fitted = LogisticRegression(C=strength, fit_intercept=False, tol=tolerance, solver="newton-cholesky").fit(X, y)
    W = fitted.coef_.T
    gradient = SOFTMAX.gradient(X, np.eye(3)[y], W) + W / strength
    assert np.abs(gradient).max() <= tolerance * len(X)
    np.testing.assert_allclose(SOFTMAX.predictions(X @ W), fitted.predict_proba(X), atol=1e-12)


def test_residuals_of_least_squares_need_no_memory() -> None:
    outputs = np.ones((3, 2))
    assert SQUARE.residuals(outputs, np.zeros(2)) is outputs


def test_balanced_classes_have_the_curvature_of_their_number() -> None:
    for classes in (2, 3, 10):
        outputs = SOFTMAX.link(np.full(classes, 1 / classes))
        assert SOFTMAX.curvature_weights(outputs) == pytest.approx(1 / classes)
    never = SOFTMAX.link(np.array([0.5, 0.5, 0.0]))
    assert SOFTMAX.curvature_weights(never) == pytest.approx(0.25), "a class that never occurs"
