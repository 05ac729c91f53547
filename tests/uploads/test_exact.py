from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from codedfl.coding import Rows, compute_gram
from codedfl.privacy import ExactNoise, Noise, SeededNoise
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from codedfl.uploads import BLUR, UNIT_ROUNDOFF, CodedFactor, CodedRows, Mean, Subspace, Terms, Upload

COLUMNS, OUTPUTS = 6, 2
TERMS = Terms(COLUMNS, OUTPUTS, 5000, 1.5, 1.0, Streams(0))
UNBOUNDED = replace(TERMS, clip_norm=None)
CODED, FACTOR, SKETCH, MEAN = CodedRows(), CodedFactor(), Subspace(rank=3, rows=20), Mean(curvature="mean")
VARIANCE, LABEL_VARIANCE = 0.5, 0.3
UPLOADS = 100
"""Uploads of the same data with noise of their own."""

rng = np.random.default_rng(4)
ROWS = Rows(
    rng.standard_normal((30, COLUMNS), dtype=np.float32), np.eye(OUTPUTS, dtype=np.float32)[rng.integers(0, 2, 30)]
)


def seeded(seed: int, bytes_seed: int, variance: float = 0.0, label_variance: float = 0.0) -> Noise:
    """A device's noise, whose bytes come from a seed, too."""
    rng, source = np.random.Generator(np.random.Philox(seed)), np.random.default_rng(bytes_seed)
    return ExactNoise(rng, variance, label_variance, source.bytes)


def as_simulated(upload: Upload, rows: Rows, terms: Terms = UNBOUNDED) -> dict[str, FloatArray]:
    return upload.draw(terms, rows, SeededNoise(np.random.Generator(np.random.Philox(0)), VARIANCE, LABEL_VARIANCE))


def clipped() -> FloatArray:
    """``[X Y]`` with samples of norm 1.5 at most, in float64."""
    joined = np.hstack([ROWS.features, ROWS.labels]).astype(np.float64)
    norms = np.linalg.norm(joined[:, :COLUMNS], axis=1, keepdims=True)
    short: FloatArray = joined * np.minimum(1.0, 1.5 / norms)
    return short


def drawn(
    upload: Upload, variance: float, label_variance: float, seed: int = 0, noise: int = 0, terms: Terms = TERMS
) -> dict[str, FloatArray]:
    return upload.draw(terms, ROWS, seeded(seed, noise, variance, label_variance))


def covariance() -> FloatArray:
    moments = clipped().T @ clipped()
    return moments + np.diag(np.repeat([VARIANCE, LABEL_VARIANCE], [COLUMNS, OUTPUTS]))


def moments_of(arrays: dict[str, FloatArray]) -> FloatArray:
    sent = arrays["factor"] if "factor" in arrays else np.hstack([arrays["features"], arrays["labels"]])
    return sent.astype(np.float64).T @ sent / TERMS.coded_samples


@pytest.mark.parametrize("upload", [CODED, FACTOR], ids=lambda upload: upload.name)
def test_second_moments_are_those_of_the_ideal_upload(upload: Upload) -> None:
    wanted = covariance()
    variances = np.diag(wanted)
    # Five standard errors of a second moment of 5,000 normal rows; a blur adds 1/128 to their squares and less to the mean.
    error = np.sqrt((np.outer(variances, variances) + wanted**2) / TERMS.coded_samples)
    assert (np.abs(moments_of(drawn(upload, VARIANCE, LABEL_VARIANCE)) - wanted) < 5.02 * error).all()


def test_coded_rows_are_a_projection_and_noise_from_the_bytes_alone() -> None:
    projection = drawn(CODED, 0.0, 0.0)
    for name, variance in (("features", VARIANCE), ("labels", LABEL_VARIANCE)):
        assert projection[name].dtype == np.float32
        noise = (drawn(CODED, VARIANCE, LABEL_VARIANCE)[name] - projection[name]).ravel()
        assert stats.kstest(noise / math.sqrt(variance), "norm").pvalue > 1e-6
    other = drawn(CODED, VARIANCE, LABEL_VARIANCE, noise=1)["features"]
    assert (other != drawn(CODED, VARIANCE, LABEL_VARIANCE)["features"]).mean() > 0.99


def test_the_projection_is_computed_in_float64() -> None:
    sent = drawn(CODED, 0.0, 0.0, terms=replace(TERMS, coded_samples=40))
    projection = seeded(0, 0).rng.standard_normal((40, 30))
    expected = projection @ clipped()
    # One rounding to float32, and no more than the product in float64 can err.
    bound = 2.0**-24 * np.abs(expected) + 40 * UNIT_ROUNDOFF * np.abs(projection) @ np.abs(clipped())
    assert (np.abs(np.hstack([sent["features"], sent["labels"]]) - expected) <= bound).all()


