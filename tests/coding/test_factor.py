"""The triangular factor has the law of the factor of coded rows, and gradients on it are those on the rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import scipy.stats

from codedfl.coding import (
    CodedData,
    FactorOf,
    Gram,
    Rows,
    compute_gram,
    encode,
    encode_all,
    sample_factor,
)
from codedfl.coding._factor import BLOCK, multiply_upper, square_upper
from codedfl.errors import InputError
from codedfl.parallel import Workers
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import KS_LEVEL, assert_within, covariance, joined, random_rows, triangular_factor
from tests.uploads.support import encode_factors

DRAWS = 3000
C, NOISE, LABEL_NOISE = 7, 0.8, 0.3
ROWS = random_rows(9, 3, 1, seed=50, scale=0.5)
S = covariance([ROWS], NOISE, LABEL_NOISE)

DEVICES = [random_rows(samples, 3, 2, seed=samples, scale=0.5, weighted=samples == 6) for samples in (3, 6, 9)]

DEVICE_NOISE, DEVICE_LABEL_NOISE = np.array([0.5, 1.0, 2.5]), np.array([0.0, 0.2, 0.1])


@cache
def drawn(noise: float = NOISE) -> FloatArray:
    rng, gram = np.random.default_rng(51), compute_gram([ROWS])
    return np.array(
        [sample_factor(gram, C, noise_variance=noise, label_noise_variance=LABEL_NOISE, rng=rng) for _ in range(DRAWS)]
    )


@cache
def of_rows() -> FloatArray:
    """Return the factors of rows that the direct encoder made."""
    rng = np.random.default_rng(52)
    coded = (encode(ROWS, C, noise_variance=NOISE, label_noise_variance=LABEL_NOISE, rng=rng) for _ in range(DRAWS))
    return np.array([triangular_factor(joined(one)) for one in coded])


def moments(factors: FloatArray) -> FloatArray:
    squares: FloatArray = np.einsum("nij,nik->njk", factors, factors)
    return squares


def test_it_is_an_upper_triangle_with_a_diagonal_of_zero_or_more() -> None:
    for factors in (drawn(), of_rows()):
        assert (factors == np.triu(factors)).all()
        assert np.einsum("nii->ni", factors).min() > 0


def test_second_moments_are_wishart() -> None:
    """Mean ``c S`` and variance ``c (S_jk^2 + S_jj S_kk)``, each within 4.5 of its own standard errors."""
    found = moments(drawn())
    variance = C * (S**2 + np.outer(np.diag(S), np.diag(S)))
    assert_within(found.mean(axis=0) - C * S, np.sqrt(variance / DRAWS))
    squared = (found - C * S) ** 2
    assert_within(squared.mean(axis=0) - variance, squared.std(axis=0) / np.sqrt(DRAWS))


FUNCTIONALS: dict[str, Callable[[FloatArray], FloatArray]] = {
    "first pivot": lambda R: R[:, 0, 0],
    "last pivot": lambda R: R[:, -1, -1],
    "off the diagonal": lambda R: R[:, 0, -1],
    "middle": lambda R: R[:, 1, 2],
    "trace": lambda R: np.sum(R**2, axis=(1, 2)),
    "determinant": lambda R: np.log(np.einsum("nii->ni", R)).sum(axis=1),
    "largest eigenvalue": lambda R: np.linalg.norm(R, 2, axis=(1, 2)),
    "least eigenvalue": lambda R: np.linalg.norm(R, -2, axis=(1, 2)),
    "solution": lambda R: np.linalg.solve(R[:, :3, :3], R[:, :3, 3:])[:, 0, 0],
}


@pytest.mark.parametrize("name", FUNCTIONALS)
def test_functions_of_it_have_the_law_of_those_of_encoded_rows(name: str) -> None:
    functional = FUNCTIONALS[name]
    ours, theirs = functional(drawn()), functional(of_rows())
    assert scipy.stats.ks_2samp(ours, theirs).pvalue > KS_LEVEL / len(FUNCTIONALS)


@pytest.mark.slow
def test_the_comparison_would_notice_half_as_much_noise_again() -> None:
    trace = FUNCTIONALS["trace"]
    assert scipy.stats.ks_2samp(trace(drawn(1.5 * NOISE)), trace(of_rows())).pvalue < KS_LEVEL


@pytest.mark.parametrize("draws", [300, pytest.param(DRAWS, marks=pytest.mark.slow)])
def test_singular_data_without_noise(draws: int) -> None:
    """Two samples in four columns: the second moment has rank two, and still the mean ``c S``."""
    rows = Rows(np.array([[1.0, 0.0, 2.0], [0.0, 1.0, 1.0]]), np.array([[1.0], [-1.0]]))
    gram, rng = compute_gram([rows]), np.random.default_rng(53)
    factors = np.array([sample_factor(gram, C, noise_variance=0.0, rng=rng) for _ in range(draws)])
    assert (factors == np.triu(factors)).all()
    exact = covariance([rows], 0.0)
    variance = C * (exact**2 + np.outer(np.diag(exact), np.diag(exact)))
    assert_within(moments(factors).mean(axis=0) - C * exact, np.sqrt(variance / draws))
    values = np.linalg.eigvalsh(moments(factors))
    assert np.abs(values[:, :2]).max() < 1e-12 * values.max()
    coded = np.array([triangular_factor(joined(encode(rows, C, noise_variance=0.0, rng=rng))) for _ in range(draws)])
    top = [np.linalg.norm(R, 2, axis=(1, 2)) for R in (factors, coded)]
    assert scipy.stats.ks_2samp(*top).pvalue > KS_LEVEL


def test_a_label_that_is_always_zero_stays_zero() -> None:
    rows = random_rows(9, 3, 2, seed=54)
    rows.labels[:, 1] = 0.0
    factor = sample_factor(compute_gram([rows]), 20, noise_variance=0.1, rng=np.random.default_rng(0))
    assert not factor[:, 4].any()


def gradient(coded: CodedData, W: FloatArray) -> FloatArray:
    X, Y = coded.features, coded.labels
    result: FloatArray = X.T @ (X @ W - Y) / coded.coded_samples - coded.noise_variance * W
    return result


def test_full_batch_gradients_on_the_factor_of_rows_are_those_on_the_rows() -> None:
    coded = encode(random_rows(40, 6, 2, seed=55), 30, noise_variance=0.4, rng=np.random.default_rng(56))
    R = triangular_factor(joined(coded))
    assert R.shape == (8, 8)
    factor = CodedData(R[:, :6], R[:, 6:], 0.4, FactorOf(30, 30.0))
    W = np.random.default_rng(57).standard_normal((6, 2))
    expected = gradient(coded, W)
    np.testing.assert_allclose(gradient(factor, W), expected, rtol=0, atol=1e-12 * np.abs(expected).max())


def summed(seed: int = 58, coded_samples: int = 8, **options: object) -> CodedData:
    given: dict[str, object] = {
        "noise_variance": DEVICE_NOISE,
        "label_noise_variance": DEVICE_LABEL_NOISE,
        "streams": Streams(seed),
    }
    return encode_factors(DEVICES, coded_samples, **{**given, **options})  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_server_adds_second_moments_of_independent_devices() -> None:
    """The mean is that of summed rows; the variance is the sum of the devices' variances, which is smaller."""
    draws, c = 1500, 8
    parts = [covariance([rows], v, w) for rows, v, w in zip(DEVICES, DEVICE_NOISE, DEVICE_LABEL_NOISE, strict=True)]
    total = np.sum(parts, axis=0)
    found = np.array([joined(summed(seed)).T @ joined(summed(seed)) / c for seed in range(draws)])
    variance = np.sum([part**2 + np.outer(np.diag(part), np.diag(part)) for part in parts], axis=0) / c
    assert_within(found.mean(axis=0) - total, np.sqrt(variance / draws))
    squared = (found - total) ** 2
    assert_within(squared.mean(axis=0) - variance, squared.std(axis=0) / np.sqrt(draws))
    of_rows = (np.square(total) + np.outer(np.diag(total), np.diag(total))) / c
    assert (variance < 0.8 * of_rows).all()


