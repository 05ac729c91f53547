"""What every loss has to satisfy, as functions: a check raises an `AssertionError` if a loss does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.metrics import log_loss, mean_squared_error

from codedfl.coding import Rows, compute_gram
from codedfl.losses import Loss
from codedfl.typing import FloatArray

Check = Callable[[Loss], None]

CLASSES = 4
ROUNDOFF = float(np.finfo(np.float64).eps)


def problem(loss: Loss, rows: int = 40, columns: int = 5) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return features, labels and a model; labels of a loss for classes alone are one-hot."""
    rng = np.random.default_rng(7)
    X, W = rng.standard_normal((rows, columns)), rng.standard_normal((columns, CLASSES))
    one_hot = np.eye(CLASSES)[rng.integers(CLASSES, size=rows)]
    return X, rng.standard_normal((rows, CLASSES)) if "regression" in loss.tasks else one_hot, W


def places(count: int = 200) -> FloatArray:
    """Return outputs of all sizes, among them the two that are equally likely with all others far below."""
    rng = np.random.default_rng(3)
    spread = rng.standard_normal((count, CLASSES)) * rng.exponential(2.0, (count, 1))
    return np.vstack([spread, np.zeros(CLASSES), [0.0, 0.0, -40.0, -40.0]])


def second_derivatives(loss: Loss, outputs: FloatArray, step: float = 1e-5) -> FloatArray:
    """Return ``V``, (o, o), from central differences of the residuals."""
    ahead, behind = (
        loss.residuals(outputs + sign * step * np.eye(len(outputs)), np.zeros(len(outputs))) for sign in (1.0, -1.0)
    )
    V: FloatArray = (ahead - behind) / (2 * step)
    return V


def the_gradient_is_that_of_the_value(loss: Loss) -> None:
    """Central differences along random directions, with the bound that the step and the rounding of the value leave."""
    X, Y, W = problem(loss)
    rng = np.random.default_rng(1)
    gradient = loss.gradient(X, Y, W)
    for _ in range(10):
        direction = rng.standard_normal(W.shape)
        direction /= np.linalg.norm(direction)
        step = 1e-4
        ahead, behind = (loss.value(X @ (W + sign * step * direction), Y) for sign in (1.0, -1.0))
        # The third derivative of a sample's loss is at most its curvature times twice the cube of its change.
        third = 2 * loss.curvature * np.sum(np.linalg.norm(X @ direction, axis=1) ** 3)
        sizes = np.sum(np.abs(X @ W)) + np.sum(np.abs(Y)) + np.sum(np.square(X @ W)) + abs(ahead)
        bound = third * step**2 / 6 + 20 * ROUNDOFF * sizes / step
        assert abs((ahead - behind) / (2 * step) - np.sum(gradient * direction)) <= bound
    assert np.linalg.norm(gradient) > 1e3 * bound, "the check must be able to tell"


def the_residual_is_the_prediction_minus_the_label(loss: Loss) -> None:
    """It is the derivative of a sample's value with respect to its outputs, too."""
    X, Y, W = problem(loss)
    outputs = X @ W
    residuals = loss.residuals(outputs.copy(), Y)
    np.testing.assert_allclose(residuals, loss.predictions(outputs.copy()) - Y, rtol=1e-12, atol=1e-14)
    step = 1e-4
    for j in range(CLASSES):
        change = step * np.eye(CLASSES)[j]
        for row in range(10):
            here = slice(row, row + 1)
            ahead, behind = (loss.value(outputs[here] + sign * change, Y[here]) for sign in (1.0, -1.0))
            bound = 2 * loss.curvature * step**2 / 6 + 20 * ROUNDOFF * (1 + np.sum(np.square(outputs[here]))) / step
            assert abs((ahead - behind) / (2 * step) - residuals[row, j]) <= bound


def no_second_derivative_exceeds_the_curvature_and_one_reaches_it(loss: Loss) -> None:
    largest = [np.linalg.eigvalsh(second_derivatives(loss, outputs))[-1] for outputs in places()]
    assert max(largest) <= loss.curvature + 1e-8
    assert max(largest) >= loss.curvature - 1e-8, "a bound that nothing reaches makes steps too small"


def curvature_weights_are_traces(loss: Loss) -> None:
    """Over the directions that change the prediction, which are the rank of ``V`` at outputs of moderate size."""
    outputs = places()
    derivatives = [second_derivatives(loss, each) for each in outputs]
    directions = np.linalg.matrix_rank(second_derivatives(loss, np.zeros(CLASSES)), tol=1e-6)
    expected = [np.trace(V) / directions for V in derivatives]
    np.testing.assert_allclose(loss.curvature_weights(outputs), expected, atol=1e-7)


