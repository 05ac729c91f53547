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
    sample_factor,
    second_moment_error,
)
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import joined, random_rows, triangular_factor
from tests.uploads.support import encode_factors

D = 60
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


@pytest.mark.parametrize("c", [70, 500])
@pytest.mark.parametrize("noise", [0.05, 5.0, 2000.0])
@pytest.mark.parametrize("name", CASES)
def test_the_predicted_error_has_the_energy_of_those_that_occur(name: str, noise: float, c: int) -> None:
    """Low and high noise, few and many coded rows: within a factor of two of twice the root mean square singular value.

    The semicircle of that mean square ends there. Under strong noise it is the operator norm, too.
    """
    rng, spectra = np.random.default_rng(60), CASES[name]
    H = np.sum(spectra, axis=0)
    energies, norms = [], []
    with one_blas_thread():
        for _ in range(4):
            coded = factor_of_sum(spectra, noise, c, rng)
            second = coded.features.T @ coded.features / c
            error = second - np.diag(H + noise)
            predicted = second_moment_error(np.trace(second) / D, D, coded.effective_rows)
            energies.append(predicted / (2 * np.linalg.norm(error) / math.sqrt(D)))
            norms.append(predicted / np.linalg.norm(error, 2))
    assert 0.5 < np.mean(energies) < 2.0
    assert np.mean(norms) < 1.5, "never far above the operator norm"
    if noise == 2000.0:
        assert np.mean(norms) > 0.67


@pytest.mark.parametrize("d", [5, 60])
def test_noise_alone_has_the_edge_of_marchenko_and_pastur(d: int) -> None:
    """The operator norm over 20 draws of white rows; at d = 5 finite size shifts the edge by a third."""
    rng, n = np.random.default_rng(61), 240
    with one_blas_thread():
        drawn = [rng.standard_normal((n, d)) for _ in range(20)]
        norms = [np.linalg.norm(3.0 * Z.T @ Z / n - 3.0 * np.eye(d), 2) for Z in drawn]
    predicted = second_moment_error(3.0, d, float(n))
    assert predicted == pytest.approx(3 * ((1 + math.sqrt(d / n)) ** 2 - 1))
    assert predicted == pytest.approx(float(np.mean(norms)), rel=0.35 if d == 5 else 0.1)


def test_the_solution_is_that_of_the_damped_normal_equations() -> None:
    rows = random_rows(60, 5, 2, seed=61)
    coded = encode(rows, 40, noise_variance=8.0, rng=np.random.default_rng(62))
    X, Y = coded.features, coded.labels
    values, vectors = np.linalg.eigh(X.T @ X / 40)
    ridge = 0.25 * second_moment_error(float(np.mean(values)), 5, 40.0)
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
        second_moment_error(1.0, 2, share)
    with pytest.raises(InputError, match="mean_eigenvalue"):
        second_moment_error(share, 2, 10.0)
