"""The memory of devices against dense matrices, one per device."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.coding import Curvature
from codedfl.schemes import DeviceMemory
from codedfl.typing import FloatArray
from tests.reference import curvature as reference

N, D, K, OUTPUTS = 5, 7, 3, 2
SAMPLES = np.array([30.0, 12.0, 50.0, 9.0, 3.0])


def random_model(seed: int) -> Curvature:
    """Return a basis, blocks and tails that have nothing to do with any data."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((D, K)))[0]
    roots = rng.standard_normal((N, K, K))
    return Curvature(basis, np.ones(K), roots @ roots.transpose(0, 2, 1), rng.uniform(0.0, 2.0, N))


def densely(curvature: Curvature) -> list[FloatArray]:
    basis = curvature.basis
    outside = np.eye(D) - basis @ basis.T
    return [basis @ C @ basis.T + t * outside for C, t in zip(curvature.blocks, curvature.tails, strict=True)]


@pytest.mark.parametrize("seed", range(4))
def test_rounds_with_random_arrivals_agree_with_dense_matrices(seed: int) -> None:
    rng = np.random.default_rng([seed, 1])
    curvature = random_model(seed)
    basis = curvature.basis
    intercepts, rows = rng.standard_normal((N, K, OUTPUTS)), np.array([4.0, 0.0, 20.0, 3.0, 0.0])
    intercepts[rows == 0] = 0.0
    memory = DeviceMemory.from_prior(intercepts, rows, SAMPLES, D)
    slow = reference.Memory(densely(curvature), list(basis @ intercepts), rows.tolist(), SAMPLES.tolist())
    for _ in range(12):
        W = rng.standard_normal((D, OUTPUTS))
        present = np.flatnonzero(rng.random(N) < 0.5)
        arrived = [(int(i), rng.standard_normal((D, OUTPUTS)), int(rng.integers(1, SAMPLES[i] + 1))) for i in present]
        memory = memory.updated(arrived, W, curvature)
        slow.hear(arrived, W)
        for at in (W, rng.standard_normal((D, OUTPUTS))):
            ours = memory.gradient(at, curvature)
            np.testing.assert_allclose(ours, slow.gradient(at), rtol=0, atol=1e-10)
        np.testing.assert_allclose(basis @ memory.coefficients + memory.residuals, slow.b, rtol=0, atol=1e-10)
        assert memory.rows.tolist() == pytest.approx(slow.rows)


def test_nothing_that_was_remembered_is_changed_in_place() -> None:
    curvature = random_model(0)
    memory = DeviceMemory.from_prior(np.ones((N, K, OUTPUTS)), np.full(N, 2), SAMPLES, D)
    before = [array.copy() for array in (memory.coefficients, memory.residuals, memory.rows)]
    W = np.ones((D, OUTPUTS))
    after = memory.updated([(0, W, 3)], W, curvature)
    for array, copy in zip((memory.coefficients, memory.residuals, memory.rows), before, strict=True):
        assert np.array_equal(array, copy)
    assert not np.array_equal(after.residuals, memory.residuals)
    assert np.array_equal(after.residuals[1:], memory.residuals[1:]), "only of those who arrived"


@pytest.mark.parametrize("seed", range(3))
def test_at_the_optimum_exact_gradients_cancel_whatever_the_sketch(seed: int) -> None:
    """The fixed point: once all devices sent full gradients at ``W*``, nothing is left of a wrong model and a wrong prior."""
    rng = np.random.default_rng([seed, 2])
    curvature = random_model(seed)  # of no relation to the data
    data = [(rng.standard_normal((int(n), D)), rng.standard_normal((int(n), OUTPUTS))) for n in SAMPLES]
    X, Y = (np.vstack(parts) for parts in zip(*data, strict=True))
    optimum = np.linalg.lstsq(X, Y, rcond=None)[0]
    memory = DeviceMemory.from_prior(rng.standard_normal((N, K, OUTPUTS)), np.full(N, 2.0), SAMPLES, D)
    assert np.linalg.norm(memory.gradient(optimum, curvature)) > 1
    for _ in range(60):  # the weight of what is old at least halves
        arrived = [(i, x.T @ (x @ optimum - y), len(x)) for i, (x, y) in enumerate(data)]
        memory = memory.updated(arrived, optimum, curvature)
    assert np.abs(memory.gradient(optimum, curvature)).max() < 1e-10


def test_new_gradients_weigh_as_their_rows() -> None:
    """A device of 30 rows averages over 10; larger batches still weigh no more than half, unless nothing was known."""
    curvature = Curvature(np.zeros((1, 0)), np.zeros(0), np.zeros((1, 0, 0)), np.zeros(1))
    W = np.zeros((1, 1))

    def share(known: float, batch: int) -> tuple[float, float]:
        memory = DeviceMemory(np.zeros((1, 0, 1)), np.zeros((1, 1, 1)), np.array([known]), np.array([10.0]))
        after = memory.updated([(0, np.array([[-1.0]]), batch)], W, curvature)
        return float(after.residuals.item()), float(after.rows.item())

    assert share(0, 2) == (1.0, 2)
    assert share(2, 1) == pytest.approx((1 / 3, 3))
    assert share(4, 4) == (0.5, 8)
    assert share(10, 4) == (0.4, 10)
    assert share(3, 7) == (0.5, 10)
    assert share(10, 30) == (0.5, 30), "a batch larger than the window"
    assert share(30, 2) == (0.2, 10)
    unknown = DeviceMemory(np.zeros((1, 0, 1)), np.ones((1, 1, 1)), np.zeros(1), np.array([10.0]))
    assert not unknown.gradient(W, curvature).any(), "not counted before it has arrived"
