from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, special

from codedfl.errors import InputError
from codedfl.privacy._interference import (
    MiDpBudget,
    interference,
    largest_mi_dp,
    mi_dp_of_device,
    printed_interference,
)
from codedfl.privacy._mi_dp import mi_dp_bits
from codedfl.privacy._tails import log_chi_square_density
from tests.reference import gaussian_release as reference


@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(1, 12),
    columns=st.integers(1, 8),
    variance=st.floats(1e-3, 1e3),
    repeat=st.booleans(),
)
@settings(deadline=None)
def test_interference_against_leaving_out_one_sample_at_a_time(
    seed: int, samples: int, columns: int, variance: float, repeat: bool
) -> None:
    X = np.random.default_rng(seed).uniform(-1, 1, (samples, columns))
    if repeat:
        X[:, -1] = X[:, 0]
        X[-1] = X[0]
    assert printed_interference(X) == pytest.approx(reference.printed_interference(X), rel=1e-9, abs=1e-12)
    hidden = interference(X, variance) + variance
    assert hidden == pytest.approx(reference.hidden_power(X, variance), rel=1e-8)
    assert hidden <= (reference.printed_interference(X) + variance) * (1 + 1e-9)


@pytest.mark.parametrize("samples", [9, 30])
def test_interference_without_noise(samples: int) -> None:
    X = np.random.default_rng(1).uniform(-1, 1, (samples, 8))
    assert interference(X, 0.0) == pytest.approx(reference.hidden_power(X, 0.0), rel=1e-6)


@pytest.mark.parametrize("samples", [5, 8, 9, 40])
def test_interference_with_very_little_noise(samples: int) -> None:
    """A noise of 1e-9 among entries of order 1: leaving out a sample by Sherman and Morrison loses no more than 7 digits."""
    X = np.random.default_rng(2).uniform(-1, 1, (samples, 8))
    assert interference(X, 1e-9) + 1e-9 == pytest.approx(reference.hidden_power(X, 1e-9), rel=1e-5)


def test_nothing_is_hidden_without_noise_when_samples_are_few_or_dependent() -> None:
    rng = np.random.default_rng(3)
    few, twins = rng.uniform(-1, 1, (8, 8)), rng.uniform(-1, 1, (50, 8))
    twins[:, 1] = twins[:, 0]
    alone = np.zeros((50, 8))
    alone[:, 1:] = rng.uniform(-1, 1, (50, 7))
    alone[7, 0] = 1.0  # the only sample with anything in the first column
    for X in (few, twins, alone):
        assert interference(X, 0.0) == 0
        assert mi_dp_of_device(X, 100, 0.0).corrected == math.inf
    assert interference(np.zeros((50, 8)), 0.0) == 0


def test_a_column_of_zeros_is_hidden_by_the_noise_alone() -> None:
    X = np.random.default_rng(4).uniform(-1, 1, (100, 5))
    X[:, 2] = 0
    assert interference(X, 0.25) == pytest.approx(0, abs=1e-12)


def test_one_column_is_where_the_paper_is_right() -> None:
    X = np.random.default_rng(5).uniform(-1, 1, (30, 1))
    budget = mi_dp_of_device(X, 100, 0.3)
    assert budget.corrected == pytest.approx(budget.printed, rel=1e-12)
    assert budget.corrected < budget.universal


@given(seed=st.integers(0, 2**32), samples=st.integers(1, 20), columns=st.integers(1, 6))
@settings(deadline=None)
def test_budgets_are_ordered(seed: int, samples: int, columns: int) -> None:
    X = np.random.default_rng(seed).uniform(-1, 1, (samples, columns))
    budget = mi_dp_of_device(X, 50, 0.1)
    assert budget.printed <= budget.corrected * (1 + 1e-9)
    assert budget.corrected <= budget.universal * (1 + 1e-9)


