"""The attack of Fig. r1. Bounds are stated in standard errors over fixed seeds; theory is first-order in 1 / c."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass

import numpy as np
import pytest
import scipy.stats
from sklearn.datasets import load_digits

from codedfl.coding import Rows, compute_gram, encode, sample_coded
from codedfl.errors import InputError
from codedfl.privacy import AttackResult, attack_error, matched_error, reconstruct
from codedfl.privacy._attack import procrustes
from codedfl.streams import Streams
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class Measured:
    """A mean over seeds and its standard error."""

    mean: float
    standard_error: float

    @classmethod
    def over(cls, values: Sequence[float]) -> Measured:
        return cls(float(np.mean(values)), float(np.std(values, ddof=1) / math.sqrt(len(values))))


@dataclass(frozen=True)
class AttackPoint:
    """The attack at one known ratio and one noise variance."""

    known_ratio: float
    noise_variance: float
    oracle: Measured
    feasible: Measured
    baseline: Measured
    oracle_control: Measured
    feasible_control: Measured


def attack_point(X: FloatArray, ratio: float, c: int, variance: float, streams: Streams, repeats: int) -> AttackPoint:
    """Repeat the attack; repeat r draws the same stream at every point, so that points differ by ratio and noise alone."""
    results = [attack_error(X, ratio, c, variance, streams.at("attack", round=r)) for r in range(repeats)]
    names = ("oracle", "feasible", "baseline", "oracle_control", "feasible_control")
    errors = {name: Measured.over([getattr(result, f"{name}_error") for result in results]) for name in names}
    return AttackPoint(ratio, variance, **errors)


def images(count: int) -> FloatArray:
    """Small images in [0, 1], (count, 64); three border pixels of 64 are always 0, so that no Gram matrix is invertible."""
    pixels: FloatArray = load_digits().data[:count] / 16
    return pixels


def coded_version(X: FloatArray, c: int, noise_variance: float, rng: np.random.Generator) -> FloatArray:
    return encode(Rows(X, np.zeros((len(X), 0))), c, noise_variance=noise_variance, rng=rng).features


def strength_of(x: FloatArray, covariance: FloatArray) -> float:
    return float(x @ np.linalg.solve(covariance, x))


def one_unknown(seed: int, known: int, d: int, c: int, strength: float) -> tuple[FloatArray, FloatArray, FloatArray]:
    """An unknown row with a given ``x^T Sigma_K^-1 x``, known rows, and their coded data without noise."""
    rng = np.random.default_rng(seed)
    K, x = rng.standard_normal((known, d)), rng.standard_normal(d)
    x *= math.sqrt(strength / strength_of(x, K.T @ K))
    return x, K, coded_version(np.vstack([x, K]), c, 0.0, rng)


def test_one_unknown_row_is_recovered_up_to_sign_without_noise() -> None:
    for seed in range(20):
        X = np.random.default_rng(seed).standard_normal((21, 16))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        result = attack_error(X, 0.95, 10_000, 0.0, np.random.default_rng(seed))
        assert (result.known, result.unknown) == (20, 1)
        assert result.oracle_error < 0.1
        # a single row has no rotation but its sign, which nobody can tell: the attacker needs no oracle
        assert result.feasible_error == pytest.approx(result.oracle_error, rel=1e-9)
        assert result.baseline_error > 5 * result.oracle_error


@pytest.mark.slow
def test_error_of_one_unknown_row_is_that_of_the_theory() -> None:
    # the eigenvector's error, (1 + s) / (s c) in each whitened direction but its own, plus that of its length
    c, ratios = 10_000, []
    for seed in range(60):
        x, K, coded = one_unknown(seed, known=24, d=16, c=c, strength=1.0)
        covariance, s, energy = K.T @ K, 1.0, float(x @ x)
        expected = (1 + s) / (s * c) * (np.trace(covariance) - energy / s) / energy + (1 + s) ** 2 / (2 * s**2 * c)
        found = reconstruct(coded, K, 1, 0.0)
        ratios.append(matched_error(x[None], found.rotate_to(x[None])) ** 2 / expected)
    ratio = Measured.over(ratios)
    assert abs(ratio.mean - 1) < 3 * ratio.standard_error < 0.3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("times_threshold", "shows"),
    [pytest.param(0.3, False, marks=pytest.mark.slow), (3.0, True), pytest.param(10.0, True, marks=pytest.mark.slow)],
)
def test_a_row_shows_once_its_strength_passes_the_threshold(times_threshold: float, shows: bool) -> None:
    d, c = 60, 600
    threshold, noise = math.sqrt(d / c), d / c
    strength = times_threshold * threshold
    cosines: list[float] = []
    strengths: list[float] = []
    for seed in range(40):
        x, K, coded = one_unknown(seed, known=120, d=d, c=c, strength=strength)
        found = reconstruct(coded, K, 1, 0.0)
        assert found.threshold == pytest.approx(threshold)
        root = np.linalg.cholesky(K.T @ K)
        u, v = np.linalg.solve(root, x), np.linalg.solve(root, found.factor.sum(axis=0))
        cosines.append(float((u @ v) ** 2 / (u @ u) / (v @ v)) if v.any() else 0.0)
        strengths.extend(found.strengths)
    cosine = Measured.over(cosines)
    if not shows:
        # a false alarm in 1% of cases: more than 4 of 40 have a chance of about 1e-5
        assert len(strengths) <= 4
        assert cosine.mean < 1 / d + 3 * cosine.standard_error
        return
    expected = (1 - noise / strength**2) / (1 + noise / strength)
    assert abs(cosine.mean - expected) < 3 * cosine.standard_error < 0.05
    mean = Measured.over(strengths)
    assert abs(mean.mean - strength) < 3 * mean.standard_error < 0.2 * strength


@pytest.mark.parametrize("known_ratio", [0.05, 0.5, 0.95])
def test_under_strong_noise_the_attack_is_no_better_than_the_baseline(known_ratio: float) -> None:
    # No better: the mean over seeds of (attack - baseline) is above minus two of its standard errors, or zero throughout.
    X = images(100)
    results = [attack_error(X, known_ratio, 2000, 1e5, np.random.default_rng(seed)) for seed in range(12)]
    for gain in (
        Measured.over([result.oracle_error - result.baseline_error for result in results]),
        Measured.over([result.feasible_error - result.baseline_error for result in results]),
    ):
        assert gain.mean >= -2 * gain.standard_error
        assert abs(gain.mean) < 0.02


def test_nothing_found_is_the_baseline() -> None:
    rng = np.random.default_rng(0)
    X = images(40)
    found = reconstruct(coded_version(X, 500, 1e9, rng), X[:30], 10, 1e9)
    while len(found.factor):
        found = reconstruct(coded_version(X, 500, 1e9, rng), X[:30], 10, 1e9)
    assert found.gram.shape == (64, 64)
    assert not found.gram.any()
    assert found.rotate_to(X[30:]) == pytest.approx(np.tile(X[:30].mean(axis=0), (10, 1)))


@pytest.fixture(scope="module")
def curve() -> tuple[AttackPoint, ...]:
    ratios = (0.01, 0.1, 0.5, 0.9, 0.99)
    return tuple(
        attack_point(images(150), ratio, 3000, variance, Streams(3), repeats=8)
        for variance in (0.0, 1.0, 100.0)
        for ratio in ratios
    )


@pytest.mark.slow
def test_curve_has_a_point_for_each_noise_and_ratio(curve: tuple[AttackPoint, ...]) -> None:
    ratios = (0.01, 0.1, 0.5, 0.9, 0.99)
    assert [(point.noise_variance, point.known_ratio) for point in curve] == [
        (variance, ratio) for variance in (0.0, 1.0, 100.0) for ratio in ratios
    ]
    for point in curve:
        for measured in (point.oracle, point.feasible, point.baseline, point.oracle_control, point.feasible_control):
            assert 0 < measured.standard_error < 0.1
            assert 0 < measured.mean < 1.2


@pytest.mark.slow
def test_an_oracle_does_better_than_an_attacker_on_average(curve: tuple[AttackPoint, ...]) -> None:
    for point in curve:
        assert point.oracle.mean <= point.feasible.mean
        assert point.oracle_control.mean <= point.feasible_control.mean


@pytest.mark.slow
def test_without_noise_the_error_is_lower(curve: tuple[AttackPoint, ...]) -> None:
    # points of equal ratio share their known rows and projections, so this bound on the difference is a wide one
    none, some, much = curve[:5], curve[5:10], curve[10:]
    for lower, middle, higher in zip(none, some, much, strict=True):
        assert lower.oracle.mean < middle.oracle.mean < higher.oracle.mean
        assert higher.oracle.mean - lower.oracle.mean > 2 * math.hypot(
            higher.oracle.standard_error, lower.oracle.standard_error
        )
        assert lower.oracle.mean < lower.baseline.mean - 3 * lower.baseline.standard_error


@pytest.mark.slow
def test_without_noise_the_coded_data_give_more_than_the_oracle_alone(curve: tuple[AttackPoint, ...]) -> None:
    for point in curve[:5]:
        errors = math.hypot(point.oracle.standard_error, point.oracle_control.standard_error)
        assert point.oracle.mean < point.oracle_control.mean - 2 * errors


@pytest.mark.slow
def test_many_unknown_rows_let_the_oracle_give_away_more_than_strong_noise_hides(
    curve: tuple[AttackPoint, ...],
) -> None:
    # why there is a control: at ratio 0.5, rows that have nothing to do with the coded data come this close
    half = curve[2]
    assert half.oracle_control.mean < 0.5 * half.baseline.mean


def test_the_attack_repeats_exactly() -> None:
    results = [attack_error(images(30), 0.9, 200, 1.0, np.random.default_rng(1)) for _ in range(2)]
    assert results[0] == results[1]


def test_error_decreases_with_coded_samples() -> None:
    X, counts, seeds = images(100), (100, 400, 1600, 6400), range(8)
    errors = np.array(
        [[attack_error(X, 0.8, c, 0.25, np.random.default_rng(seed)).oracle_error for c in counts] for seed in seeds]
    )
    for column in range(3):
        fall = Measured.over(list(errors[:, column] - errors[:, column + 1]))
        assert fall.mean > 3 * fall.standard_error


@pytest.mark.slow
def test_gram_of_the_unknown_rows_is_found_with_an_error_of_one_over_root_c() -> None:
    X = np.random.default_rng(5).standard_normal((28, 12))
    K, U = X[:20], X[20:]
    counts, slopes, last = (2000, 8000, 32_000), [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        errors = [
            float(np.linalg.norm(reconstruct(coded_version(X, c, 0.5, rng), K, 8, 0.5).gram - U.T @ U)) for c in counts
        ]
        slopes.append(float(scipy.stats.linregress(np.log(counts), np.log(errors)).slope))
        last.append(errors[-1] / float(np.linalg.norm(U.T @ U)))
    slope = Measured.over(slopes)
    assert abs(slope.mean + 0.5) < 3 * slope.standard_error < 0.15
    assert np.mean(last) < 0.08


def rotated(X: FloatArray, unknown: int, seed: int) -> FloatArray:
    """Rotate the last rows from the left, which leaves their Gram matrix as it is."""
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((unknown, unknown)))[0]
    return np.vstack([X[:-unknown], rotation @ X[-unknown:]])


def test_rotated_unknown_rows_give_the_same_coded_data() -> None:
    X = np.random.default_rng(0).standard_normal((30, 10))
    other = rotated(X, 6, seed=1)
    assert matched_error(X[-6:], other[-6:]) > 0.5
    codes = [
        sample_coded(
            compute_gram([Rows(rows, np.zeros((30, 1)))]),
            500,
            noise_variance=0.1,
            label_noise_variance=1.0,
            rng=np.random.default_rng(2),
        )
        for rows in (X, other)
    ]
    assert codes[0].features == pytest.approx(codes[1].features, abs=1e-9)
    first, second = (reconstruct(coded.features, X[:-6], 6, 0.1) for coded in codes)
    assert first.gram == pytest.approx(second.gram, abs=1e-6)


@pytest.mark.slow
def test_the_attack_cannot_tell_rotated_rows_apart() -> None:
    # over seeds, the mean of every entry of A^T A agrees within 4.5 standard errors (55 entries: chance 4e-4 of a failure)
    X = np.random.default_rng(0).standard_normal((26, 10))
    grams = []
    for which, rows in enumerate((X, rotated(X, 6, seed=1))):
        runs = [np.random.default_rng((which, seed)) for seed in range(60)]
        grams.append(np.array([reconstruct(coded_version(rows, 800, 0.1, rng), X[:-6], 6, 0.1).gram for rng in runs]))
    difference = grams[0].mean(axis=0) - grams[1].mean(axis=0)
    variance = grams[0].var(axis=0, ddof=1) + grams[1].var(axis=0, ddof=1)
    assert (np.abs(difference) < 4.5 * np.sqrt(variance / 60)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_few_known_rows_and_no_noise_need_a_ridge_and_lose_nothing(dtype: type[np.floating]) -> None:
    # 5 + 10 rows in 40 dimensions: the known rows are all the noise there is, so errors are about sqrt(5 / c)
    X = np.random.default_rng(0).standard_normal((15, 40)).astype(dtype)
    coded = coded_version(X, 2000, 0.0, np.random.default_rng(1))
    found = reconstruct(coded, X[:5], 10, 0.0)
    assert 0 < found.ridge < 1e-5
    assert found.threshold == pytest.approx(math.sqrt(5 / 2000))
    assert found.factor.shape == (10, 40)
    assert matched_error(X[5:], found.rotate_to(X[5:])) < 0.12


def test_no_ridge_where_noise_or_data_suffice() -> None:
    X, rng = np.random.default_rng(0).standard_normal((30, 6)), np.random.default_rng(1)
    assert reconstruct(coded_version(X, 100, 0.0, rng), X[:20], 10, 0.0).ridge == 0
    assert reconstruct(coded_version(X, 100, 0.01, rng), X[:2], 28, 0.01).ridge == 0


def test_matching_allows_any_order_and_signs() -> None:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 5))
    shuffled = (rng.choice([-1.0, 1.0], 40)[:, None] * X)[rng.permutation(40)]
    assert matched_error(X, shuffled) == 0
    assert matched_error(X, shuffled + 1e-3) == pytest.approx(1e-3 * math.sqrt(200) / np.linalg.norm(X), rel=0.01)


def test_procrustes_finds_the_rotation_that_was_made() -> None:
    rng = np.random.default_rng(0)
    A, R = rng.standard_normal((4, 9)), np.linalg.qr(rng.standard_normal((7, 4)))[0]
    assert procrustes(A, R @ A) == pytest.approx(R, abs=1e-12)


def test_rows_of_zeros_are_left_out() -> None:
    X = images(20)
    padded = np.vstack([X, np.zeros((50, 64))])
    results = [attack_error(rows, 0.5, 100, 0.1, np.random.default_rng(0)) for rows in (X, padded)]
    assert results[0] == results[1]


@pytest.mark.parametrize(("ratio", "known"), [(0.001, 1), (0.01, 1), (0.5, 10), (0.99, 19), (0.999, 19)])
def test_at_least_one_row_is_known_and_one_is_not(ratio: float, known: int) -> None:
    result = attack_error(images(20), ratio, 50, 0.1, np.random.default_rng(0))
    assert (result.known, result.unknown) == (known, 20 - known)
    assert isinstance(result, AttackResult)
    assert all(math.isfinite(value) for value in astuple(result))


@pytest.mark.slow
def test_an_image_of_mnist_size() -> None:
    X = np.random.default_rng(0).random((600, 784), dtype=np.float32)
    result = attack_error(X, 0.5, 5000, 0.0, np.random.default_rng(1))
    assert result.oracle_error < 0.5 * result.oracle_control_error


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"known_ratio": 0.0}, "known_ratio = 0.0 must be above 0 and below 1"),
        ({"known_ratio": 1.0}, "known_ratio = 1.0 must be"),
        ({"known_ratio": math.nan}, "known_ratio = nan must be"),
        ({"coded_samples": 0}, "coded_samples = 0 must be 1 or more"),
        ({"noise_variance": -1.0}, "noise_variance = -1.0 must be"),
        ({"features": np.ones((1, 3))}, "features has 1 row"),
        ({"features": np.zeros((5, 3))}, "features has 0 row"),
        ({"features": np.ones(5)}, "features has shape"),
        ({"features": np.ones((5, 3), dtype=np.int64)}, "features has shape .* int64"),
        ({"features": np.full((5, 3), np.nan)}, "features has 15 value"),
    ],
)
def test_bad_attacks_are_refused(changes: dict[str, object], sentence: str) -> None:
    inputs: dict[str, object] = {
        "features": images(10), "known_ratio": 0.5, "coded_samples": 10, "noise_variance": 0.0, **changes
    }  # fmt: skip
    with pytest.raises(InputError, match=f"^{sentence}"):
        attack_error(**inputs, rng=np.random.default_rng(0))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("coded", "known", "unknown_count", "noise_variance", "sentence"),
    [
        (np.ones((4, 3)), np.ones((2, 2)), 1, 0.0, "coded_features has 3 columns but known has 2"),
        (np.ones((4, 3)), np.ones((0, 3)), 1, 0.0, "known has shape"),
        (np.ones((4, 3)), np.ones((2, 3)), 0, 0.0, "unknown_count = 0 must be 1 or more"),
        (np.ones((4, 3)), np.ones((2, 3)), 1, math.inf, "noise_variance = inf must be"),
        (np.zeros((4, 3)), np.ones((2, 3)), 1, 0.0, "coded_features = 0 in every entry"),
    ],
)
def test_bad_reconstructions_are_refused(
    coded: FloatArray, known: FloatArray, unknown_count: int, noise_variance: float, sentence: str
) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        reconstruct(coded, known, unknown_count, noise_variance)


def test_bad_targets_and_guesses_are_refused() -> None:
    X = np.random.default_rng(0).standard_normal((10, 3))
    found = reconstruct(coded_version(X, 100, 0.0, np.random.default_rng(0)), X[:8], 2, 0.0)
    with pytest.raises(InputError, match=r"^target has 3 rows but 2 are unknown"):
        found.rotate_to(X[:3])
    with pytest.raises(InputError, match=r"^target has 2 columns but the reconstruction has 3"):
        found.rotate_to(X[:2, :2])
    with pytest.raises(InputError, match=r"^guess has shape"):
        matched_error(X, X[:2])
    with pytest.raises(InputError, match=r"^truth = 0 in every entry"):
        matched_error(0 * X, X)
