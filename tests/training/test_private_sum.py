from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from codedfl.coding import Geometry
from codedfl.losses import SOFTMAX, SQUARE, Loss
from codedfl.streams import Streams
from codedfl.training import PrivateSum
from codedfl.typing import FloatArray
from tests.reference.private_descent import clipped_sum, shrinking

rng = np.random.default_rng(5)
X = rng.standard_normal((30, 4)) * rng.exponential(1.0, (30, 1))
Y = np.eye(3)[rng.integers(3, size=30)]
W = rng.standard_normal((4, 3))


def two_parts() -> Geometry:
    first, _ = np.linalg.qr(rng.standard_normal((4, 1)))
    second, _ = np.linalg.qr(rng.standard_normal((4, 2)))
    return Geometry((first, second), (np.array([0.3]), np.array([0.2, 0.7])))


GEOMETRIES = {"plain": Geometry(), "shrinking": two_parts()}


def private(
    geometry: Geometry, features: FloatArray = X, *, clip_norm: float = 0.8, deviation: float = 0.0, **changes: Any
) -> PrivateSum:
    given = {"streams": Streams(0), "device": 0, "round": 0, "geometry": geometry, **changes}
    return PrivateSum(clip_norm, geometry.norms(features), deviation, **given)


def dense(geometry: Geometry) -> FloatArray:
    return shrinking(geometry.directions, geometry.factors) if geometry.directions else np.eye(4)


@pytest.mark.parametrize("loss", [SQUARE, SOFTMAX])
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
@pytest.mark.parametrize("batch", [None, np.array([3, 4, 11]), np.array([], np.int64)])
@pytest.mark.parametrize("clip_norm", [0.3, 1.5, 1e6])
def test_it_is_the_sum_of_gradients_that_are_formed_and_clipped_one_by_one(
    loss: Loss, geometry: Geometry, batch: Any, clip_norm: float
) -> None:
    rows = np.arange(30) if batch is None else batch
    expected = clipped_sum(X[rows], Y[rows], W, clip_norm, dense(geometry), softmax=loss.logits)
    released = private(geometry, clip_norm=clip_norm).release(X, Y, batch, W, 2.5, loss)
    np.testing.assert_allclose(released, 2.5 * expected, rtol=1e-12, atol=1e-13)


def test_some_gradients_of_this_problem_are_clipped_and_some_are_not() -> None:
    for geometry in GEOMETRIES.values():
        sizes = geometry.norms(X) * np.linalg.norm(X @ W - Y, axis=1)
        assert 5 < np.count_nonzero(sizes > 1.5) < 25


@pytest.mark.parametrize("loss", [SQUARE, SOFTMAX])
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_one_sample_changes_it_by_the_clip_norm_at_most_and_a_large_one_by_as_much(
    loss: Loss, geometry: Geometry
) -> None:
    sizes = []
    for left_out in range(30):
        others = np.delete(np.arange(30), left_out)
        with_it = private(geometry).release(X, Y, None, W, 1.0, loss)
        without = private(geometry, X[others]).release(X[others], Y[others], None, W, 1.0, loss)
        sizes.append(np.linalg.norm(with_it - without))
    assert max(sizes) == pytest.approx(0.8, rel=1e-12)
    assert min(sizes) < 0.7


def test_labels_and_features_of_any_size_stay_within_the_clip_norm() -> None:
    huge = private(Geometry(), 1e20 * X[:1]).release(1e20 * X[:1], 1e30 * Y[:1], None, W, 1.0, SQUARE)
    assert np.linalg.norm(huge) == pytest.approx(0.8, rel=1e-12)
    nothing = private(Geometry(), 0 * X).release(0 * X, 0 * Y, None, 0 * W, 1.0, SQUARE)
    assert not nothing.any()


def test_single_precision_stays_single_and_close() -> None:
    geometry = GEOMETRIES["shrinking"]
    x, y, w = (array.astype(np.float32) for array in (X, Y, W))
    released = private(geometry, x, deviation=0.1).release(x, y, None, w, 1.0, SQUARE)
    assert released.dtype == np.float32
    np.testing.assert_allclose(
        released, private(geometry, deviation=0.1).release(X, Y, None, W, 1.0, SQUARE), atol=1e-4
    )


def noise_of(device: int, round: int, seed: int = 0, scale: float = 1.0) -> FloatArray:
    noisy = private(GEOMETRIES["shrinking"], deviation=2.0, device=device, round=round, streams=Streams(seed))
    exact = private(GEOMETRIES["shrinking"]).release(X, Y, None, W, scale, SQUARE)
    return noisy.release(X, Y, None, W, scale, SQUARE) - exact


@pytest.mark.slow
def test_noise_is_gaussian_of_the_stated_deviation_in_the_coordinates_that_are_sent() -> None:
    draws = np.array([noise_of(device, round) for device in range(20) for round in range(100)])
    entries = draws.ravel() / 2.0
    assert abs(entries.mean()) < 4 / math.sqrt(entries.size)
    squares = float(entries @ entries)
    assert abs(squares - entries.size) < 4 * math.sqrt(2 * entries.size), "chi-square"
    assert stats.kstest(entries, "norm").pvalue > 1e-4
    assert np.all(np.abs(np.corrcoef(draws.reshape(2000, 12).T) - np.eye(12)) < 4.5 / math.sqrt(2000))


def test_noise_differs_by_device_round_and_seed_and_is_scaled_with_the_update() -> None:
    first = noise_of(0, 0)
    np.testing.assert_allclose(noise_of(0, 0), first)
    for other in (noise_of(1, 0), noise_of(0, 1), noise_of(0, 0, seed=1)):
        assert not np.isclose(other, first).any()
    np.testing.assert_allclose(noise_of(0, 0, scale=4.0), 4 * first, rtol=1e-9)


def test_an_empty_batch_sends_noise_alone() -> None:
    """Whether a Poisson sample was empty must not show."""
    nothing = np.array([], np.int64)
    released = private(Geometry(), deviation=2.0).release(X, Y, nothing, W, 1.0, SQUARE)
    np.testing.assert_array_equal(released, 2.0 * Streams(0).at("update-noise").standard_normal((4, 3)))


@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES)
def test_a_geometry_is_its_dense_matrix(geometry: Geometry) -> None:
    D = dense(geometry)
    np.testing.assert_allclose(geometry.forward(W), D @ W, rtol=1e-12)
    np.testing.assert_allclose(geometry.backward(W), D.T @ W, rtol=1e-12)
    np.testing.assert_allclose(geometry.rows(X), X @ D.T, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(geometry.norms(X, block=7), np.linalg.norm(X @ D.T, axis=1), rtol=1e-12)
    # A model predicts on x what it predicts on D x in the other coordinates.
    np.testing.assert_allclose(X @ geometry.backward(W), geometry.rows(X) @ W, rtol=1e-12, atol=1e-13)
    assert geometry.norms(X[:0]).shape == (0,)


def test_backward_is_the_adjoint_of_forward_and_not_forward_itself() -> None:
    geometry, V = GEOMETRIES["shrinking"], rng.standard_normal((4, 3))
    assert np.sum(geometry.forward(W) * V) == pytest.approx(np.sum(W * geometry.backward(V)), rel=1e-12)
    assert not np.allclose(geometry.forward(W), geometry.backward(W)), "the two parts do not commute"