def bits_of_a_coin(ratio: float, c: int) -> float:
    """What the sum ``T`` of ``c`` squares tells of a fair coin, if it is ``chi2_c`` on tails and ``(1 + ratio) chi2_c`` on heads.

    One minus the mean entropy of the posterior, integrated over the logarithm of ``T``.
    """

    def integrand(u: float) -> float:
        t = math.exp(u)
        tails = float(log_chi_square_density(t, c))
        heads = float(log_chi_square_density(t / (1 + ratio), c)) - math.log1p(ratio)
        posterior = float(special.expit(heads - tails))
        entropy = float(special.entr(posterior) + special.entr(1 - posterior)) / math.log(2)
        return t * 0.5 * (math.exp(tails) + math.exp(heads)) * entropy

    low, high = math.log(c) - 40 / c - 3, math.log(c + 12 * math.sqrt(c) + 80) + math.log1p(ratio)
    pieces = [integrate.quad(integrand, a, b, epsrel=1e-10)[0] for a, b in pairwise(np.linspace(low, high, 30))]
    return 1 - sum(pieces)


def test_a_dataset_that_reveals_more_than_the_printed_bound_and_less_than_the_corrected_one() -> None:
    """Two equal columns of ones hide each other's last entry on paper; their difference shows it.

    All samples are (1, 1) but the last, which is (x, 0) for a fair coin x. A coded row has covariance
    ``M + x^2 e e^T``, ``M = (m - 1) 1 1^T + sigma^2 I``, so the information is that of a test between two Gaussians.
    """
    m, c, variance = 1000, 10, 0.5
    others = np.ones((m - 1, 2))
    datasets = [np.vstack([others, [[x, 0.0]]]) for x in (0.0, 1.0)]
    M = others.T @ others + variance * np.eye(2)
    ratio = float(np.linalg.inv(M)[0, 0])
    revealed = bits_of_a_coin(ratio, c)

    assert printed_interference(datasets[0]) == printed_interference(datasets[1]) == m - 2
    budgets = [mi_dp_of_device(X, c, variance) for X in datasets]
    for budget in budgets:
        assert 20 * budget.printed < revealed < 0.5 * budget.corrected
    assert budgets[0].printed == pytest.approx(0.0072, abs=1e-4)
    assert revealed == pytest.approx(0.3263, abs=1e-4)
    assert mi_dp_bits(c, 1 / ratio) == pytest.approx(budgets[1].corrected, rel=0.01)

    # and the coded rows themselves, by Monte Carlo over 100,000 releases
    rng = np.random.default_rng(6)
    heads = M + np.diag([1.0, 0.0])
    losses = (
        reference.privacy_losses(heads, M, c, 50_000, rng),
        -reference.privacy_losses(M, heads, c, 50_000, rng),
    )
    entropies = np.concatenate([special.entr(special.expit(v)) + special.entr(special.expit(-v)) for v in losses])
    sampled = 1 - entropies / math.log(2)
    assert abs(sampled.mean() - revealed) < 4.5 * sampled.std() / math.sqrt(len(sampled))


def test_information_of_a_coin_that_shows_or_not() -> None:
    assert bits_of_a_coin(1e-6, 5) == pytest.approx(0, abs=1e-9)
    assert bits_of_a_coin(1e6, 60) == pytest.approx(1, abs=1e-9)


def test_the_largest_budget_over_devices() -> None:
    rng = np.random.default_rng(7)
    budgets = [mi_dp_of_device(rng.uniform(-1, 1, (n, 3)), 100, v) for n, v in ((5, 0.5), (50, 0.1), (500, 2.0))]
    worst = largest_mi_dp(budgets)
    assert worst == MiDpBudget(
        max(b.printed for b in budgets), max(b.corrected for b in budgets), max(b.universal for b in budgets)
    )
    assert worst.universal == mi_dp_bits(100, 0.1)


def test_bad_features_are_refused() -> None:
    with pytest.raises(InputError, match=r"^features of shape \(3,\) must be a table"):
        interference(np.ones(3), 1.0)
    with pytest.raises(InputError, match=r"^features of shape \(0, 3\) must be a table"):
        printed_interference(np.ones((0, 3)))
    with pytest.raises(InputError, match=r"^features has 1 value\(s\) that are NaN"):
        interference(np.array([[1.0, math.nan]]), 1.0)
    with pytest.raises(InputError, match=r"^noise_variance = -1"):
        interference(np.ones((2, 2)), -1.0)
    with pytest.raises(InputError, match=r"^budgets is empty"):
        largest_mi_dp([])