def test_it_is_the_factor_of_the_sum_of_what_each_device_draws() -> None:
    coded = summed(batch=3)
    alone = [
        sample_factor(
            compute_gram([rows]),
            8,
            noise_variance=float(DEVICE_NOISE[i]),
            label_noise_variance=float(DEVICE_LABEL_NOISE[i]),
            rng=Streams(58).at("coding-factor", device=i, round=3),
        )
        for i, rows in enumerate(DEVICES)
    ]
    np.testing.assert_allclose(joined(coded).T @ joined(coded), sum(R.T @ R for R in alone), rtol=1e-12, atol=1e-12)
    assert (joined(coded) == np.triu(joined(coded))).all()
    assert coded.noise_variance == 4.0
    assert coded.coded_samples == 8
    assert len(coded) == 5
    traces = np.array([np.sum(R[:, :3] ** 2) for R in alone])
    assert coded.effective_rows == pytest.approx(8 * traces.sum() ** 2 / np.sum(traces**2))
    assert 8 < coded.effective_rows < 24


def test_rows_have_as_many_effective_rows_as_they_are() -> None:
    coded = encode_all(
        DEVICES, 8, noise_variance=DEVICE_NOISE, label_noise_variance=DEVICE_LABEL_NOISE, streams=Streams(0)
    )
    assert (coded.coded_samples, coded.effective_rows, coded.factor) == (8, 8.0, None)


