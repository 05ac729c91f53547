from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special

from codedfl.errors import InputError
from codedfl.privacy import interference, mi_dp_bits, mi_dp_of_device, noise_variance_for_mi_dp, printed_interference
from codedfl.privacy._numerics import log_chi_square_density
from tests.reference import gaussian_release as reference

COUNTS = st.integers(1, 10**7)
VARIANCES = st.floats(1e-6, 1e6)


@given(c=COUNTS, variance=VARIANCES, seed=st.integers(0, 2**32))
def test_budget_is_the_formula_of_theorem_2(c: int, variance: float, seed: int) -> None:
    X = np.random.default_rng(seed).uniform(-1, 1, (6, 3))
    h2 = reference.printed_interference(X)
    assert mi_dp_bits(c, variance, h2) == pytest.approx(0.5 * math.log2(1 + c / (h2 + variance)), rel=1e-9)
    assert mi_dp_bits(c, variance) == pytest.approx(0.5 * math.log2(1 + c / variance), rel=1e-9)


def test_budget_is_the_capacity_of_c_noisy_looks_at_an_entry() -> None:
    # an entry of unit power seen c times in noise v: 1/2 log2 det(I + 1 1^T / v)
    for c, v in ((1, 1.0), (6, 0.3), (40, 5.0)):
        _, log_det = np.linalg.slogdet(np.eye(c) + np.ones((c, c)) / v)
        assert mi_dp_bits(c, v) == pytest.approx(0.5 * log_det / math.log(2), rel=1e-12)


def test_budget_of_the_papers_setting() -> None:
    bits = mi_dp_bits(10_000, 0.25)
    assert bits == pytest.approx(7.64, abs=0.005)
    assert 2 ** (2 * bits) == pytest.approx(40_001, rel=1e-12)
    assert mi_dp_bits(3, 1.0) == pytest.approx(1.0, rel=1e-15)


@given(c=COUNTS, more=st.integers(1, 10**6), variance=VARIANCES, factor=st.floats(1.001, 1e3))
def test_budget_falls_with_noise_and_grows_with_coded_samples(
    c: int, more: int, variance: float, factor: float
) -> None:
    assert mi_dp_bits(c, variance * factor) < mi_dp_bits(c, variance)
    assert mi_dp_bits(c, variance, interference=variance * (factor - 1)) < mi_dp_bits(c, variance)
    assert mi_dp_bits(c + c * more, variance) > mi_dp_bits(c, variance)
    assert mi_dp_bits(c + 1, variance) >= mi_dp_bits(c, variance)


def test_interference_hides_as_much_as_noise() -> None:
    assert mi_dp_bits(100, 0.5, 0.25) == mi_dp_bits(100, 0.25, 0.5) == mi_dp_bits(100, 0.75)


def test_budget_is_infinite_without_anything_to_hide_behind() -> None:
    assert mi_dp_bits(10_000, 0.0) == math.inf
    assert mi_dp_bits(1, 0.0, 0.0) == math.inf
    assert math.isfinite(mi_dp_bits(10_000, 0.0, 1e-6))


def test_much_noise_leaves_a_little_and_not_zero() -> None:
    # 1 + c / v rounds to 1 here; the budget is c / (2 v ln 2) to first order
    assert mi_dp_bits(1, 1e18) == pytest.approx(1e-18 / (2 * math.log(2)), rel=1e-12)


@pytest.mark.parametrize(
    ("c", "variance", "interference", "field"),
    [
        (0, 1.0, 0.0, "coded_samples = 0"),
        (-1, 1.0, 0.0, "coded_samples = -1"),
        (10, -1e-9, 0.0, "noise_variance = -1e-09"),
        (10, math.nan, 0.0, "noise_variance = nan"),
        (10, math.inf, 0.0, "noise_variance = inf"),
        (10, 1.0, -0.5, "interference = -0.5"),
        (10, 1.0, math.nan, "interference = nan"),
    ],
)
def test_bad_input_is_refused(c: int, variance: float, interference: float, field: str) -> None:
    with pytest.raises(InputError, match=f"^{field} must be"):
        mi_dp_bits(c, variance, interference)


@given(exponent=st.floats(-6, 6), c=COUNTS)
def test_noise_for_a_budget_is_its_inverse_over_12_orders_of_magnitude(exponent: float, c: int) -> None:
    variance = 10.0**exponent
    assert noise_variance_for_mi_dp(mi_dp_bits(c, variance), c) == pytest.approx(variance, rel=1e-9)


@given(exponent=st.floats(-12, 2.5), c=COUNTS, h2=st.sampled_from([0.0, 1e-9, 0.1, 50.0]))
def test_budget_of_the_noise_for_it_is_the_budget(exponent: float, c: int, h2: float) -> None:
    bits = 10.0**exponent
    if h2 and bits >= mi_dp_bits(c, 0.0, h2):
        return
    assert mi_dp_bits(c, noise_variance_for_mi_dp(bits, c, h2), h2) == pytest.approx(bits, rel=1e-9)


def test_noise_for_tiny_and_huge_budgets() -> None:
    # c / (2 b ln 2) and c 2^(-2 b) to first order
    assert noise_variance_for_mi_dp(1e-14, 10) == pytest.approx(10 / (2e-14 * math.log(2)), rel=1e-12)
    assert noise_variance_for_mi_dp(400.0, 1) == pytest.approx(2.0**-800, rel=1e-12)
    assert noise_variance_for_mi_dp(1.0, 3) == pytest.approx(1.0, rel=1e-15)


def test_a_budget_beyond_no_noise_is_refused() -> None:
    most = mi_dp_bits(100, 0.0, 0.5)
    assert noise_variance_for_mi_dp(most, 100, 0.5) == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match=r"^bits = 5.0 is a larger budget .*: give 3.82553 or less"):
        noise_variance_for_mi_dp(5.0, 100, 0.5)


@pytest.mark.parametrize(
    ("bits", "c", "h2", "field"),
    [
        (0.0, 1, 0.0, "bits = 0.0"),
        (math.inf, 1, 0.0, "bits = inf"),
        (1.0, 0, 0.0, "coded_samples = 0"),
        (1.0, 1, -1.0, "interference = -1.0"),
    ],
)
def test_bad_budgets_are_refused(bits: float, c: int, h2: float, field: str) -> None:
    with pytest.raises(InputError, match=f"^{field} must be"):
        noise_variance_for_mi_dp(bits, c, h2)


@given(
    seed=st.integers(0, 2**32),
    samples=st.integers(1, 12),
    columns=st.integers(1, 8),
    variance=st.floats(1e-3, 1e3),
    repeat=st.booleans(),
)
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


def test_bad_features_are_refused() -> None:
    with pytest.raises(InputError, match=r"^features has shape \(3,\) and dtype float64: give a two-dimensional array"):
        interference(np.ones(3), 1.0)
    with pytest.raises(
        InputError, match=r"^features has shape \(0, 3\) and dtype float64: give a two-dimensional array"
    ):
        printed_interference(np.ones((0, 3)))
    with pytest.raises(InputError, match=r"^features has 1 value\(s\) that are NaN"):
        interference(np.array([[1.0, math.nan]]), 1.0)
    with pytest.raises(InputError, match=r"^noise_variance = -1"):
        interference(np.ones((2, 2)), -1.0)
