from __future__ import annotations

import math

import numpy as np
import pytest

from codedfl.planning._schemes import Curve


def curve(*below: float, error: float = 0.5) -> Curve:
    steps = np.arange(float(len(below)))
    return Curve(steps, 100.0 + 10.0 * steps, np.array(below), np.full(len(below), error))


def test_times_are_interpolated_and_shifted_by_errors() -> None:
    falling = curve(4.0, 2.0, 1.0)
    assert falling.first_within(3.0) == pytest.approx(105.0)
    assert falling.first_within(3.0, errors=-1.0) == pytest.approx(102.5)
    assert falling.first_within(5.0) == 100.0
    assert falling.first_within(0.9) is None


def test_below_at_a_time() -> None:
    falling = curve(4.0, 2.0, math.inf)
    assert falling.below_at(99.0) == math.inf, "no model yet"
    assert falling.below_at(105.0) == pytest.approx(3.0)
    assert falling.below_at(1e9) == math.inf
    assert falling.below_at(115.0) == pytest.approx(2.0), "before it runs away"


def test_running_away() -> None:
    assert curve(4.0, 1.0, 20.0).runs_away
    assert curve(4.0, 1.0, math.inf).runs_away
    assert not curve(4.0, 1.0, 1.5).runs_away
    assert curve(4.0, 1.0, math.inf).best == 1
