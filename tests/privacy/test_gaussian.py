"""Epsilon, delta and mu of Gaussian mechanisms against their definition in high precision, a library and known values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.privacy import gaussian_epsilon, gaussian_mu
from codedfl.privacy._gaussian import log_gaussian_delta


def exact_log_delta(mu: float, epsilon: float) -> float:
    """``ln (Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu))`` with hundreds of digits."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(400):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        delta = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
        return float(mpmath.log(delta))


@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-5, 1e-12, 1e-100])
@pytest.mark.parametrize("mu", [1e-12, 1e-7, 9e-5, 1.1e-4, 1e-3, 0.1, 0.7, 1.0, 3.0, 10.0, 30.0])
def test_delta_at_that_epsilon_is_the_one_asked_for(mu: float, delta: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    if delta >= math.erf(mu / math.sqrt(8)):
        assert epsilon == 0.0
    else:
        assert epsilon > 0
        assert exact_log_delta(mu, epsilon) == pytest.approx(math.log(delta), rel=1e-7, abs=1e-6)


def test_known_values() -> None:
    """Table of Balle and Wang (2018): noise 3.730632 at sensitivity 1 is (1, 1e-5)-private; and the limit of large ``mu``."""
    assert gaussian_epsilon(1 / 3.730632, 1e-5) == pytest.approx(1.0, rel=1e-5)
    assert gaussian_epsilon(0.0, 1e-5) == 0.0
    assert gaussian_epsilon(math.inf, 1e-5) == math.inf
    for mu in (1e6, 1e12, 1e100):  # delta = Phi(-t) there, and epsilon = mu^2 / 2 + t mu
        assert gaussian_epsilon(mu, 1e-5) == pytest.approx(mu * (mu / 2 + 4.264890793922825), rel=1e-9)
    assert gaussian_epsilon(1e200, 1e-5) == math.inf


def test_it_agrees_with_dp_accounting() -> None:
    accounting = pytest.importorskip("dp_accounting")
    for mu in (0.05, 0.3, 1.0, 2.5):
        for delta in (1e-2, 1e-5, 1e-8):
            noise = accounting.get_epsilon_gaussian(1 / mu, delta)
            assert gaussian_epsilon(mu, delta) == pytest.approx(noise, rel=1e-6, abs=1e-9)


@pytest.mark.slow
@given(mu=st.floats(1e-300, 1e150), delta=st.floats(1e-290, 0.999), factor=st.floats(1.0, 10.0))
def test_it_never_falls_with_mu_and_never_grows_with_delta(mu: float, delta: float, factor: float) -> None:
    epsilon = gaussian_epsilon(mu, delta)
    assert epsilon >= 0
    assert gaussian_epsilon(mu * factor, delta) >= epsilon * (1 - 1e-9) - 1e-12
    assert gaussian_epsilon(mu, delta / factor) >= epsilon * (1 - 1e-9) - 1e-12


@pytest.mark.parametrize(("mu", "delta"), [(-1.0, 0.1), (math.nan, 0.1), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)])
def test_impossible_numbers_are_refused(mu: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"(mu|delta) = "):
        gaussian_epsilon(mu, delta)


@pytest.mark.parametrize("mu", [1e-6, 9e-5, 1.1e-4, 1e-2, 0.5, 1.0, 4.0, 30.0])
def test_delta_agrees_with_its_definition_in_high_precision(mu: float) -> None:
    """Losses from 25 standard deviations below to 25 above the mean, negative epsilons included."""
    mpmath = pytest.importorskip("mpmath")
    epsilons = mu * mu / 2 + mu * np.array([-25.0, -21.0, -19.0, -6.0, -1.0, 0.0, 1.0, 6.0, 25.0])
    found = log_gaussian_delta(mu, epsilons)
    with mpmath.workdps(400):
        m = mpmath.mpf(mu)
        for epsilon, value in zip(epsilons, found, strict=True):
            e = mpmath.mpf(float(epsilon))
            exact = mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)
            assert value == pytest.approx(float(mpmath.log(exact)), rel=1e-9, abs=1e-9)


def test_extremes_are_probabilities() -> None:
    for mu in (1e-200, 1e-9, 1.0, 1e9, 1e150):
        for epsilon in (0.0, 1e-300, 1.0, 1e4, 1e300):
            value = float(log_gaussian_delta(mu, np.array([epsilon]))[0])
            assert value <= 0
            assert not math.isnan(value)


@pytest.mark.parametrize("delta", [0.3, 1e-5, 1e-12, 1e-300])
@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-3, 0.5, 2.0, 50.0, 1e4, 1e8])
def test_mu_is_the_inverse_and_rounded_down(epsilon: float, delta: float) -> None:
    mu = gaussian_mu(epsilon, delta)
    assert 0 < mu < math.inf
    assert gaussian_epsilon(mu, delta) <= epsilon
    assert gaussian_epsilon(mu * (1 + 1e-6), delta) > epsilon


def test_known_value() -> None:
    """Noise 3.730632 at sensitivity 1 is (1, 1e-5)-private (Balle and Wang, 2018)."""
    assert 1 / gaussian_mu(1.0, 1e-5) == pytest.approx(3.730632, abs=5e-7)


@pytest.mark.parametrize(("epsilon", "delta"), [(-1.0, 0.1), (math.nan, 0.1), (math.inf, 0.1), (1.0, 0.0), (1.0, 1.0)])
def test_impossible_budgets_are_refused(epsilon: float, delta: float) -> None:
    with pytest.raises(InputError, match=r"^(epsilon|delta) = "):
        gaussian_mu(epsilon, delta)