def test_many_rows_are_projected_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.privacy._noise.BLOCK_ROWS", 7)
    wanted = covariance()
    variances = np.diag(wanted)
    error = np.sqrt((np.outer(variances, variances) + wanted**2) / TERMS.coded_samples)
    for upload in (CODED, FACTOR):
        assert (np.abs(moments_of(drawn(upload, VARIANCE, LABEL_VARIANCE)) - wanted) < 5.02 * error).all()


@pytest.mark.slow
def test_a_factor_is_a_triangle_with_a_blur() -> None:
    plain = as_simulated(FACTOR, Rows(clipped()[:, :COLUMNS], clipped()[:, COLUMNS:]))["factor"]
    row, column = np.triu_indices(COLUMNS + OUTPUTS)
    blurs = []
    for noise in range(UPLOADS):
        sent = drawn(FACTOR, VARIANCE, LABEL_VARIANCE, noise=noise)["factor"]
        assert sent.dtype == np.float32
        np.testing.assert_array_equal(sent, np.triu(sent))
        assert (np.diag(sent) >= 0).all()
        blurs.append((sent - plain)[row, column])
    scale = BLUR * np.sqrt(np.where(column < COLUMNS, VARIANCE, LABEL_VARIANCE))
    assert stats.kstest((np.array(blurs) / scale).ravel(), "norm").pvalue > 1e-6


