from __future__ import annotations

import numpy as np
import pytest

from codedfl.fleet._outage import outage_exponent


def test_exponent_is_the_formula() -> None:
    kappa, window = np.array([0.3, 0.05]), np.array([2.0, 0.7])
    expected = kappa * (2 ** (640e3 / (180e3 * window)) - 1)
    assert outage_exponent(kappa, 640e3, 180e3, window) == pytest.approx(expected, rel=1e-13)


def test_small_exponents_keep_their_digits() -> None:
    assert outage_exponent(np.array([1.0]), 1.0, 1e18, np.array([1.0])) == pytest.approx(np.log(2) * 1e-18)


def test_no_time_or_far_too_little_is_infinite_without_a_warning() -> None:
    exponent = outage_exponent(np.full(4, 1e-9), 1e6, 1e3, np.array([-1.0, 0.0, 1e-3, 5e-324]))
    assert np.isposinf(exponent).all()