def test_clipping_is_that_of_the_samples() -> None:
    clipped = summed(clip_norm=0.7)
    by_hand = encode_factors(
        [rows.clipped(0.7) for rows in DEVICES],
        8,
        noise_variance=DEVICE_NOISE,
        label_noise_variance=DEVICE_LABEL_NOISE,
        streams=Streams(58),
    )
    assert np.array_equal(clipped.features, by_hand.features)
    assert not np.array_equal(clipped.features, summed().features)


def test_a_device_with_neither_samples_nor_noise_adds_nothing() -> None:
    empty = Rows(np.zeros((0, 3)), np.zeros((0, 2)))
    arguments = {"streams": Streams(58), "label_noise_variance": np.zeros(4)}
    with_it = encode_factors([*DEVICES, empty], 8, noise_variance=np.array([0.5, 1.0, 2.5, 0.0]), **arguments)  # type: ignore[arg-type]
    without = summed(label_noise_variance=np.zeros(3))
    assert np.array_equal(joined(with_it), joined(without))
    assert with_it.effective_rows == without.effective_rows


def test_workers_and_precision() -> None:
    with Workers(3) as workers:
        assert np.array_equal(joined(summed(workers=workers)), joined(summed()))
    single = [Rows(rows.features.astype(np.float32), rows.labels.astype(np.float32), rows.weights) for rows in DEVICES]
    coded = encode_factors(
        single, 8, noise_variance=DEVICE_NOISE, label_noise_variance=DEVICE_LABEL_NOISE, streams=Streams(58)
    )
    assert coded.features.dtype == coded.labels.dtype == np.float32
    np.testing.assert_allclose(joined(coded), joined(summed()), atol=1e-5)


@pytest.mark.parametrize(
    ("coded_samples", "noise", "field"),
    [(3, 1.0, "coding.coded_samples = 3 is below the d \\+ o = 4"), (9, -1.0, "noise_variance = -1.0")],
)
def test_bad_input_is_refused(coded_samples: int, noise: float, field: str) -> None:
    with pytest.raises(InputError, match=field):
        sample_factor(Gram(np.eye(4), 3, 4), coded_samples, noise_variance=noise, rng=np.random.default_rng(0))
    with pytest.raises(InputError, match="one for each device"):
        summed(noise_variance=np.ones(2))


def test_as_many_rows_as_columns_are_enough() -> None:
    factor = sample_factor(Gram(np.eye(4), 3, 4), 4, noise_variance=0.0, rng=np.random.default_rng(0))
    assert np.isfinite(factor).all()


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_equals_the_plain_product(size: int) -> None:
    # The error of a sum of n products is at most n eps times the sum of magnitudes, in either order.
    rng = np.random.default_rng(size)
    left, right = (np.triu(rng.standard_normal((size, size))) for _ in range(2))
    for found, first, second in (
        (multiply_upper(left, right), left, right),
        (square_upper(left), left.T, left),
    ):
        bound = 2 * size * np.finfo(float).eps * (np.abs(first) @ np.abs(second))
        assert (np.abs(found - first @ second) <= bound).all()


@pytest.mark.parametrize("size", [5, BLOCK + 5])
def test_nothing_below_the_diagonal(size: int) -> None:
    left = np.triu(np.random.default_rng(1).standard_normal((size, size)))
    product = multiply_upper(left, left)
    assert (product == np.triu(product)).all()


def test_any_layout() -> None:
    left = np.triu(np.random.default_rng(2).standard_normal((BLOCK + 9, BLOCK + 9)))
    assert np.allclose(multiply_upper(np.asfortranarray(left), left), left @ left, rtol=0, atol=1e-9)
