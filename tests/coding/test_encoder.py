from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.stats

from codedfl.coding import Rows, encode
from codedfl.coding import _encoder as encoder_module
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
def test_moments_of_many_coded_rows(weighted: bool, noise: float, label_noise: float) -> None:
    rows = random_rows(9, 4, 2, seed=1, weighted=weighted)
    coded = encode(rows, CODED, noise_variance=noise, label_noise_variance=label_noise, rng=np.random.default_rng(11))
    S = covariance([rows], noise, label_noise)
    assert_rows_follow(joined(coded), S)
    assert_rows_uncorrelated(joined(coded), S, lag=1)
    assert coded.noise_variance == noise
    assert len(coded) == CODED


@pytest.mark.slow
def test_moments_over_many_independent_encodings() -> None:
    rows = random_rows(6, 3, 1, seed=2, weighted=True)
    encodings = [joined(encode(rows, 3, noise_variance=0.5, rng=np.random.default_rng([4, i]))) for i in range(4000)]
    assert_rows_follow(np.vstack(encodings), covariance([rows], 0.5))


def test_the_projection_is_standard_normal_and_shared_by_features_and_labels() -> None:
    # with X = I the coded features are G itself
    Y = np.random.default_rng(3).standard_normal((5, 2))
    coded = encode(Rows(np.eye(5), Y), 4000, noise_variance=0.0, rng=np.random.default_rng(12))
    assert scipy.stats.kstest(coded.features.ravel(), "norm").pvalue > 1e-3
    np.testing.assert_allclose(coded.labels, coded.features @ Y, rtol=0, atol=1e-13)

    weights = np.array([0.0, 0.5, 1.0, 2.0, 3.0])
    weighted = encode(Rows(np.eye(5), Y, weights), 4000, noise_variance=0.0, rng=np.random.default_rng(12))
    np.testing.assert_allclose(weighted.features, coded.features * weights, rtol=0, atol=1e-13)
    np.testing.assert_allclose(weighted.labels, (coded.features * weights) @ Y, rtol=0, atol=1e-12)


def test_weights_of_one_change_nothing() -> None:
    rows = random_rows(9, 4, 2, seed=1)
    plain = encode(rows, 50, noise_variance=0.3, rng=np.random.default_rng(5))
    ones = encode(Rows(rows.features, rows.labels, np.ones(9)), 50, noise_variance=0.3, rng=np.random.default_rng(5))
    assert (joined(plain) == joined(ones)).all()


def test_without_noise_coded_rows_lie_in_the_row_space_of_the_data() -> None:
    rows = random_rows(3, 8, 1, seed=4)  # l = 3 samples in d = 8 dimensions
    onto = np.linalg.pinv(rows.features) @ rows.features
    clean = encode(rows, 40, noise_variance=0.0, rng=np.random.default_rng(6)).features
    assert np.abs(clean - clean @ onto).max() <= 1e-13 * np.abs(clean).max() * 8
    assert np.linalg.matrix_rank(clean) == 3
    noisy = encode(rows, 40, noise_variance=1e-6, rng=np.random.default_rng(6)).features
    assert np.linalg.matrix_rank(noisy) == 8


def test_the_seed_decides() -> None:
    rows = random_rows(9, 4, 2, seed=1)
    once, again, other = (
        joined(encode(rows, 30, noise_variance=0.3, label_noise_variance=0.1, rng=np.random.default_rng(seed)))
        for seed in (7, 7, 8)
    )
    assert (once == again).all()
    assert (once != other).all()


def test_different_noise_shares_the_projection() -> None:
    rows = random_rows(9, 4, 2, seed=1)
    none, some, more = (encode(rows, 700, noise_variance=v, rng=np.random.default_rng(9)) for v in (0.0, 0.25, 1.0))
    assert (none.labels == some.labels).all()
    assert (none.labels == more.labels).all()
    # the noise is the same draw, twice as large: exact up to the rounding of the sums X~ it is read off
    difference = (more.features - none.features) - 2 * (some.features - none.features)
    assert np.abs(difference).max() <= 4 * np.spacing(np.abs(more.features).max() + np.abs(none.features).max())
    assert_rows_follow(2 * (some.features - none.features), np.eye(4))

    # with no data at all the noise is all there is, and exactly twice as large
    empty = Rows(np.zeros((9, 4)), np.zeros((9, 2)))
    half, one = (encode(empty, 700, noise_variance=v, rng=np.random.default_rng(9)) for v in (0.25, 1.0))
    assert (one.features == 2 * half.features).all()
    assert not one.labels.any()


def test_label_noise_leaves_the_features_alone() -> None:
    rows = random_rows(9, 4, 2, seed=1)
    without, with_noise = (
        encode(rows, 700, noise_variance=0.5, label_noise_variance=v, rng=np.random.default_rng(9)) for v in (0.0, 2.0)
    )
    assert (without.features == with_noise.features).all()
    assert_rows_follow(with_noise.labels - without.labels, 2.0 * np.eye(2))


@pytest.mark.parametrize("weighted", [False, True])
def test_blocks_leave_the_law_unchanged(weighted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "CODED_BLOCK", 7)
    monkeypatch.setattr(encoder_module, "SAMPLE_BLOCK", 4)
    rows = random_rows(10, 3, 2, seed=5, weighted=weighted)  # blocks of 4, 4 and 2 samples
    coded = encode(rows, CODED, noise_variance=0.4, rng=np.random.default_rng(13))
    S = covariance([rows], 0.4)
    assert_rows_follow(joined(coded), S)
    for lag in (1, 7, 14):
        assert_rows_uncorrelated(joined(coded), S, lag)