def test_a_row_with_a_negative_diagonal_is_turned_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a blur that is far too large, second moments are still those of the blurred triangle."""
    monkeypatch.setattr("codedfl.uploads._factor.BLUR", 1e4)
    sent = [drawn(FACTOR, VARIANCE, LABEL_VARIANCE, noise=noise)["factor"] for noise in range(20)]
    assert all((np.diag(factor) >= 0).all() for factor in sent)
    above = np.concatenate([factor[np.triu_indices(len(factor), 1)] for factor in sent])
    assert abs(np.sign(above).mean()) < 5 / math.sqrt(above.size), "rows are turned as a whole"


def test_without_noise_a_sketch_is_exact() -> None:
    whole = replace(SKETCH, rows=100)
    sent, x, y = drawn(whole, 0.0, 0.0), clipped()[:, :COLUMNS], clipped()[:, COLUMNS:]
    omega = whole.test_matrix(TERMS)
    np.testing.assert_allclose(sent["products"], x.T @ x @ omega, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sent["label_products"], x.T @ y, rtol=0, atol=1e-12)
    np.testing.assert_allclose(sent["energy"], [np.sum(x**2)], rtol=1e-13)


@pytest.mark.slow
@pytest.mark.parametrize("clip_norm", [None, 1.5])
def test_every_number_of_a_sketch_has_noise_of_its_own(clip_norm: float | None) -> None:
    terms = replace(TERMS, clip_norm=clip_norm)
    exact = drawn(SKETCH, 0.0, 0.0, terms=terms)
    noise: dict[str, list[FloatArray]] = {name: [] for name in exact}
    for seed in range(UPLOADS):
        for name, sent in drawn(SKETCH, VARIANCE, LABEL_VARIANCE, noise=seed, terms=terms).items():
            assert sent.shape == exact[name].shape
            noise[name].append(sent - exact[name])
    numbers = np.hstack(
        [np.array(noise[name]).reshape(UPLOADS, -1) for name in ("products", "energy", "label_products")]
    )
    features = COLUMNS * 3 + 1
    numbers /= np.sqrt(np.repeat([VARIANCE, LABEL_VARIANCE], [features, numbers.shape[1] - features]))
    assert stats.kstest(numbers.ravel(), "norm").pvalue > 1e-6
    # Six standard errors, as the largest of 465 correlations is looked at.
    correlation = np.corrcoef(numbers.T) - np.eye(numbers.shape[1])
    assert np.abs(correlation).max() < 6 / math.sqrt(UPLOADS)


def test_the_sum_of_the_features_is_that_of_clipped_rows_and_has_noise_of_the_stated_deviation() -> None:
    expected = clipped()[:, :COLUMNS].sum(axis=0)
    noise = np.array([drawn(MEAN, VARIANCE, 0.0, noise=seed)["total"] - expected for seed in range(UPLOADS)])
    assert noise.dtype == np.float64
    assert stats.kstest(noise.ravel() / math.sqrt(VARIANCE), "norm").pvalue > 1e-6
    assert drawn(MEAN, VARIANCE, 0.0).keys() == {"total"}


def test_the_noise_of_a_sum_of_features_is_raised_for_what_rounding_may_change(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, float] = {}

    def remember(values: FloatArray, deviation: float, sensitivity: float, **others: Any) -> FloatArray:
        told.update(deviation=deviation, sensitivity=sensitivity, error=others["computation_error"])
        return values

    monkeypatch.setattr("codedfl.privacy._noise.gaussian_noise_on_grid", remember)
    sent = drawn(MEAN, VARIANCE, 0.0)["total"]
    assert (told["deviation"], told["sensitivity"]) == (math.sqrt(VARIANCE), 1.5)
    long = ROWS.features.astype(np.longdouble)
    norms = np.sqrt((long**2).sum(axis=1, keepdims=True))
    exact = (long * np.minimum(1, 1.5 / norms)).sum(axis=0)
    assert 0 < float(np.sqrt(((sent - exact) ** 2).sum())) <= told["error"] < 1e-10


def test_other_generators_draw_as_the_simulator_does() -> None:
    plain, exact = as_simulated(CODED, ROWS, TERMS), drawn(CODED, VARIANCE, LABEL_VARIANCE)
    assert plain["features"].shape == exact["features"].shape
    assert not np.allclose(plain["features"], exact["features"])


def delta_of(
    upload: Upload, samples: int = 30, variance: float = VARIANCE, epsilon: float = 0.0, terms: Terms = TERMS
) -> float:
    return upload.rounding_delta(
        terms, samples=samples, noise_variance=variance, label_noise_variance=LABEL_VARIANCE, epsilon=epsilon
    )


needs_long_doubles = pytest.mark.skipif(
    bool(np.finfo(np.longdouble).eps > UNIT_ROUNDOFF / 100), reason="long doubles are no longer than doubles here"
)


@needs_long_doubles
def test_the_product_of_coded_rows_errs_by_no_more_than_is_said() -> None:
    projection, joined = seeded(0, 0).rng.standard_normal((5000, 30)), clipped()
    exact = projection.astype(np.longdouble) @ joined.astype(np.longdouble)
    deviations = np.sqrt(np.repeat([VARIANCE, LABEL_VARIANCE], [COLUMNS, OUTPUTS]))
    error = float(np.linalg.norm(((projection @ joined - exact) / deviations).astype(np.float64)))
    assert 0 < error / math.sqrt(2 * math.pi) * 2 < delta_of(CODED)


@needs_long_doubles
def test_a_factor_errs_by_no_more_than_is_said() -> None:
    """Against Bartlett's decomposition with the same random numbers, in long doubles throughout."""
    joined = clipped()
    # Without its blur, and before it is rounded to float32.
    sent = as_simulated(FACTOR, Rows(joined[:, :COLUMNS], joined[:, COLUMNS:]))["factor"]
    generator, size = np.random.Generator(np.random.Philox(0)), COLUMNS + OUTPUTS
    bartlett = np.triu(generator.standard_normal((size, size)), 1)
    np.fill_diagonal(bartlett, np.sqrt(generator.chisquare(TERMS.coded_samples - np.arange(size))))
    long = joined.astype(np.longdouble)
    noise = np.repeat([VARIANCE, LABEL_VARIANCE], [COLUMNS, OUTPUTS]).astype(np.longdouble)
    left = long.T @ long + np.diag(noise)
    upper = np.zeros_like(left)
    for k in range(size):  # Cholesky's elimination
        upper[k, k:] = left[k, k:] / np.sqrt(left[k, k])
        left -= np.outer(upper[k], upper[k])
    exact = bartlett.astype(np.longdouble) @ upper
    np.testing.assert_allclose(sent, exact.astype(np.float64), rtol=1e-6, atol=1e-6)
    gram = compute_gram([Rows(joined[:, :COLUMNS], joined[:, COLUMNS:])]).matrix + np.diag(noise.astype(np.float64))
    found = bartlett @ np.linalg.cholesky(gram).T
    error = float(np.linalg.norm(((found - exact) / (BLUR * np.sqrt(noise))).astype(np.float64)))
    assert 0 < error / math.sqrt(2 * math.pi) * 2 < delta_of(FACTOR)


def test_delta_of_rounding_is_far_below_any_delta_and_grows_with_the_work() -> None:
    for upload in (CODED, FACTOR, SKETCH, MEAN):
        assert 0 < delta_of(upload, epsilon=1.0) < 1e-5 * 1e-4
        assert delta_of(upload, epsilon=2.0) == pytest.approx((1 + math.exp(2)) / 2 * delta_of(upload), rel=1e-12)
    for upload in (CODED, FACTOR):
        assert delta_of(upload, samples=3000) > delta_of(upload)
        assert delta_of(upload, variance=1e-6) > delta_of(upload)
        assert delta_of(upload, terms=replace(TERMS, coded_samples=50_000)) > delta_of(upload)
        assert delta_of(upload, terms=UNBOUNDED) == 1.0
        assert delta_of(upload, variance=0.0) == 1.0
    assert delta_of(MEAN) < delta_of(SKETCH), "it has fewer numbers"
    assert delta_of(MEAN, variance=0.0) == delta_of(MEAN, terms=UNBOUNDED) == 1.0
