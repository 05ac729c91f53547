from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.coding import Rows, encode
from codedfl.errors import InputError
from codedfl.privacy import LITTLE_PRIVACY, AuditedUpload, DeviceAudit, PrivacyAccountant, audit_device, mi_dp_of_device

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.4, 0.4, (60, 5))
TWO_CLASSES = np.eye(3)[[0] * 25 + [2] * 35]
ONE_CLASS = np.eye(3)[[1] * 60]
SAFE = AuditedUpload(
    coded_samples=50,
    noise_variance=400.0,
    label_noise_variance=400.0,
    clip_norm=1.0,
    sum_noise_variance=4000.0,
    sum_label_noise_variance=4000.0,
)


def audited(labels: np.ndarray = TWO_CLASSES, *, classification: bool = True, **changes: Any) -> DeviceAudit:
    """Audit the safe upload with changes, without the attack."""
    return audit_device(
        *("phone", X, labels, replace(SAFE, **changes)),
        classification=classification,
        known_ratio=None,
        rng=np.random.default_rng(1),
    )


def test_a_safe_upload_has_no_warning_and_its_numbers_are_those_of_the_accountant() -> None:
    result = audit_device("phone", X, TWO_CLASSES, SAFE, classification=True, rng=np.random.default_rng(1))
    assert result.warnings == ()
    common: dict[str, Any] = {"coded_samples": 50, "delta": 1e-5, "norm_bound": 1.0}
    alone = PrivacyAccountant(noise_variance=400.0, **common)
    both = PrivacyAccountant(noise_variance=400.0, label_noise_variance=400.0, **common)
    in_sum = PrivacyAccountant(noise_variance=4000.0, label_noise_variance=4000.0, **common)
    assert (result.epsilon_features, result.epsilon, result.epsilon_in_sum) == (
        alone.epsilon,
        both.epsilon,
        in_sum.epsilon,
    )
    assert result.epsilon_in_sum < result.epsilon_features < result.epsilon
    assert result.mi_dp == mi_dp_of_device(X, 50, 400.0)
    assert result.attack is not None
    assert result.attack.known == 54


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"noise_variance": 0.0}, "no noise, so that nothing bounds"),
        (
            {"label_noise_variance": 0.0},
            "labels are coded without noise, so that the upload shows which classes it has",
        ),
        ({"clip_norm": None}, "samples are not clipped, so that epsilon has no bound"),
        (
            {"noise_variance": 0.1},
            "epsilon is above 10 for features and labels as uploaded and below it only in the sum",
        ),
        (
            {"noise_variance": 0.1, "sum_noise_variance": 1.0},
            "epsilon is above 10 for features and labels together, which guarantees next to nothing",
        ),
        (
            {"noise_variance": 0.1, "label_noise_variance": 0.0, "sum_label_noise_variance": 0.0},
            "epsilon is above 10 even for the features alone, which guarantees next to nothing",
        ),
        (
            {"label_noise_variance": 0.01},
            "the upload shows which classes it has in spite of the label noise; raise coding.label_noise_variance",
        ),
    ],
)
def test_each_weakness_is_named(changes: dict[str, Any], words: str) -> None:
    result = audit_device(
        "phone",
        X,
        TWO_CLASSES,
        replace(SAFE, **changes),
        classification=True,
        rng=np.random.default_rng(1),
    )
    assert [warning for warning in result.warnings if warning.startswith(words)]


def solved(epsilon: float) -> float:
    """Return the noise variance that features and labels need each, both of norm 1, for a joint epsilon."""
    # r = 1 / sigma^2 + 1 / sigma_Y^2, so that both need twice the noise of the features alone
    return 2 * PrivacyAccountant(coded_samples=50, epsilon=epsilon, delta=1e-5).noise_variance


