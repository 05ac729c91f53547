from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from codedfl.coding import Gram, Rows, compute_gram, sample_coded
from codedfl.coding import _sampler as sampler_module
from codedfl.coding._sampler import covariance_factor
from codedfl.errors import InputError
from tests.coding.law import (
    assert_rows_follow,
    assert_rows_uncorrelated,
    covariance,
    joined,
    random_rows,
)

CODED = 20_000


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("noise", "label_noise"), [(0.0, 0.0), (2.0, 0.0), (0.7, 3.0), (0.0, 1.5)])
def test_moments_of_one_device(weighted: bool, noise: float, label_noise: float) -> None:
    rows = random_rows(9, 4, 2, seed=1, weighted=weighted)
    coded = sample_coded(
        compute_gram([rows]),
        CODED,
        noise_variance=noise,
        label_noise_variance=label_noise,
        rng=np.random.default_rng(21),
    )
    S = covariance([rows], noise, label_noise)
    assert_rows_follow(joined(coded), S)
    assert_rows_uncorrelated(joined(coded), S, lag=1)
    assert coded.noise_variance == noise
    assert coded.features.dtype == coded.labels.dtype == np.float64


def test_moments_of_the_sum_over_devices() -> None:
    devices = [random_rows(samples, 3, 2, seed=samples, weighted=samples == 7) for samples in (1, 4, 7, 12)]
    noise = [0.0, 0.3, 1.0, 0.2]
    coded = sample_coded(compute_gram(devices), CODED, noise_variance=sum(noise), rng=np.random.default_rng(22))
    assert_rows_follow(joined(coded), covariance(devices, sum(noise)))


def test_blocks_of_rows_are_independent_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampler_module, "CODED_BLOCK", 7)
    rows = random_rows(9, 3, 1, seed=3)
    gram, S = compute_gram([rows]), covariance([rows], 0.5)
    coded = joined(sample_coded(gram, CODED, noise_variance=0.5, rng=np.random.default_rng(23)))
    assert_rows_follow(coded, S)
    for lag in (1, 7, 14):
        assert_rows_uncorrelated(coded, S, lag)
    for c in (1, 6, 7, 8, 14, 15):
        few = sample_coded(gram, c, noise_variance=0.5, rng=np.random.default_rng(23))
        assert (few.features.shape, few.labels.shape) == ((c, 3), (c, 1))
        assert len(np.unique(few.features)) == 3 * c


def test_singular_data_without_noise_goes_through_eigenvalues() -> None:
    # three samples in five dimensions, of small integers: the Gram matrix is exact and Cholesky meets a zero pivot
    X = np.array([[1.0, 0.0, 2.0, 1.0, -1.0], [0.0, 1.0, 1.0, -2.0, 0.0], [1.0, 1.0, 0.0, 1.0, 3.0]])
    Y = np.array([[1.0], [-1.0], [2.0]])
    rows = Rows(X, Y)
    gram, S = compute_gram([rows]), covariance([rows], 0.0)
    with pytest.raises(scipy.linalg.LinAlgError):
        scipy.linalg.cholesky(gram.matrix)
    factor = covariance_factor(gram.matrix)
    np.testing.assert_allclose(factor.T @ factor, S, rtol=0, atol=1e-13 * np.trace(S))

    coded = joined(sample_coded(gram, CODED, noise_variance=0.0, rng=np.random.default_rng(24)))
    assert_rows_follow(coded, S)
    # eigenvalues that should be zero are rounding, eps ||S||, and enter the rows by their square root
    Z = np.hstack([X, Y])
    outside = coded - coded @ np.linalg.pinv(Z) @ Z
    assert np.abs(outside).max() <= 6 * np.sqrt(len(Z.T) ** 2 * np.finfo(float).eps * np.trace(S))


def test_a_label_that_is_always_zero_stays_zero_without_eigenvectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scipy.linalg.eigh", None)
    rows = random_rows(9, 3, 2, seed=4)
    rows.labels[:, 1] = 0.0
    coded = sample_coded(compute_gram([rows]), CODED, noise_variance=0.5, rng=np.random.default_rng(25))
    assert not coded.labels[:, 1].any()
    assert_rows_follow(joined(coded)[:, :4], covariance([rows], 0.5)[:4, :4])


def test_factor_of_a_regular_matrix_is_its_cholesky_factor() -> None:
    S = covariance([random_rows(9, 4, 1, seed=5)], 1.0)
    factor = covariance_factor(S)
    assert (factor == np.triu(factor)).all()
    np.testing.assert_allclose(factor.T @ factor, S, rtol=1e-13)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_of_the_result(dtype: type[np.floating]) -> None:
    rows = random_rows(9, 4, 2, seed=6)
    coded = sample_coded(
        compute_gram([rows]), CODED, noise_variance=0.5, rng=np.random.default_rng(26), dtype=np.dtype(dtype)
    )
    assert coded.features.dtype == coded.labels.dtype == dtype
    assert_rows_follow(joined(coded).astype(np.float64), covariance([rows], 0.5))


def test_the_seed_decides() -> None:
    gram = compute_gram([random_rows(9, 4, 2, seed=7)])
    once, again, other = (
        joined(sample_coded(gram, 30, noise_variance=0.3, rng=np.random.default_rng(seed))) for seed in (7, 7, 8)
    )
    assert (once == again).all()
    assert (once != other).all()


def test_the_gram_matrix_is_left_as_it_was() -> None:
    gram = compute_gram([random_rows(9, 4, 2, seed=7)])
    before = gram.matrix.copy()
    sample_coded(gram, 10, noise_variance=5.0, label_noise_variance=5.0, rng=np.random.default_rng(0))
    assert (gram.matrix == before).all()


@pytest.mark.parametrize(
    ("coded_samples", "noise", "label_noise", "field"),
    [
        (0, 1.0, 0.0, "coded_samples = 0"),
        (5, -0.1, 0.0, "noise_variance = -0.1"),
        (5, float("inf"), 0.0, "noise_variance = inf"),
        (5, 1.0, float("nan"), "label_noise_variance = nan"),
    ],
)
def test_bad_input_is_refused(coded_samples: int, noise: float, label_noise: float, field: str) -> None:
    gram = Gram(np.eye(3), dimension=2, samples=3)
    with pytest.raises(InputError, match=f"^{field} must be"):
        sample_coded(
            gram,
            coded_samples,
            noise_variance=noise,
            label_noise_variance=label_noise,
            rng=np.random.default_rng(0),
        )
