"""What coded labels reveal. Bounds are stated in standard errors over fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.coding import Rows, compute_gram, encode, sample_coded
from codedfl.errors import InputError
from codedfl.privacy import estimate_class_means, infer_labels, label_leakage
from codedfl.privacy._labels import FALSE_ALARM
from codedfl.typing import FloatArray

CLASSES = 10


def device(seed: int, counts: dict[int, int], d: int = 5) -> tuple[FloatArray, FloatArray]:
    """Rows around a mean for each class, and their one-hot labels."""
    rng = np.random.default_rng(seed)
    labels = np.repeat(list(counts), list(counts.values()))
    centres = rng.standard_normal((CLASSES, d))
    return centres[labels] + 0.5 * rng.standard_normal((len(labels), d)), np.eye(CLASSES)[labels]


@pytest.mark.parametrize("noise_variance", [0.0, 0.25, 1e6])
def test_the_label_of_a_single_class_device_is_read_with_certainty(noise_variance: float) -> None:
    for seed in range(100):
        label = seed % CLASSES
        X, Y = device(seed, {label: 1 + seed % 7})
        leakage = label_leakage(X, Y, 50, noise_variance, 0.0, np.random.default_rng(seed))
        assert leakage.single_class
        assert leakage.correct
        assert leakage.classes_inferred == leakage.classes_true == (label,)


@pytest.mark.parametrize("noise_variance", [0.0, 1.0])
def test_coded_data_from_the_gram_matrix_reveal_the_same(noise_variance: float) -> None:
    X, Y = device(0, {1: 4, 7: 30})
    gram = compute_gram([Rows(1e3 * X, Y)])
    coded = sample_coded(gram, 100, noise_variance=noise_variance, rng=np.random.default_rng(0))
    assert infer_labels(coded.labels).present == (1, 7)


@pytest.mark.slow
@pytest.mark.parametrize("label_noise_variance", [pytest.param(0.0, marks=pytest.mark.slow), 20.0])
def test_counts_are_unbiased_with_a_chi_square_error(label_noise_variance: float) -> None:
    # errors in units of (n_k + sigma_Y^2) sqrt(2 / c): their mean within 4 standard errors of 0, variance of 1
    counts, c, repeats = np.array([5.0, 40.0, 155.0]), 400, 400
    X, Y = device(0, {0: 5, 1: 40, 2: 155}, d=1)
    errors, stated = [], []
    for seed in range(repeats):
        rng = np.random.default_rng(seed)
        coded = encode(
            Rows(X, Y), c, noise_variance=0.0, label_noise_variance=label_noise_variance, rng=rng
        )  # fmt: skip
        inference = infer_labels(coded.labels, label_noise_variance)
        errors.append(inference.counts[:3] - counts)
        stated.append(inference.standard_errors[:3])
    scale = (counts + label_noise_variance) * math.sqrt(2 / c)
    scaled = np.array(errors) / scale
    assert np.abs(scaled.mean(axis=0)).max() < 4 / math.sqrt(repeats)
    assert np.abs(scaled.var(axis=0, ddof=1) - 1).max() < 4 * math.sqrt(2 / repeats)
    assert np.mean(stated, axis=0) == pytest.approx(scale, rel=0.02)


@pytest.mark.parametrize("noise_variance", [0.0, 0.25, 100.0])
def test_class_means_have_the_error_that_is_derived(noise_variance: float) -> None:
    # E ||error_k||^2 = tr(X^T X + sigma^2 I - n_k m_k m_k^T) / (n_k (c - 2)), within 4 standard errors of its mean over seeds
    counts, c, repeats, d = {2: 6, 5: 30, 9: 14}, 300, 300, 5
    X, Y = device(1, counts, d)
    squares = np.empty((repeats, 3))
    for seed in range(repeats):
        coded = encode(Rows(X, Y), c, noise_variance=noise_variance, rng=np.random.default_rng(seed))
        means = estimate_class_means(coded.features, coded.labels, infer_labels(coded.labels))
        assert np.flatnonzero(np.isfinite(means).all(axis=1)).tolist() == [2, 5, 9]
        assert np.isnan(means[[0, 1, 3, 4, 6, 7, 8]]).all()
        for place, label in enumerate(counts):
            squares[seed, place] = np.sum((means[label] - X[Y[:, label] == 1].mean(axis=0)) ** 2)
    for place, (label, count) in enumerate(counts.items()):
        mean = X[Y[:, label] == 1].mean(axis=0)
        expected = (np.sum(X**2) + d * noise_variance - count * np.sum(mean**2)) / (count * (c - 2))
        standard_error = squares[:, place].std(ddof=1) / math.sqrt(repeats)
        assert abs(squares[:, place].mean() - expected) < 4 * standard_error < 0.4 * expected


def test_class_means_are_read_through_strong_feature_noise() -> None:
    X, Y = device(2, {0: 200, 3: 200})
    leakage = label_leakage(X, Y, 10_000, 25.0, 0.0, np.random.default_rng(0))
    assert leakage.classes_inferred == (0, 3)
    assert not leakage.single_class
    assert leakage.count_error < 0.05
    assert leakage.class_mean_error is not None
    assert leakage.class_mean_error < 0.05


def test_weak_label_noise_hides_little() -> None:
    X, Y = device(3, {4: 60, 8: 60})
    leakage = label_leakage(X, Y, 10_000, 0.25, 1.0, np.random.default_rng(0))
    assert leakage.correct
    assert leakage.class_mean_error is not None
    assert leakage.class_mean_error < 0.1


@pytest.mark.slow
def test_strong_label_noise_brings_the_best_guess_down_to_chance() -> None:
    # A guess from Y~ is right with probability at most 1 / o + TV, and TV <= sqrt(KL / 2) between c rows with and without
    # the class (Pinsker), KL = c / 2 (t - ln(1 + t)), t = n / sigma_Y^2. Three binomial standard errors on top.
    c, count, variance, repeats = 200, 30, 3e4, 1000
    t = count / variance
    bound = 1 / CLASSES + math.sqrt(c / 4 * (t - math.log1p(t)))
    assert bound < 0.11
    right = 0
    for seed in range(repeats):
        label = seed % CLASSES
        X, Y = device(seed, {label: count}, d=1)
        rng = np.random.default_rng(seed)
        coded = encode(Rows(X, Y), c, noise_variance=0.0, label_noise_variance=variance, rng=rng)
        inference = infer_labels(coded.labels, variance)
        right += int(np.argmax(coded.labels.var(axis=0))) == label
        assert inference.counts.min() >= 0
    assert right / repeats < bound + 3 * math.sqrt(bound * (1 - bound) / repeats)


@pytest.mark.parametrize("with_features", [False, True])
def test_absent_classes_are_named_no_more_often_than_the_level(with_features: bool) -> None:
    # all classes but one are absent: a false alarm in at most 1% of devices, plus three binomial standard errors
    repeats, alarms = 600, 0
    for seed in range(repeats):
        X, Y = device(seed, {0: 20})
        rng = np.random.default_rng(seed)
        coded = encode(Rows(X, Y), 100, noise_variance=0.1, label_noise_variance=5.0, rng=rng)
        present = infer_labels(coded.labels, 5.0, coded.features if with_features else None).present
        alarms += any(label != 0 for label in present)
    assert alarms / repeats < FALSE_ALARM + 3 * math.sqrt(FALSE_ALARM / repeats)


def test_coded_features_see_through_more_label_noise() -> None:
    # 30 samples against sigma_Y^2 = 2000: 1.5% more energy is one standard deviation of a chi-square with c = 10,000 degrees of
    # freedom, and 150 / sqrt(2 * 5) = 47 of one with d = 5
    seen = {"labels alone": 0, "with features": 0}
    for seed in range(20):
        X, Y = device(seed, {6: 30})
        rng = np.random.default_rng(seed)
        coded = encode(Rows(X, Y), 10_000, noise_variance=0.0, label_noise_variance=2000.0, rng=rng)
        seen["labels alone"] += infer_labels(coded.labels, 2000.0).present == (6,)
        seen["with features"] += infer_labels(coded.labels, 2000.0, coded.features).present == (6,)
    assert seen["labels alone"] <= 5
    assert seen["with features"] >= 15


def test_audit_under_strong_label_noise_has_nothing_to_show() -> None:
    X, Y = device(0, {6: 30})
    leakage = label_leakage(X, Y, 200, 0.0, 1e9, np.random.default_rng(0))
    assert leakage.single_class
    assert not leakage.correct
    assert leakage.classes_inferred == ()
    assert leakage.class_mean_error is None
    assert leakage.count_error > 1


def test_features_of_zeros_say_nothing_about_labels() -> None:
    rng = np.random.default_rng(0)
    noise = rng.standard_normal((100, 3))
    assert infer_labels(noise, 1.0, np.zeros((100, 2))).present == ()
    assert infer_labels(0 * noise).present == ()


def test_single_precision_is_read_as_well() -> None:
    X, Y = device(0, {2: 30, 3: 1})
    leakage = label_leakage(X.astype(np.float32), Y.astype(np.float32), 5000, 0.1, 0.0, np.random.default_rng(0))
    assert leakage.correct
    assert leakage.classes_true == (2, 3)


ONE_HOT, FEATURES = np.eye(3), np.ones((3, 2))


@pytest.mark.parametrize(
    ("features", "labels", "sentence"),
    [
        (FEATURES, np.array([[0.5], [1.5], [2.0]]), "labels is not one-hot in row 0: .* not of a regression"),
        (FEATURES, np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), "labels is not one-hot in row 2"),
        (FEATURES, np.zeros((3, 2)), "labels is not one-hot in row 0"),
        (FEATURES[:2], ONE_HOT, "features has 2 rows but labels has 3"),
        (FEATURES, np.ones(3), "labels has shape"),
        (np.full((3, 2), np.inf), ONE_HOT, "features has 6 value"),
    ],
)
def test_bad_devices_are_refused(features: FloatArray, labels: FloatArray, sentence: str) -> None:
    with pytest.raises(InputError, match=f"^{sentence}"):
        label_leakage(features, labels, 10, 0.0, 0.0, np.random.default_rng(0))


def test_bad_uploads_are_refused() -> None:
    with pytest.raises(InputError, match=r"^label_noise_variance = -1.0 must be"):
        infer_labels(ONE_HOT, -1.0)
    with pytest.raises(InputError, match=r"^coded_labels has shape"):
        infer_labels(np.ones((0, 3)))
    with pytest.raises(InputError, match=r"^coded_features has 2 rows but coded_labels has 3"):
        infer_labels(ONE_HOT, 0.0, FEATURES[:2])
    with pytest.raises(InputError, match=r"^coded_features has 2 rows but coded_labels has 3"):
        estimate_class_means(FEATURES[:2], ONE_HOT, infer_labels(ONE_HOT))
    with pytest.raises(InputError, match=r"^coded_samples = 0 must be"):
        label_leakage(FEATURES, ONE_HOT, 0, 0.0, 0.0, np.random.default_rng(0))