def test_blocks_cover_every_coded_row_and_every_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoder_module, "CODED_BLOCK", 7)
    monkeypatch.setattr(encoder_module, "SAMPLE_BLOCK", 4)
    for samples in (1, 3, 4, 5, 8, 9):
        for c in (1, 6, 7, 8, 14, 15):
            Y = np.arange(2.0 * samples).reshape(samples, 2)
            coded = encode(Rows(np.eye(samples), Y), c, noise_variance=0.0, rng=np.random.default_rng(0))
            assert coded.features.shape == (c, samples)
            assert len(np.unique(coded.features)) == c * samples  # every entry of G is a draw of its own
            np.testing.assert_allclose(coded.labels, coded.features @ Y, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_projection_is_never_held_whole(weighted: bool) -> None:
    samples, c, d = 20_000, 2000, 4
    rows = Rows(np.ones((samples, d)), np.ones((samples, 1)), np.ones(samples) if weighted else None)
    tracemalloc.start()
    try:
        encode(rows, c, noise_variance=1.0, rng=np.random.default_rng(0))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    block = encoder_module.CODED_BLOCK * encoder_module.SAMPLE_BLOCK * 8
    outputs = c * (d + 1) * 8
    assert 2.25 * block + 3 * outputs < samples * c * 8 / 8  # the allowance is far below the whole of G
    assert peak < 2.25 * block + 3 * outputs  # the block in use and the one being drawn


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_precision_of_the_data_is_kept(dtype: type[np.floating], weighted: bool) -> None:
    rows = random_rows(9, 4, 2, seed=1, weighted=weighted)
    narrow = Rows(rows.features.astype(dtype), rows.labels.astype(dtype), rows.weights)
    coded = encode(narrow, CODED, noise_variance=0.5, label_noise_variance=0.2, rng=np.random.default_rng(14))
    assert coded.features.dtype == coded.labels.dtype == dtype
    assert_rows_follow(joined(coded).astype(np.float64), covariance([narrow], 0.5, 0.2))


def test_a_device_without_samples_uploads_noise() -> None:
    nothing = Rows(np.zeros((0, 3)), np.zeros((0, 1)))
    coded = encode(nothing, CODED, noise_variance=0.5, rng=np.random.default_rng(15))
    assert_rows_follow(coded.features, 0.5 * np.eye(3))
    assert not coded.labels.any()


def test_the_data_is_left_as_it_was() -> None:
    rows = random_rows(9, 4, 2, seed=1, weighted=True)
    assert rows.weights is not None
    before = rows.features.copy(), rows.labels.copy(), rows.weights.copy()
    encode(rows, 20, noise_variance=1.0, label_noise_variance=1.0, rng=np.random.default_rng(0))
    for was, now in zip(before, (rows.features, rows.labels, rows.weights), strict=True):
        assert (was == now).all()


@pytest.mark.parametrize(
    ("coded_samples", "noise", "label_noise", "field"),
    [
        (0, 1.0, 0.0, "coded_samples = 0"),
        (-3, 1.0, 0.0, "coded_samples = -3"),
        (5, -0.1, 0.0, "noise_variance = -0.1"),
        (5, float("nan"), 0.0, "noise_variance = nan"),
        (5, float("inf"), 0.0, "noise_variance = inf"),
        (5, 1.0, -2.0, "label_noise_variance = -2.0"),
        (5, 1.0, float("nan"), "label_noise_variance = nan"),
    ],
)
def test_bad_input_is_refused(coded_samples: int, noise: float, label_noise: float, field: str) -> None:
    with pytest.raises(InputError, match=f"^{field} must be"):
        encode(
            random_rows(3, 2, 1, seed=0),
            coded_samples,
            noise_variance=noise,
            label_noise_variance=label_noise,
            rng=np.random.default_rng(0),
        )


def test_clipping_bounds_every_sample_and_scales_its_label_with_it() -> None:
    rng = np.random.default_rng(3)
    X, Y = rng.standard_normal((50, 4)) * 2, rng.standard_normal((50, 2))
    norms = np.linalg.norm(X, axis=1)
    assert 5 < np.sum(norms > 3) < 45, "some samples must be clipped and some not"
    joined = Rows(X, Y).clipped(3.0).joined()
    np.testing.assert_allclose(joined, np.hstack([X, Y]) * np.minimum(1, 3 / norms)[:, None])
    assert np.linalg.norm(joined[:, :4], axis=1).max() <= 3 * (1 + 1e-12)


def test_clipping_keeps_a_weight_that_is_small_enough() -> None:
    clipped = Rows(np.array([[10.0], [10.0]]), np.ones((2, 1)), np.array([0.05, 0.5])).clipped(1.0)
    assert clipped.weights is not None
    np.testing.assert_allclose(clipped.weights, [0.05, 0.1])


def test_encoding_with_clipping_is_encoding_of_clipped_samples() -> None:
    rows = Rows(np.random.default_rng(4).standard_normal((30, 3)), np.ones((30, 1)))
    a = encode(rows, 7, noise_variance=0.1, clip_norm=1.0, rng=np.random.default_rng(0))
    b = encode(rows.clipped(1.0), 7, noise_variance=0.1, rng=np.random.default_rng(0))
    assert np.array_equal(a.features, b.features)
    assert np.array_equal(a.labels, b.labels)
    with pytest.raises(InputError, match="clip_norm = -1"):
        encode(rows, 7, noise_variance=0.1, clip_norm=-1.0, rng=np.random.default_rng(0))