@pytest.mark.parametrize("epsilon", [10.5, 15.0, 70.0])
def test_a_joint_epsilon_above_the_threshold_is_never_silent(epsilon: float) -> None:
    """The features alone are below the threshold, at least up to a joint epsilon of 15."""
    noise = solved(epsilon)
    weak: dict[str, Any] = {"noise_variance": noise, "label_noise_variance": noise}
    kept_apart = audited(**weak, sum_noise_variance=noise, sum_label_noise_variance=noise)
    assert kept_apart.epsilon == pytest.approx(epsilon)
    assert (kept_apart.epsilon_features < LITTLE_PRIVACY) == (epsilon <= 15)
    assert [text for text in kept_apart.warnings if "epsilon is above 10 for features and labels together" in text]
    summed = audited(**weak, sum_noise_variance=20 * noise, sum_label_noise_variance=20 * noise)
    (aggregation,) = (text for text in summed.warnings if "epsilon is above" in text)
    assert summed.epsilon_in_sum < LITTLE_PRIVACY
    assert aggregation.endswith("the guarantee rests on secure aggregation")


def test_a_joint_epsilon_below_the_threshold_is_no_warning() -> None:
    noise = solved(9.5)
    result = audited(
        noise_variance=noise, label_noise_variance=noise, sum_noise_variance=noise, sum_label_noise_variance=noise
    )
    assert result.epsilon == pytest.approx(9.5)
    assert not [text for text in result.warnings if "epsilon" in text]
    assert math.floor(math.exp(LITTLE_PRIVACY)) == 22_026


def test_noise_of_others_protects_only_in_the_sum() -> None:
    result = audited(noise_variance=0.0)
    assert result.epsilon == math.inf
    assert result.epsilon_in_sum < LITTLE_PRIVACY
    assert [text for text in result.warnings if "rests on secure aggregation" in text]


@pytest.mark.parametrize("labels", [TWO_CLASSES, ONE_CLASS], ids=["two classes", "one class"])
def test_labels_that_the_noise_does_not_hide_are_named(labels: np.ndarray) -> None:
    shown = audited(labels, label_noise_variance=0.01, noise_variance=0.0)
    assert shown.labels is not None
    assert shown.labels.correct
    assert [text for text in shown.warnings if "in spite of the label noise" in text]
    assert not [text for text in shown.warnings if "labels are coded without noise" in text]
    hidden = audited(labels)
    assert hidden.labels is not None
    assert not hidden.labels.correct
    assert not [text for text in hidden.warnings if "label noise" in text]


TARGETS = np.random.default_rng(5).standard_normal((60, 2))


def test_a_regression_without_label_noise_is_named() -> None:
    silent = audited(TARGETS, classification=False, label_bound=3.0)
    assert silent.warnings == ()
    bare = audited(
        TARGETS, classification=False, label_bound=3.0, label_noise_variance=0.0, sum_label_noise_variance=0.0
    )
    assert bare.epsilon == bare.epsilon_in_sum == math.inf
    assert bare.missing == ("coding.label_noise_variance",)
    (warning,) = bare.warnings
    assert warning.startswith("targets are coded without noise, so that X^T Y can be read off")


def test_what_is_said_about_a_regression_is_true() -> None:
    """``X~^T Y~ / c`` is ``X^T Y`` up to its standard error, which is small however much noise the features have.

    By Isserlis' theorem, entry (j, k) has the variance ``((X^T X)_jj + sigma^2) (Y^T Y)_kk + (X^T Y)_jk^2`` over c.
    """
    c, noise = 200_000, 100.0
    coded = encode(Rows(X, TARGETS), c, noise_variance=noise, label_noise_variance=0.0, rng=np.random.default_rng(2))
    truth = X.T @ TARGETS
    variance = (np.outer(np.sum(X**2, axis=0) + noise, np.sum(TARGETS**2, axis=0)) + truth**2) / c
    scores = (coded.features.T @ coded.labels / c - truth) / np.sqrt(variance)
    assert np.abs(scores).max() < 4.5, "10 normal scores exceed this with a probability of 7e-5"
    assert np.sqrt(variance).max() < 0.1 * np.abs(truth).max()


