"""The sketch that a server makes of factors."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.coding import Rows, compute_gram, sample_factor, second_moment_error, sketch_factors
from codedfl.typing import FloatArray
from tests.coding.law import triangular_factor

D, OUTPUTS, C, NOISE = 8, 2, 60, 0.3


def factors_of(seed: int = 0) -> dict[int, FloatArray]:
    """Factors of the devices 0 and 2; device 1 sent none."""
    rng = np.random.default_rng(seed)
    return {
        i: triangular_factor(rng.standard_normal((C, D + OUTPUTS)) * np.linspace(2, 0.2, D + OUTPUTS)) for i in (0, 2)
    }


def sketched(factors: dict[int, FloatArray], rank: int = 3) -> tuple[FloatArray, FloatArray, FloatArray]:
    sketch = sketch_factors(
        factors, C, rank, noise_variance=np.array([NOISE, 0.0, 0.1]), samples=np.array([7.0, 0.0, 9.0]), dimension=D
    )
    assert sketch.rows.tolist() == [7.0, 0.0, 9.0]
    assert not sketch.products[1].any()
    assert not sketch.label_products[1].any()
    return sketch.test_matrix, sketch.products, sketch.label_products


def test_it_is_the_second_moment_without_its_noise_along_the_leading_eigenvectors() -> None:
    factors = factors_of()
    moments = {i: R.T @ R / C for i, R in factors.items()}
    directions, products, label_products = sketched(factors)
    _, vectors = np.linalg.eigh(moments[0][:D, :D] + moments[2][:D, :D])
    assert abs(vectors[:, -3:].T @ directions) == pytest.approx(np.eye(3), abs=1e-9)
    for i, noise in ((0, NOISE), (2, 0.1)):
        assert products[i] == pytest.approx((moments[i][:D, :D] - noise * np.eye(D)) @ directions)
        assert label_products[i] == pytest.approx(moments[i][:D, D:])


def test_energy_is_that_of_the_data_and_never_negative() -> None:
    factors = {0: triangular_factor(np.random.default_rng(1).standard_normal((C, D + OUTPUTS)) * 0.1)}
    for noise in (0.0, 5.0):
        sketch = sketch_factors(factors, C, 2, noise_variance=np.array([noise]), samples=np.array([7.0]), dimension=D)
        trace = float(np.trace(factors[0][:, :D].T @ factors[0][:, :D])) / C
        assert sketch.energy[0] == pytest.approx(max(trace - D * noise, 0.0))


def test_its_noise_norm_is_the_predicted_error_of_the_second_moments() -> None:
    factors = factors_of()
    sketch = sketch_factors(factors, C, 3, noise_variance=np.zeros(3), samples=np.array([7.0, 0.0, 9.0]), dimension=D)
    traces = [float(np.sum(R[:, :D] ** 2)) / C for R in factors.values()]
    effective = C * sum(traces) ** 2 / sum(trace**2 for trace in traces)
    assert sketch.noise_norm == pytest.approx(second_moment_error(sum(traces) / D, D, effective))


def test_products_are_unbiased_given_the_directions() -> None:
    """Along a fixed direction the mean over draws of the factor is ``H v``, within five standard errors."""
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((40, D)), rng.standard_normal((40, OUTPUTS))
    gram, v = compute_gram([Rows(X, Y)]), np.eye(D)[:, 0]
    draws = []
    for _ in range(400):
        R = sample_factor(gram, C, noise_variance=NOISE, rng=rng)[:, :D]
        draws.append(R.T @ (R @ v) / C - NOISE * v)
    mean, error = np.mean(draws, axis=0), np.std(draws, axis=0) / np.sqrt(len(draws))
    assert (abs(mean - X.T @ X @ v) < 5 * error).all()
