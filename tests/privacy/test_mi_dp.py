from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.arrays import FloatArray
from codedfl.errors import InputError
from codedfl.privacy import mi_dp_bits

COUNTS = st.integers(1, 10**7)
VARIANCES = st.floats(1e-6, 1e6)


def squared_interference(X: FloatArray) -> float:
    """``h^2`` of Theorem 2: the least, over columns, of the sum of squares without its largest term."""
    smallest = math.inf
    for column in X.T:
        squares = [float(x) ** 2 for x in column]
        smallest = min(smallest, sum(squares) - max(squares))
    return smallest


@given(c=COUNTS, variance=VARIANCES, seed=st.integers(0, 2**32))
def test_budget_is_the_formula_of_theorem_2(c: int, variance: float, seed: int) -> None:
    X = np.random.default_rng(seed).uniform(-1, 1, (6, 3))
    h2 = squared_interference(X)
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
