from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.privacy import PrivacyAccountant, Upload, audit_device, mi_dp_of_device

RNG = np.random.default_rng(0)
X = RNG.uniform(-0.4, 0.4, (60, 5))
TWO_CLASSES = np.eye(3)[[0] * 25 + [2] * 35]
ONE_CLASS = np.eye(3)[[1] * 60]
SAFE = Upload(
    coded_samples=50,
    noise_variance=400.0,
    label_noise_variance=400.0,
    clip_norm=1.0,
    sum_noise_variance=4000.0,
    sum_label_noise_variance=4000.0,
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
        ({"clip_norm": None}, "samples are not clipped"),
        ({"noise_variance": 0.1}, "epsilon is above 20"),
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


def test_a_single_class_and_few_samples_and_large_features_are_named() -> None:
    upload = replace(SAFE, label_noise_variance=0.0, noise_variance=0.0)
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
