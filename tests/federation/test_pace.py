from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.federation._arrivals import LEAST_SHARE, MEMORY, SHARE_OF_DEADLINE, Pace

seconds = st.floats(0.0, 1e4)


def test_before_the_first_answer_a_device_is_asked_for_all_rows_or_as_many_as_are_set() -> None:
    pace = Pace.unknown(2)
    assert pace.request(0, samples=500, steps=5, deadline_s=30.0) == 500
    assert pace.request(0, samples=500, steps=5, deadline_s=30.0, first=64) == 64
    assert pace.request(0, samples=50, steps=5, deadline_s=30.0, first=64) == 50


@given(st.floats(1e-6, 1e-2), st.floats(0.0, 10.0), st.integers(1, 500), st.integers(1, 10))
def test_a_device_of_constant_speed_fills_its_share_of_the_round(
    row_s: float, overhead_s: float, rows: int, steps: int
) -> None:
    """A device that takes ``overhead + steps * rows * row_s`` meets ``0.7 T`` with what it is asked for, and not with more."""
    deadline_s = 30.0
    compute_s = steps * rows * row_s
    pace = Pace.unknown(1).answered(0, rows, steps, compute_s, overhead_s + compute_s)
    asked = pace.request(0, samples=10**9, steps=steps, deadline_s=deadline_s)
    tolerance = 1e-6 * deadline_s  # the overhead is a difference of measured times
    assert asked == 1 or overhead_s + steps * asked * row_s <= SHARE_OF_DEADLINE * deadline_s + tolerance
    assert overhead_s + steps * (asked + 1) * row_s > SHARE_OF_DEADLINE * deadline_s - tolerance


@given(st.lists(st.tuples(st.integers(1, 1000), seconds, seconds), max_size=8), st.integers(1, 10**6), seconds)
def test_whatever_was_measured_at_least_one_row_and_at_most_all_are_asked_for(
    answers: list[tuple[int, float, float]], samples: int, deadline_s: float
) -> None:
    pace = Pace.unknown(1)
    for rows, compute_s, elapsed_s in answers:
        pace = pace.answered(0, rows, 3, compute_s, elapsed_s).missed(0)
    assert 1 <= pace.request(0, samples, 3, deadline_s) <= samples


def test_new_measurements_count_for_half() -> None:
    pace = Pace.unknown(1).answered(0, 10, 1, compute_s=1.0, elapsed_s=3.0)
    assert (pace.row_s[0], pace.overhead_s[0]) == (0.1, 2.0)
    pace = pace.answered(0, 10, 1, compute_s=3.0, elapsed_s=4.0)
    assert pace.row_s[0] == pytest.approx(MEMORY * 0.1 + (1 - MEMORY) * 0.3, rel=1e-15)
    assert pace.overhead_s[0] == MEMORY * 2.0 + (1 - MEMORY) * 1.0


def test_a_device_cannot_have_computed_for_longer_than_the_server_waited() -> None:
    pace = Pace.unknown(1).answered(0, 10, 1, compute_s=1e6, elapsed_s=2.0)
    assert (pace.row_s[0], pace.overhead_s[0]) == (0.2, 0.0)


def test_every_miss_halves_the_request_down_to_a_limit_and_every_answer_doubles_it_again() -> None:
    pace = Pace.unknown(1)
    shares = []
    for _ in range(10):
        pace = pace.missed(0)
        shares.append(float(pace.share[0]))
    assert shares == [2.0**-n for n in range(1, 7)] + [LEAST_SHARE] * 4
    assert pace.request(0, samples=6400, steps=1, deadline_s=30.0) == 100
    for n in range(5, -1, -1):
        pace = pace.answered(0, 10, 1, compute_s=1e-9, elapsed_s=1e-9)
        assert pace.share[0] == 2.0**-n
    assert pace.answered(0, 10, 1, 0.1, 0.1).share[0] == 1.0


def test_devices_are_measured_apart() -> None:
    before = Pace.unknown(3)
    after = before.answered(1, 10, 1, 1.0, 2.0).missed(2)
    assert np.isnan(before.row_s).all(), "a pace never changes"
    assert np.isnan(after.row_s).tolist() == [True, False, True]
    assert after.share.tolist() == [1.0, 1.0, 0.5]
    assert after.request(0, 7, 1, 30.0) == 7