def the_constant_model_predicts_the_mean(loss: Loss) -> None:
    """At the outputs that the link gives for it, the gradient vanishes."""
    _, Y, _ = problem(loss)
    mean = Y.mean(axis=0)
    outputs = np.broadcast_to(loss.link(mean), Y.shape).copy()
    np.testing.assert_allclose(loss.residuals(outputs.copy(), Y).sum(axis=0), 0.0, atol=1e-12 * len(Y))


def predictions_lie_in_the_range_of_the_link(loss: Loss) -> None:
    outputs = 3.0 * problem(loss)[0][:, :CLASSES]
    predicted = loss.predictions(outputs.copy())
    linked = loss.link(predicted)
    assert np.isfinite(linked).all()
    np.testing.assert_allclose(loss.predictions(linked.copy()), predicted, rtol=1e-10)


def residuals_in_place_equal_those_out_of_place(loss: Loss) -> None:
    """Also with labels that are broadcast, as when several runs share rows, and for each of them as if alone."""
    X, Y, W = problem(loss)
    for dtype in (np.float32, np.float64):
        outputs: FloatArray = (X @ W).astype(dtype)
        labels: FloatArray = Y.astype(dtype)
        alone = loss.predictions(outputs.copy()) - labels
        assert np.array_equal(loss.residuals(outputs.copy(), labels), alone)
        several = np.ascontiguousarray(np.stack([outputs, 2 * outputs, outputs], axis=1))
        together = loss.residuals(several, labels[:, None, :])
        assert together.shape == (len(X), 3, CLASSES)
        assert np.array_equal(together[:, 0], alone)
        assert np.array_equal(together[:, 2], alone)


def single_precision_stays(loss: Loss) -> None:
    X, Y, W = (array.astype(np.float32) for array in problem(loss))
    assert loss.predictions(X @ W).dtype == np.float32
    assert loss.residuals(X @ W, Y).dtype == np.float32
    assert loss.gradient(X, Y, W).dtype == np.float32
    exact = loss.value((X @ W).astype(np.float64), Y.astype(np.float64))
    assert abs(loss.value(X @ W, Y) - exact) <= 1e-6 * abs(exact)


def the_value_is_that_of_scikit_learn(loss: Loss) -> None:
    X, Y, W = problem(loss)
    if loss.logits:
        expected = log_loss(Y.argmax(axis=1), loss.predictions(X @ W), labels=range(CLASSES), normalize=False)
    else:
        expected = 0.5 * mean_squared_error(Y, loss.predictions(X @ W)) * Y.size
    assert abs(loss.value(X @ W, Y) - expected) <= 1e-6 * expected


def the_value_adds_up(loss: Loss) -> None:
    X, Y, W = problem(loss)
    parts = [loss.value(X[rows] @ W, Y[rows]) for rows in (slice(0, 15), slice(15, None))]
    assert abs(loss.value(X @ W, Y) - sum(parts)) <= 1e-12 * abs(sum(parts))


def the_closed_form_is_stationary(loss: Loss) -> None:
    """A loss has a closed form if and only if it is quadratic, and its smoothness bounds every step of descent."""
    X, Y, W = problem(loss)
    gram = compute_gram([Rows(X, Y)])
    optimum = loss.optimum(gram)
    assert (optimum is not None) == loss.quadratic
    if optimum is not None:
        np.testing.assert_allclose(loss.gradient(X, Y, optimum), 0.0, atol=1e-10)
    for _ in range(20):
        gradient = loss.gradient(X, Y, W)
        # Descent with the step 1 / L gains half of the squared gradient over L at least.
        least = 0.5 * float(np.sum(gradient**2)) / loss.smoothness(gram)
        moved = W - gradient / loss.smoothness(gram)
        assert loss.value(X @ W, Y) - loss.value(X @ moved, Y) >= least * (1 - 1e-9) - 1e-9
        W = moved


CHECKS: tuple[Check, ...] = (
    the_gradient_is_that_of_the_value,
    the_residual_is_the_prediction_minus_the_label,
    no_second_derivative_exceeds_the_curvature_and_one_reaches_it,
    curvature_weights_are_traces,
    the_constant_model_predicts_the_mean,
    predictions_lie_in_the_range_of_the_link,
    residuals_in_place_equal_those_out_of_place,
    single_precision_stays,
    the_value_is_that_of_scikit_learn,
    the_value_adds_up,
    the_closed_form_is_stationary,
)
