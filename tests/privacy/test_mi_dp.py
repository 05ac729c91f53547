from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.privacy._mi_dp import mi_dp_bits, noise_variance_for_mi_dp
from tests.reference.gaussian_release import printed_interference

COUNTS = st.integers(1, 10**7)
VARIANCES = st.floats(1e-6, 1e6)


@given(c=COUNTS, variance=VARIANCES, seed=st.integers(0, 2**32))
def test_budget_is_the_formula_of_theorem_2(c: int, variance: float, seed: int) -> None:
    X = np.random.default_rng(seed).uniform(-1, 1, (6, 3))
    h2 = printed_interference(X)
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
