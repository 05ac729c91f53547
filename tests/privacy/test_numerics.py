from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, special, stats

from codedfl.privacy._numerics import (
    log_chi_square_cdf,
    log_chi_square_density,
    log_chi_square_sf,
    log_difference,
    monotone_root,
    x_minus_log1p,
)
from codedfl.typing import FloatArray

Tail = Callable[[float, float], FloatArray]


def by_quadrature(x: float, freedom: int, upper: bool) -> float:
    """The logarithm of a tail as ``ln density(x)`` plus that of the integral of ``density(t) / density(x)``."""
    shape = freedom / 2 - 1
    slope = abs(shape / x - 0.5)
    scale = 1 / (slope + math.sqrt(abs(shape)) / x)

    def relative(u: float) -> float:
        t = x + u * scale if upper else x - u * scale
        return math.exp(shape * math.log(t / x) - (t - x) / 2) if t > 0 else 0.0

    end = 80.0 if upper else min(80.0, x / scale)
    pieces = [integrate.quad(relative, a * end, b * end, epsabs=0, epsrel=1e-12)[0] for a, b in ((0, 0.1), (0.1, 1))]
    log_density = shape * math.log(x / 2) - x / 2 - math.lgamma(freedom / 2) - math.log(2)
    return log_density + math.log(scale * sum(pieces))


@pytest.mark.parametrize("freedom", [1, 2, 3, 10, 101, 10_000])
def test_tails_are_those_of_scipy_where_it_has_them(freedom: int) -> None:
    x = stats.chi2.ppf(np.linspace(0.001, 0.999, 99), freedom)
    assert log_chi_square_sf(x, freedom) == pytest.approx(stats.chi2.logsf(x, freedom), rel=1e-9)
    assert log_chi_square_cdf(x, freedom) == pytest.approx(stats.chi2.logcdf(x, freedom), rel=1e-9)
    assert log_chi_square_density(x, freedom) == pytest.approx(stats.chi2.logpdf(x, freedom), rel=1e-9)


@pytest.mark.parametrize("freedom", [3, 40, 1000, 10_000])
@pytest.mark.parametrize("factor", [1.5, 3.0, 10.0, 200.0])
def test_far_upper_tail_against_quadrature(freedom: int, factor: float) -> None:
    x = factor * freedom
    assert float(log_chi_square_sf(x, freedom)) == pytest.approx(by_quadrature(x, freedom, upper=True), rel=1e-10)


@pytest.mark.parametrize("freedom", [40, 1000, 10_000])
@pytest.mark.parametrize("factor", [0.7, 0.3, 1e-2, 1e-6])
def test_far_lower_tail_against_quadrature(freedom: int, factor: float) -> None:
    x = factor * freedom
    assert float(log_chi_square_cdf(x, freedom)) == pytest.approx(by_quadrature(x, freedom, upper=False), rel=1e-10)


@given(freedom=st.integers(1, 30_000), deviation=st.floats(-150, 150))
def test_tails_obey_the_recurrence(freedom: int, deviation: float) -> None:
    """``SF_(c+2)(x) = SF_c(x) + 2 density_(c+2)(x)`` joins every pair of methods, and the like for the CDF."""
    x = freedom + deviation * math.sqrt(2 * freedom)
    if x <= 0:
        return
    step = math.log(2) + float(log_chi_square_density(x, freedom + 2))
    if deviation > 0:
        whole, parts = log_chi_square_sf(x, freedom + 2), (float(log_chi_square_sf(x, freedom)), step)
    else:
        whole, parts = log_chi_square_cdf(x, freedom), (float(log_chi_square_cdf(x, freedom + 2)), step)
    assert float(whole) == pytest.approx(float(special.logsumexp(parts)), rel=1e-11, abs=1e-11)


def test_two_degrees_of_freedom_are_exponential() -> None:
    x = np.array([1e-9, 0.1, 1.0, 700.0, 1e5, 1e12])
    assert log_chi_square_sf(x, 2) == pytest.approx(-x / 2, rel=1e-12)
    cdf = np.where(x < 1, np.log(-np.expm1(-x / 2)), np.log1p(-np.exp(-x / 2)))
    assert log_chi_square_cdf(x, 2) == pytest.approx(cdf, rel=1e-12, abs=0)


def test_lower_tail_of_very_many_degrees_of_freedom() -> None:
    """Where scipy's series stops early; the law is nearly normal, with a correction of order ``freedom^-1/2``."""
    freedom, deviation = 1e8, -5.0
    x = freedom + deviation * math.sqrt(2 * freedom)
    exact = float(log_chi_square_cdf(x, freedom))
    assert exact == pytest.approx(float(stats.norm.logcdf(deviation)), rel=1e-3)
    skewed = stats.norm.cdf(deviation) + (1 - deviation**2) * stats.norm.pdf(deviation) * math.sqrt(8 / freedom) / 6
    assert exact == pytest.approx(math.log(skewed), rel=1e-6)


@pytest.mark.parametrize("tail", [log_chi_square_sf, log_chi_square_cdf])
def test_ends(tail: Tail) -> None:
    ends = [float(tail(x, 7)) for x in (-1.0, 0.0, math.inf)]
    impossible, certain = (ends[:2], ends[2:]) if tail is log_chi_square_cdf else (ends[2:], ends[:2])
    assert all(value == 0 for value in certain)
    assert all(value < -1e200 for value in impossible)


def test_x_minus_log1p() -> None:
    x = np.concatenate([np.linspace(-0.99, 5, 200), [0.3, -0.3, 0.3 - 1e-15, -0.3 + 1e-15]])
    assert x_minus_log1p(x) == pytest.approx(x - np.log1p(x), rel=1e-12, abs=1e-15)
    tiny = np.array([1e-3, -1e-3, 1e-8, -1e-8, 1e-100])
    series = tiny**2 * (1 / 2 - tiny / 3 + tiny**2 / 4 - tiny**3 / 5 + tiny**4 / 6 - tiny**5 / 7)
    assert x_minus_log1p(tiny) == pytest.approx(series, rel=1e-15, abs=0)
    assert float(x_minus_log1p(0.0)) == 0
    assert float(x_minus_log1p(-1.0)) == math.inf


def test_log_difference() -> None:
    assert float(log_difference(0.0, math.log(2))) == pytest.approx(math.log(0.5), rel=1e-15)
    assert float(log_difference(-1e6, 1e-20)) == pytest.approx(-1e6 + math.log(1e-20), rel=1e-15)
    assert float(log_difference(3.0, 800.0)) == 3.0
    assert float(log_difference(3.0, 0.0)) == -math.inf


@given(root=st.floats(-300, 300), guess=st.floats(-1000, 1000), rising=st.booleans())
def test_it_finds_the_root_from_wherever_it_begins(root: float, guess: float, rising: bool) -> None:
    sign = 1.0 if rising else -1.0
    found = monotone_root(lambda x: sign * math.sinh((x - root) / 100), guess, (-700.0, 700.0), rising=rising)
    assert found == pytest.approx(root, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("rising", [True, False])
def test_without_a_root_it_says_on_which_side_it_would_be(rising: bool) -> None:
    tried: list[float] = []

    def function(x: float) -> float:
        tried.append(x)
        return (1.0 if rising else -1.0) * (x - 20.0)

    assert monotone_root(function, 3.0, (-10.0, 10.0), rising=rising) == math.inf
    assert max(tried) == 10.0, "the limit itself is tried"
    assert monotone_root(lambda x: -function(-x), 3.0, (-10.0, 10.0), rising=rising) == -math.inf
    assert -10.0 <= min(tried) <= max(tried) <= 10.0
