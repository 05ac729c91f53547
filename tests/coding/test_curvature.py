"""The model of every device's second moments against the same in dense matrices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import DAMPING_FACTOR, CurvatureModel, Rows, SubspaceSketch
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import random_rows
from tests.reference import curvature as reference
from tests.uploads.support import sketch_all

D, OUTPUTS, RANK = 14, 2, 6
SIZES = (40, 25, 60, 3)
SAMPLES = np.array(SIZES, dtype=np.float64)


def sketched(noise: float = 0.0, count: int = 20, rank: int = RANK, silent: tuple[int, ...] = ()) -> SubspaceSketch:
    devices = [random_rows(size, D, OUTPUTS, seed=size, scale=0.5 + 0.01 * size) for size in SIZES]
    for i in silent:
        devices[i] = Rows(np.zeros((0, D)), np.zeros((0, OUTPUTS)))
    noises = np.full(len(SIZES), noise)
    return sketch_all(devices, rank, count, noise_variance=noises, label_noise_variance=noises, streams=Streams(3))


def dense(sketch: SubspaceSketch) -> reference.Dense:
    return reference.curvature(
        sketch.test_matrix, sketch.products, sketch.label_products, sketch.energy, sketch.rows, SAMPLES
    )


def densely(model: CurvatureModel) -> list[FloatArray]:
    U = model.curvature.basis
    outside = np.eye(len(U)) - U @ U.T
    return [U @ C @ U.T + t * outside for C, t in zip(model.curvature.blocks, model.curvature.tails, strict=True)]


@pytest.mark.parametrize("silent", [(), (1,), (0, 2)])
@pytest.mark.parametrize("count", [1, 4, 20])
def test_it_agrees_with_dense_matrices(count: int, silent: tuple[int, ...]) -> None:
    """Up to the relative shift of 1e-8 in Nyström, amplified where rows are few."""
    sketch = sketched(count=count, silent=silent)
    model, slow = CurvatureModel.of(sketch, SAMPLES), dense(sketch)
    size = float(np.linalg.norm(slow.P_inverse, 2))
    for ours, theirs in zip(densely(model), slow.H, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5 * size)
    np.testing.assert_allclose(model.curvature.basis @ model.intercepts, slow.b, rtol=0, atol=1e-5 * size)
    U = model.curvature.basis
    P_inverse = (U * model.curvature.values) @ U.T + model.curvature.tails.sum() * (np.eye(D) - U @ U.T)
    np.testing.assert_allclose(P_inverse, slow.P_inverse, rtol=0, atol=1e-5 * size)
    assert model.damping == pytest.approx(slow.damping, rel=1e-4, abs=1e-6 * size)


def test_blocks_are_those_of_each_device_alone() -> None:
    sketch = sketched()
    model = CurvatureModel.of(sketch, SAMPLES)
    assert model.curvature.basis.shape == (D, 5), "five sixths of the directions"
    for C, products in zip(model.curvature.blocks, sketch.products, strict=True):
        H = reference.nystrom(products, sketch.test_matrix)
        np.testing.assert_allclose(
            C, model.curvature.basis.T @ H @ model.curvature.basis, rtol=0, atol=1e-6 * float(np.linalg.norm(H))
        )


def test_tails_are_the_energy_that_the_basis_does_not_show() -> None:
    """A device is given 0.4 of the energy ``||X_i||_F^2``, the trace of ``H_i``, that the basis does not show."""
    sketch = sketched()
    model = CurvatureModel.of(sketch, SAMPLES)
    assert np.all(model.curvature.tails > 0)
    for H, C, energy in zip(densely(model), model.curvature.blocks, sketch.energy, strict=True):
        assert np.trace(H) - np.trace(C) == pytest.approx(0.4 * (energy - np.trace(C)), rel=1e-9)
    understated = replace(sketch, energy=0.01 * sketch.energy)
    assert CurvatureModel.of(understated, SAMPLES).curvature.tails.tolist() == [0.0] * 4, "never negative"


def test_devices_without_a_sketch_are_taken_to_be_like_the_others() -> None:
    model = CurvatureModel.of(sketched(silent=(1, 3)), SAMPLES)
    heard = model.curvature.blocks[0] + model.curvature.blocks[2]
    for i in (1, 3):
        np.testing.assert_allclose(model.curvature.blocks[i], SIZES[i] / (40 + 60) * heard)
        assert model.curvature.tails[i] == pytest.approx(
            SIZES[i] / (40 + 60) * (model.curvature.tails[0] + model.curvature.tails[2])
        )
        assert not model.intercepts[i].any()


def test_the_damping_is_twice_the_first_eigenvalue_that_is_left_out() -> None:
    sketch = sketched()
    total = reference.nystrom(sketch.products.sum(axis=0), sketch.test_matrix)
    left_out = np.linalg.eigvalsh(total)[::-1][5]
    assert left_out > 0
    assert CurvatureModel.of(sketch, SAMPLES).damping == pytest.approx(DAMPING_FACTOR * left_out, rel=1e-4)


def test_the_damping_of_a_matrix_of_low_rank_is_small_but_not_zero() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((20, 1)) * rng.standard_normal(D), np.ones((20, OUTPUTS)))
    none = np.zeros(1)
    sketch = sketch_all([rows], RANK, 20, noise_variance=none, label_noise_variance=none, streams=Streams(0))
    model = CurvatureModel.of(sketch, np.array([20.0]))
    assert model.curvature.values[0] == pytest.approx(np.linalg.norm(rows.features, 2) ** 2, rel=1e-6)
    assert 1e-6 * model.curvature.values[0] <= model.damping < 1e-5 * model.curvature.values[0]


def test_what_noise_could_have_made_is_left_out() -> None:
    quiet = CurvatureModel.of(sketched(), SAMPLES)
    dimensions = []
    for noise in (1e-4, 30.0, 300.0, 1e8):
        sketch = sketched(noise)
        model = CurvatureModel.of(sketch, SAMPLES)
        kept = len(model.curvature.values)
        dimensions.append(kept)
        assert model.damping >= sketch.noise_norm
        assert model.curvature.values[-1] > sketch.noise_norm or kept == 1
        for array in (model.curvature.basis, model.curvature.values, model.curvature.blocks, model.curvature.tails):
            assert np.isfinite(array).all()
        for block in model.curvature.blocks:
            assert np.linalg.eigvalsh(block)[0] >= -1e-9 * max(float(np.linalg.norm(block)), 1.0)
    assert dimensions[0] == len(quiet.curvature.values) == 5
    assert 5 > dimensions[1] > dimensions[2] > dimensions[3] == 1, "the more noise, the fewer directions"


def test_data_of_zeros_and_of_one_column() -> None:
    none = np.zeros(2)
    zeros = [Rows(np.zeros((3, 4)), np.ones((3, 1)))] * 2
    sketch = sketch_all(zeros, 3, 2, noise_variance=none, label_noise_variance=none, streams=Streams(0))
    model = CurvatureModel.of(sketch, np.array([3.0, 3.0]))
    assert not model.curvature.blocks.any()
    assert not model.curvature.tails.any()
    assert model.damping == 1.0
    column = [Rows(np.full((3, 1), 2.0), np.ones((3, 1)))] * 2
    sketch = sketch_all(column, 1, 3, noise_variance=none, label_noise_variance=none, streams=Streams(0))
    model = CurvatureModel.of(sketch, np.array([3.0, 3.0]))
    assert model.curvature.values.tolist() == pytest.approx([24.0])
    assert model.curvature.blocks.ravel().tolist() == pytest.approx([12.0, 12.0])
    assert model.curvature.tails.tolist() == pytest.approx([0.0, 0.0], abs=1e-9)


def test_the_arithmetic_of_the_server_grows_with_everything() -> None:
    base = CurvatureModel.server_macs(10, 100, 5, 20)
    assert base == pytest.approx(10 * 100 * 25 * (1 + 20 * 5 / 6) + 4 * 100 * 400)
    for larger in ((11, 100, 5, 20), (10, 101, 5, 20), (10, 100, 6, 20), (10, 100, 5, 21)):
        assert CurvatureModel.server_macs(*larger) > base
