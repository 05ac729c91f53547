from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.privacy._dataset import epsilon_of_dataset, renyi_of_dataset, sample_signal_to_noise
from codedfl.privacy._solving import exact_epsilon
from tests.reference import gaussian_release as reference

ONE_HOT = np.eye(3)


@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(1, 12),
    columns=st.integers(1, 8),
    variance=st.sampled_from([1e-9, 1e-3, 0.25, 100.0]),
    label_variance=st.sampled_from([1e-3, 1.0]),
)
@settings(deadline=None)
def test_ratios_against_leaving_out_one_sample_at_a_time(
    seed: int, samples: int, columns: int, variance: float, label_variance: float
) -> None:
    rng = np.random.default_rng(seed)
    X, Y = rng.uniform(-1, 1, (samples, columns)), ONE_HOT[rng.integers(0, 3, samples)]
    noise = np.array([variance] * columns + [label_variance] * 3)
    expected = reference.sample_signal_to_noise(np.hstack([X, Y]), noise)
    found = sample_signal_to_noise(X, variance, Y, label_variance)
    assert found == pytest.approx(expected, rel=1e-4 if variance < 1e-6 else 1e-8)
    features_alone = sample_signal_to_noise(X, variance)
    assert (features_alone <= found * (1 + 1e-4)).all()
    assert (features_alone <= np.square(X).sum(axis=1) / variance * (1 + 1e-9)).all()


def test_labels_without_noise_single_out_who_has_one_alone() -> None:
    X = np.random.default_rng(0).uniform(-1, 1, (10, 4))
    Y = ONE_HOT[[0] * 6 + [1] * 3 + [2]]
    ratios = sample_signal_to_noise(X, 1.0, Y)
    assert np.isinf(ratios).tolist() == [False] * 9 + [True]
    assert epsilon_of_dataset(1e-5, X, 10, 1.0, Y) == math.inf
    assert math.isfinite(epsilon_of_dataset(1e-5, X, 10, 1.0, Y, label_noise_variance=1.0))
    assert np.isinf(renyi_of_dataset(1.0001, X, 10, 1.0, Y)).all()


def test_no_noise_and_few_samples_leave_no_doubt() -> None:
    X = np.random.default_rng(1).uniform(-1, 1, (4, 4))
    assert np.isinf(sample_signal_to_noise(X, 0.0)).all()
    many = np.random.default_rng(1).uniform(-1, 1, (40, 4))
    assert np.isfinite(sample_signal_to_noise(many, 0.0)).all()
    many[:, 3] = many[:, 0]  # dependent columns hide nothing less
    assert sample_signal_to_noise(many, 0.0) == pytest.approx(sample_signal_to_noise(many[:, :3], 0.0), rel=1e-9)
    assert sample_signal_to_noise(np.zeros((5, 2)), 0.0).tolist() == [0.0] * 5


def test_renyi_of_a_dataset_is_the_largest_over_its_samples_both_ways() -> None:
    X = np.random.default_rng(2).uniform(-1, 1, (12, 3))
    whole = X.T @ X + 2.0 * np.eye(3)
    for order in (1.2, 2.0, 3.5):
        largest = 0.0
        for x in X:
            without = whole - np.outer(x, x)
            for pair in ((whole, without), (without, whole)):
                largest = max(largest, 40 * reference.renyi_of_zero_mean_gaussians(*pair, order))
        assert float(renyi_of_dataset(order, X, 40, 2.0)) == pytest.approx(largest, rel=1e-9)


def test_a_dataset_is_never_worse_than_the_worst_case_and_can_reach_it() -> None:
    rng = np.random.default_rng(3)
    for samples in (1, 5, 200):
        X = rng.normal(size=(samples, 6))
        X /= np.linalg.norm(X, axis=1, keepdims=True)
        worst = exact_epsilon(1e-5, 100, 1 / 0.5)
        found = epsilon_of_dataset(1e-5, X, 100, 0.5)
        assert found <= worst * (1 + 1e-9)
        assert (found == pytest.approx(worst, rel=1e-9)) == (samples == 1)


def test_samples_of_zeros_need_no_budget() -> None:
    assert epsilon_of_dataset(1e-5, np.zeros((5, 2)), 10, 1.0) == 0


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match=r"^features of shape \(3,\) must be a table"):
        sample_signal_to_noise(np.ones(3), 1.0)
    with pytest.raises(InputError, match=r"^labels have 2 rows but features have 3"):
        sample_signal_to_noise(np.ones((3, 1)), 1.0, np.ones(2))
    with pytest.raises(InputError, match=r"^labels has 1 value"):
        sample_signal_to_noise(np.ones((2, 1)), 1.0, np.array([1.0, math.inf]))
    with pytest.raises(InputError, match=r"^label_noise_variance = -1"):
        sample_signal_to_noise(np.ones((2, 1)), 1.0, None, -1.0)
