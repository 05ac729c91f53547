from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.privacy import gaussian_epsilon, gaussian_mu
from codedfl.privacy._gaussian_curve import log_gaussian_delta


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
