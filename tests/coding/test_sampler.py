from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from codedfl.coding import CodedData, EncoderName, Gram, Rows, compute_gram, encode, encode_all, sample_coded
from codedfl.coding import _gram as gram_module
from codedfl.coding import _sampler as sampler_module
from codedfl.coding._sampler import cheaper_encoder, covariance_factor
from codedfl.errors import InputError
from codedfl.parallel import Workers
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import (
    SIGMAS,
    assert_rows_follow,
    assert_rows_uncorrelated,
    assert_within,
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


BOTH: list[EncoderName] = ["direct", "gram"]
DEVICES = [random_rows(samples, 3, 2, seed=samples, weighted=samples == 5) for samples in (1, 5, 8)]
NOISE, LABEL_NOISE = np.array([0.0, 0.5, 2.0]), np.array([1.0, 0.0, 0.25])


def coded_data(
    encoder: EncoderName,
    coded_samples: int = CODED,
    *,
    noise: FloatArray = NOISE,
    label_noise: FloatArray = LABEL_NOISE,
    batch: int = 0,
    seed: int = 40,
    workers: Workers | None = None,
) -> CodedData:
    return encode_all(
        DEVICES,
        coded_samples,
        noise_variance=noise,
        label_noise_variance=label_noise,
        streams=Streams(seed),
        batch=batch,
        encoder=encoder,
        workers=workers,
    )


@pytest.mark.parametrize("encoder", BOTH)
def test_the_sum_has_summed_moments_and_summed_noise(encoder: EncoderName) -> None:
    coded = coded_data(encoder)
    assert_rows_follow(joined(coded), covariance(DEVICES, 2.5, 1.25))
    assert coded.noise_variance == 2.5


@pytest.mark.parametrize("encoder", BOTH)
def test_without_label_noise_as_in_the_paper(encoder: EncoderName) -> None:
    coded = coded_data(encoder, label_noise=np.zeros(3))
    assert_rows_follow(joined(coded), covariance(DEVICES, 2.5, 0.0))


@pytest.mark.parametrize("batch", [0, 3])
def test_direct_is_the_sum_of_what_each_device_encodes(batch: int) -> None:
    coded = coded_data("direct", 600, batch=batch)
    uploads = [
        encode(
            rows,
            600,
            noise_variance=float(NOISE[i]),
            label_noise_variance=float(LABEL_NOISE[i]),
            rng=Streams(40).at("coding", device=i, round=batch),
        )
        for i, rows in enumerate(DEVICES)
    ]
    # three terms: two roundings of partial sums, whatever their order
    size = np.sum([np.abs(joined(upload)) for upload in uploads], axis=0)
    expected = np.sum([joined(upload) for upload in uploads], axis=0)
    assert (np.abs(joined(coded) - expected) <= 4 * np.finfo(float).eps * size).all()


def test_gram_is_a_draw_from_the_sum() -> None:
    coded = coded_data("gram", 600, batch=2)
    expected = sample_coded(
        compute_gram(DEVICES),
        600,
        noise_variance=2.5,
        label_noise_variance=1.25,
        rng=Streams(40).at("coding-sum", round=2),
    )
    assert (joined(coded) == joined(expected)).all()


@pytest.mark.parametrize("changed", [0, 1, 2])
def test_each_device_adds_its_own_noise(changed: int) -> None:
    silent = np.zeros(3)
    only = np.where(np.arange(3) == changed, 4.0, 0.0)
    clean = coded_data("direct", noise=silent, label_noise=silent)
    noisy = coded_data("direct", noise=only, label_noise=silent)
    assert_rows_follow(noisy.features - clean.features, 4.0 * np.eye(3))
    assert (noisy.labels == clean.labels).all()
    noisy_labels = coded_data("direct", noise=silent, label_noise=only)
    assert_rows_follow(noisy_labels.labels - clean.labels, 4.0 * np.eye(2))
    assert (noisy_labels.features == clean.features).all()


@pytest.mark.parametrize("encoder", BOTH)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_number_of_workers_leaves_no_trace(
    encoder: EncoderName, dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gram_module, "BLOCK_ROWS", 64)
    data = [random_rows(100 + 37 * i, 20, 3, seed=i, weighted=True) for i in range(7)]
    devices = [Rows(r.features.astype(dtype), r.labels.astype(dtype), r.weights) for r in data]

    def with_workers(workers: Workers | None) -> CodedData:
        noise = np.linspace(0, 1, 7)
        return encode_all(
            devices,
            700,
            noise_variance=noise,
            label_noise_variance=noise[::-1],
            streams=Streams(41),
            encoder=encoder,
            workers=workers,
        )

    alone = with_workers(None)
    assert alone.features.dtype == alone.labels.dtype == dtype
    for count in (1, 2, 3, 8):
        with Workers(count) as workers:
            together = with_workers(workers)
        assert (joined(together) == joined(alone)).all()


@pytest.mark.parametrize("encoder", BOTH)
def test_seed_and_batch_decide(encoder: EncoderName) -> None:
    first = joined(coded_data(encoder, 50))
    assert (joined(coded_data(encoder, 50)) == first).all()
    assert (joined(coded_data(encoder, 50, batch=1)) != first).all()
    assert (joined(coded_data(encoder, 50, seed=42)) != first).all()


@pytest.mark.parametrize("encoder", BOTH)
def test_batches_are_uncorrelated(encoder: EncoderName) -> None:
    S = covariance(DEVICES, 2.5, 1.25)
    a, b = joined(coded_data(encoder)), joined(coded_data(encoder, batch=1))
    assert_within(a.T @ b / CODED, np.sqrt(np.outer(np.diag(S), np.diag(S)) / CODED))


def test_the_data_of_devices_is_left_as_it_was() -> None:
    before = [rows.joined() for rows in DEVICES]
    for encoder in BOTH:
        coded_data(encoder, 20)
    assert all((was == rows.joined()).all() for was, rows in zip(before, DEVICES, strict=True))


def shaped(samples: list[int], d: int, o: int) -> list[Rows]:
    """Return devices of a shape, without memory behind it."""
    zero = np.zeros(())
    return [Rows(np.broadcast_to(zero, (count, d)), np.broadcast_to(zero, (count, o))) for count in samples]


def test_cheaper_encoder_at_both_ends() -> None:
    mnist = shaped([3000] * 20, 2000, 10)
    assert cheaper_encoder(mnist, 10_000) == "gram"
    assert cheaper_encoder(mnist, 100) == "direct"
    assert cheaper_encoder(shaped([10] * 5, 2000, 10), 10_000) == "direct"  # 50 samples: a Gram matrix costs more
    # the matrix alone is what makes it dear at c = 500
    assert cheaper_encoder(mnist, 500) == "direct"
    assert cheaper_encoder(mnist, 500, gram_at_hand=True) == "gram"


@given(
    samples=st.lists(st.integers(0, 5000), min_size=1, max_size=4),
    d=st.integers(1, 3000),
    o=st.integers(1, 20),
    c=st.integers(1, 20_000),
    at_hand=st.booleans(),
)
def test_cheaper_encoder_counts_multiplications(samples: list[int], d: int, o: int, c: int, at_hand: bool) -> None:
    m, n = sum(samples), d + o
    six_direct = 6 * c * m * n  # in sixths, so that all is exact
    six_gram = (0 if at_hand else 3 * m * n * n) + 2 * n**3 + 6 * c * n * n
    chosen = cheaper_encoder(shaped(samples, d, o), c, gram_at_hand=at_hand)
    if six_direct != six_gram:
        assert chosen == ("direct" if six_direct < six_gram else "gram")


def test_auto_takes_the_cheaper_one() -> None:
    for c in (1, 50):
        chosen = cheaper_encoder(DEVICES, c)
        assert (joined(coded_data("auto", c)) == joined(coded_data(chosen, c))).all()
    assert {cheaper_encoder(DEVICES, c) for c in (1, 50)} == {"direct", "gram"}


@pytest.mark.parametrize("encoder", ["gram", "auto"])
def test_a_gram_matrix_at_hand_is_used(encoder: EncoderName) -> None:
    assert cheaper_encoder(DEVICES, 30, gram_at_hand=True) == "gram"
    other = [random_rows(6, 3, 2, seed=99)]  # not that of these devices, to tell that it is what counts
    given_gram = encode_all(
        DEVICES,
        CODED,
        noise_variance=NOISE,
        label_noise_variance=LABEL_NOISE,
        streams=Streams(40),
        encoder=encoder,
        gram=compute_gram(other),
    )
    assert_rows_follow(joined(given_gram), covariance(other, 2.5, 1.25))


@pytest.mark.parametrize("encoder", BOTH)
@pytest.mark.parametrize("noise_variance", [0.0, 1.5])
def test_the_coded_gradient_is_that_of_the_weighted_data(encoder: EncoderName, noise_variance: float) -> None:
    """E over G of (1/c) X~^T (X~ W - Y~) is X^T diag(w)^2 (X W - Y), plus sigma^2 W when there is noise.

    With V = [W; -I], row z gives x (z V): its mean is (S V) in the rows of x, and by Isserlis its variance is
    S_aa (V^T S V)_bb + (S V)_ab^2.
    """
    devices = [random_rows(samples, 3, 2, seed=50 + samples, weighted=True) for samples in (4, 9)]
    W = np.random.default_rng(43).standard_normal((3, 2))
    coded = encode_all(
        devices,
        CODED,
        noise_variance=np.array([noise_variance, 0.0]),
        label_noise_variance=np.zeros(2),
        streams=Streams(44),
        encoder=encoder,
    )
    gradient = coded.features.T @ (coded.features @ W - coded.labels) / CODED

    expected = noise_variance * W
    for rows in devices:
        assert rows.weights is not None
        expected = expected + rows.features.T @ np.diag(rows.weights**2) @ (rows.features @ W - rows.labels)
    S, V = covariance(devices, noise_variance), np.vstack([W, -np.eye(2)])
    variance = np.outer(np.diag(S)[:3], np.diag(V.T @ S @ V)) + (S @ V)[:3] ** 2
    assert_within(gradient - expected, np.sqrt(variance / CODED))
    # weights matter: without them the gradient is elsewhere
    plain = sum(rows.features.T @ (rows.features @ W - rows.labels) for rows in devices)
    assert np.max(np.abs(gradient - plain) / np.sqrt(variance / CODED)) > 2 * SIGMAS
