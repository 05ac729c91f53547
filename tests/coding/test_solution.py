"""The predicted error of coded second moments against Monte Carlo, and the solution against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.coding import (
    CodedData,
    FactorOf,
    Gram,
    Rows,
    add_factors,
    coded_solution,
    encode,
    encode_factors,
    hidden_error,
    sample_factor,
    second_moment_error,
    triangular_factor,
)
from codedfl.errors import InputError
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import joined, random_rows

D = 120
DECAY = 1000.0 * np.arange(1, D + 1) ** -1.5
SPIKE = np.where(np.arange(D) == 0, 1000.0, 1e-6)


def factor_of_sum(spectra: list[FloatArray], noise: float, c: int, rng: np.random.Generator) -> CodedData:
    """Draw the factors of devices with these eigenvalues of ``X_i^T X_i``, and add them up."""
    factors = []
    for spectrum in spectra:
        gram = Gram(np.diag(np.append(spectrum, 0.0)), len(spectrum), 1)
        factors.append(sample_factor(gram, c, noise_variance=noise / len(spectra), rng=rng))
    return add_factors(factors, c, D, noise, np.dtype(np.float64))


def alike(devices: int, spectrum: FloatArray) -> list[FloatArray]:
    return [spectrum / devices] * devices


def apart(devices: int) -> list[FloatArray]:
    """Return devices that have no direction in common, the first with more data than the others."""
    own = [np.where(np.arange(D) % devices == i, 300.0 / (1 + np.arange(D) // devices), 0.0) for i in range(devices)]
    return [own[0] * 3, *own[1:]]


CASES = {
    "one device": alike(1, DECAY),
    "ten devices": alike(10, DECAY),
    "devices apart": apart(6),
    "one large eigenvalue": alike(1, SPIKE),
    "nothing but noise": alike(3, np.full(D, 1e-9)),
}


@pytest.mark.parametrize("c", [130, 800])
@pytest.mark.parametrize("noise", [0.05, 5.0, 2000.0])
@pytest.mark.parametrize("name", CASES)
def test_predicted_errors_are_within_a_factor_of_two_of_those_that_occur(name: str, noise: float, c: int) -> None:
    """Low and high noise, few and many coded rows; the mean of four draws varies by less than 30%."""
    rng, spectra = np.random.default_rng(60), CASES[name]
    H = np.sum(spectra, axis=0)
    ratios: list[tuple[float, float]] = []
    for _ in range(4):
        coded = factor_of_sum(spectra, noise, c, rng)
        second = coded.features.T @ coded.features / c
        values = np.linalg.eigvalsh(second)
        error = second - np.diag(H + noise)
        hidden = hidden_error(values, noise, coded.effective_rows)
        among = np.flatnonzero(hidden >= H)  # the true directions that such an error hides
        ratios.append(
            (
                second_moment_error(values, coded.effective_rows) / float(np.linalg.norm(error, 2)),
                hidden / float(np.linalg.norm(error[np.ix_(among, among)], 2)) if among.size else 1.0,
            )
        )
    for mean in np.mean(ratios, axis=0):
        assert 0.5 < mean < 2.0


def test_the_edge_is_the_root_of_the_equation_that_it_comes_from() -> None:
    """Below the edge, ``t / (1 + t) = (1/n) sum_k s_k / (z - t s_k)`` has no solution with ``z > t s_1``; above it has."""
    s, n = DECAY + 3.0, 400.0
    edge = second_moment_error(s, n)

    def solvable(z: float) -> bool:
        t = np.linspace(1e-6, z / s.max(), 20_001)[:-1]
        right = np.sum(s / (z - t[:, None] * s), axis=1) / n
        return bool(np.any(right <= t / (1 + t)))

    assert not solvable(0.999 * edge)
    assert solvable(1.001 * edge)


@pytest.mark.parametrize("d", [1, 10, 500])
def test_noise_alone_has_the_edge_of_marchenko_and_pastur(d: int) -> None:
    y = d / 700
    for error in (second_moment_error(np.full(d, 3.0), 700.0), hidden_error(np.full(d, 3.0), 3.0, 700.0)):
        assert error == pytest.approx(3 * (2 * math.sqrt(y) + y), rel=1e-9)


def test_scale_and_order_and_zeros_do_not_matter() -> None:
    error = second_moment_error(DECAY, 300.0)
    assert second_moment_error(1e-9 * DECAY[::-1], 300.0) == pytest.approx(1e-9 * error)
    assert second_moment_error(np.append(DECAY, [0.0, -1.0]), 300.0) == pytest.approx(error)
    assert second_moment_error(np.zeros(3), 10.0) == 0.0


def test_eigenvalues_far_above_the_error_do_not_count() -> None:
    few = hidden_error(np.full(50, 1.0), 1.0, 500.0)
    assert hidden_error(np.append(np.full(50, 1.0), [50.0, 1e5]), 1.0, 500.0) == pytest.approx(few)
    assert hidden_error(np.array([5.0, 6.0]), 0.0, 1e6) == 0.0


def test_the_solution_is_that_of_the_damped_normal_equations() -> None:
    rows = random_rows(60, 5, 2, seed=61)
    coded = encode(rows, 40, noise_variance=8.0, rng=np.random.default_rng(62))
    X, Y = coded.features, coded.labels
    values, vectors = np.linalg.eigh(X.T @ X / 40)
    ridge = 0.25 * hidden_error(values, 8.0, 40.0)
    assert ridge > 0
    H = vectors @ np.diag(np.maximum(values - 8.0, 0.0)) @ vectors.T
    expected = np.linalg.solve(H + ridge * np.eye(5), X.T @ Y / 40)
    np.testing.assert_allclose(coded_solution(coded), expected, rtol=1e-9)


def test_a_factor_of_the_same_rows_has_the_same_solution() -> None:
    coded = encode(random_rows(60, 5, 2, seed=63), 40, noise_variance=2.0, rng=np.random.default_rng(64))
    R = triangular_factor(joined(coded))
    factor = CodedData(R[:, :5], R[:, 5:], 2.0, FactorOf(40, 40.0))
    np.testing.assert_allclose(coded_solution(factor), coded_solution(coded), rtol=1e-9)


def test_without_noise_it_is_least_squares_on_the_coded_rows() -> None:
    coded = encode(random_rows(60, 5, 2, seed=65), 40, noise_variance=0.0, rng=np.random.default_rng(66))
    expected = np.linalg.lstsq(coded.features, coded.labels, rcond=None)[0]
    np.testing.assert_allclose(coded_solution(coded, ridge_share=0.0), expected, rtol=1e-9)


def test_without_noise_on_singular_data_it_has_the_least_norm() -> None:
    X = np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]])
    Y = np.array([[1.0], [-1.0]])
    coded = encode(Rows(X, Y), 40, noise_variance=0.0, rng=np.random.default_rng(67))
    np.testing.assert_allclose(coded_solution(coded, ridge_share=0.0), np.linalg.pinv(X) @ Y, rtol=1e-6)


def test_devices_kept_apart_have_a_better_solution() -> None:
    """Mean squared distance to least squares over 30 draws; with 8 devices alike, a factor errs as with 8 times as many rows."""
    devices = [random_rows(40, 6, 1, seed=70 + i) for i in range(8)]
    X, Y = (np.vstack([getattr(rows, part) for rows in devices]) for part in ("features", "labels"))
    exact = np.linalg.lstsq(X, Y, rcond=None)[0]
    noise = np.full(8, 0.5)
    both = []
    for seed in range(30):
        factor = encode_factors(
            devices, 60, noise_variance=noise, label_noise_variance=np.zeros(8), streams=Streams(seed)
        )
        rows = encode(Rows(X, Y), 60, noise_variance=4.0, rng=np.random.default_rng(seed))
        both.append([np.sum((coded_solution(coded) - exact) ** 2) for coded in (factor, rows)])
    factor_error, rows_error = np.mean(both, axis=0)
    assert factor_error < 0.4 * rows_error


@pytest.mark.parametrize("share", [-0.1, math.nan])
def test_bad_input_is_refused(share: float) -> None:
    coded = encode(random_rows(9, 3, 1, seed=68), 10, noise_variance=0.1, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="ridge_share"):
        coded_solution(coded, share)
    with pytest.raises(InputError, match="effective_rows"):
        second_moment_error(np.ones(2), share)
    with pytest.raises(InputError, match="noise_variance"):
        hidden_error(np.ones(2), share, 10.0)
