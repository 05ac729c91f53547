from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize

from codedfl.coding import Rows, compute_gram
from codedfl.errors import InputError
from codedfl.theory import largest_residual, measure_constants
from codedfl.typing import FloatArray
from tests.theory.rounds import random_round


def squared_residual(rows: Rows, W: FloatArray) -> float:
    return float(np.sum((rows.features @ W - rows.labels) ** 2))


def climb(rows: Rows, radius: float, rng: np.random.Generator, starts: int = 6) -> float:
    """The largest residual found by projected ascent from random points of the sphere.

    A convex function is largest on the sphere, and moving to the point where its tangent plane is largest never lowers it.
    """
    best = 0.0
    for _ in range(starts):
        W = rng.standard_normal((rows.features.shape[1], rows.labels.shape[1]))
        W *= radius / np.linalg.norm(W)
        for _ in range(4000):
            slope = rows.features.T @ (rows.features @ W - rows.labels)
            before, W = W, slope * radius / np.linalg.norm(slope)
            if np.linalg.norm(W - before) < 1e-9 * radius:
                break
        best = max(best, squared_residual(rows, W))
    return best


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("radius", [0.1, 1.0, 30.0])
def test_the_largest_residual_is_attained_and_never_exceeded(seed: int, radius: float) -> None:
    rng = np.random.default_rng(seed)
    rows = Rows(rng.standard_normal((2 + seed, 3)), rng.standard_normal((2 + seed, 2)))
    found = largest_residual(compute_gram([rows]), radius)
    for _ in range(300):
        W = rng.standard_normal((3, 2))
        assert squared_residual(rows, W * radius * rng.uniform() ** 0.1 / np.linalg.norm(W)) <= found
    reached = climb(rows, radius, rng)
    assert reached <= found * (1 + 1e-12)
    assert reached == pytest.approx(found, rel=1e-6)


def test_a_general_optimiser_finds_the_same_largest_residual() -> None:
    rng = np.random.default_rng(9)
    rows = Rows(rng.standard_normal((5, 3)), rng.standard_normal((5, 2)))
    found = largest_residual(compute_gram([rows]), 2.0)

    def loss(flat: FloatArray) -> float:
        W = flat.reshape(3, 2)
        return -squared_residual(rows, W * 2.0 / np.linalg.norm(W))

    best = max(-float(minimize(loss, rng.standard_normal(6)).fun) for _ in range(10))
    assert best <= found * (1 + 1e-12)
    assert best == pytest.approx(found, rel=1e-6)


@pytest.mark.parametrize("radius", [0.5, 10.0])
def test_labels_orthogonal_to_the_top_eigenvector(radius: float) -> None:
    """Then the dual has no pole there, and for a large radius its minimum is at the very edge."""
    rows = Rows(np.diag([3.0, 1.0, 0.5]), np.array([[0.0], [1.0], [-2.0]]))
    found = largest_residual(compute_gram([rows]), radius)
    # On the sphere, w_1^2 = phi^2 - w_2^2 - w_3^2: a concave quadratic is left, largest at an interior point if it fits.
    free = np.array([1.0, -1.0]) / (np.array([1.0, 0.25]) - 9.0)
    if np.sum(free**2) <= radius**2:
        W = np.array([[np.sqrt(radius**2 - np.sum(free**2))], [free[0]], [free[1]]])
        expected = squared_residual(rows, W)
    else:
        expected = climb(rows, radius, np.random.default_rng(0))
    assert found == pytest.approx(expected, rel=1e-9)
    assert climb(rows, radius, np.random.default_rng(1)) <= found * (1 + 1e-12)


def test_without_labels_the_top_eigenvalue_decides() -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))
    top = np.linalg.svd(X, compute_uv=False)[0] ** 2
    assert largest_residual(compute_gram([Rows(X, np.zeros((6, 2)))]), 1.5) == pytest.approx(1.5**2 * top, rel=1e-12)


def test_without_features_the_labels_are_left() -> None:
    assert largest_residual(compute_gram([Rows(np.zeros((4, 3)), np.full((4, 2), 0.5))]), 7.0) == 2.0


@pytest.mark.parametrize("seed", range(6))
def test_cheap_constants_are_on_the_safe_side(seed: int) -> None:
    parts = random_round(np.random.default_rng(seed)).parts
    exact, cheap = measure_constants(parts, 1.7), measure_constants(parts, 1.7, method="cheap")
    assert (cheap.residual >= exact.residual).all()
    assert (cheap.residual > 1.01 * exact.residual).any(), "else the two methods are one"
    assert cheap.strong_convexity <= exact.strong_convexity
    assert cheap.smoothness == pytest.approx(exact.smoothness, rel=1e-6)
    assert cheap.feature_norm.tolist() == exact.feature_norm.tolist()


def test_eigenvalues_norms_and_optimum_agree_with_the_data() -> None:
    parts = random_round(np.random.default_rng(0)).parts
    constants = measure_constants(parts, 2.0)
    X, Y = np.vstack([part.features for part in parts]), np.vstack([part.labels for part in parts])
    singular = np.linalg.svd(X, compute_uv=False)
    assert constants.smoothness == pytest.approx(singular[0] ** 2, rel=1e-10)
    assert constants.strong_convexity == pytest.approx(singular[-1] ** 2, rel=1e-9)
    assert constants.printed_strong_convexity == pytest.approx(np.sum(singular**2), rel=1e-12)
    assert constants.feature_norm == pytest.approx([np.linalg.norm(part.features) ** 2 for part in parts], rel=1e-12)
    assert constants.optimum_norm == pytest.approx(np.linalg.norm(np.linalg.lstsq(X, Y)[0]), rel=1e-9)
    given = measure_constants(parts, 2.0, gram=compute_gram(parts))
    assert given.residual.tolist() == constants.residual.tolist()
    assert constants.radius == 2.0


def test_data_without_full_rank_is_not_strongly_convex() -> None:
    X = np.random.default_rng(0).standard_normal((2, 4))
    constants = measure_constants((Rows(X, np.ones((2, 1))),), 1.0)
    assert 0 <= constants.strong_convexity < 1e-12


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf])
def test_a_radius_that_is_no_radius_is_refused(radius: float) -> None:
    with pytest.raises(InputError, match=f"radius = {radius} must be a positive finite number"):
        measure_constants(random_round(np.random.default_rng(0)).parts, radius)