def test_a_regression_has_the_given_label_bound_or_no_guarantee() -> None:
    free = audited(TARGETS, classification=False)
    assert free.label_bound is None
    assert free.epsilon == free.epsilon_in_sum == math.inf
    assert math.isfinite(free.epsilon_features), "features alone are covered as long as no labels are coded with them"
    assert free.missing == ("privacy.label_bound",)
    assert [text for text in free.warnings if text.startswith("labels have no bound") and "privacy.label_bound" in text]
    # the data's own maximum is never used: scaled labels leave the epsilon as it is, another bound changes it
    common: dict[str, Any] = {
        "coded_samples": 50,
        "noise_variance": 400.0,
        "delta": 1e-5,
        "label_noise_variance": 400.0,
    }
    for bound in (0.5, 3.0):
        expected = PrivacyAccountant(**common, label_norm_bound=bound).epsilon
        for labels in (TARGETS, 100 * TARGETS):
            assert audited(labels, classification=False, label_bound=bound).epsilon == expected
    assert audited(label_bound=7.0).epsilon == PrivacyAccountant(**common, label_norm_bound=1.0).epsilon
    assert audited(label_bound=7.0).label_bound == 1.0


@pytest.mark.parametrize("bound", [0.0, -1.0, math.nan, math.inf])
def test_an_impossible_label_bound_is_refused(bound: float) -> None:
    with pytest.raises(InputError, match=r"label_bound = .* must be a positive finite number"):
        audited(TARGETS, classification=False, label_bound=bound)


def test_without_clipping_no_epsilon_is_a_guarantee() -> None:
    result = audited(clip_norm=None)
    assert result.epsilon_features == result.epsilon == result.epsilon_in_sum == math.inf
    assert result.norm_bound is None
    assert result.missing == ("coding.clip_norm",)
    (warning,) = result.warnings
    assert warning.endswith("set coding.clip_norm")


def test_everything_that_is_missing_is_named_and_nothing_else() -> None:
    nothing = {"noise_variance": 0.0, "label_noise_variance": 0.0, "clip_norm": None}
    bare = audited(TARGETS, classification=False, **nothing)
    assert bare.missing == (
        *("coding.noise_variance", "coding.label_noise_variance"),
        *("privacy.label_bound", "coding.clip_norm"),
    )
    text = " ".join(bare.warnings)
    assert all(name in text for name in bare.missing)
    assert audited().missing == ()


def test_features_that_clipping_brings_within_bounds_are_no_warning() -> None:
    large = audit_device("phone", 9 * X, TWO_CLASSES, SAFE, classification=True, known_ratio=None, rng=RNG)
    assert large.largest_entry > 1
    assert not [text for text in large.warnings if "[-1, 1]" in text]


def test_a_single_class_and_few_samples_and_large_features_are_named() -> None:
    upload = replace(SAFE, label_noise_variance=0.0, noise_variance=0.0, clip_norm=None)
    result = audit_device("phone", 9 * X[:3], ONE_CLASS[:3], upload, classification=True, rng=np.random.default_rng(1))
    text = " ".join(result.warnings)
    assert "which single class it has" in text
    assert "fewer samples than features" in text
    assert "features exceed [-1, 1]" in text
    assert result.labels is not None
    assert result.labels.classes_inferred == (1,)


def test_what_is_audited_is_what_is_encoded() -> None:
    clipped = replace(SAFE, clip_norm=0.2, noise_variance=1.0)
    result = audit_device("phone", X, TWO_CLASSES, clipped, classification=True, rng=np.random.default_rng(1))
    scaled = X * np.minimum(1, 0.2 / np.linalg.norm(X, axis=1))[:, None]
    assert result.mi_dp == mi_dp_of_device(scaled, 50, 1.0)
    assert result.norm_bound == 0.2
    assert result.largest_norm == pytest.approx(np.linalg.norm(X, axis=1).max())


def test_a_regression_has_no_classes_and_the_attack_can_be_left_out() -> None:
    result = audit_device(
        "phone", X, RNG.standard_normal((60, 2)), SAFE, classification=False, known_ratio=None, rng=RNG
    )
    assert result.labels is None
    assert result.attack is None


def test_one_sample_or_rows_of_zeros_leave_nothing_to_attack() -> None:
    one = audit_device("phone", X[:1], TWO_CLASSES[:1], SAFE, classification=True, rng=RNG)
    assert one.attack is None
    zeros = audit_device("phone", np.zeros((4, 5)), TWO_CLASSES[:4], SAFE, classification=True, rng=RNG)
    assert zeros.attack is None
