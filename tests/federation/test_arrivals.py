from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation._arrivals import NetworkArrivals

Outcome = tuple[int, bool]
"""Rows that a device was asked for, 0 if it was not reached, and whether its update arrived."""


@st.composite
def histories(draw: st.DrawFn) -> list[list[Outcome]]:
    devices = draw(st.integers(1, 5))
    outcome = st.one_of(st.just((0, False)), st.tuples(st.integers(1, 9), st.booleans()))
    return draw(st.lists(st.lists(outcome, min_size=devices, max_size=devices), min_size=1, max_size=12))


def recorded(history: list[list[Outcome]]) -> NetworkArrivals:
    arrivals = NetworkArrivals(len(history[0]), 30.0)
    for round in history:
        asked = {i: rows for i, (rows, _) in enumerate(round) if rows}
        arrivals.record(asked, {i: rows for i, (rows, came) in enumerate(round) if came})
    return arrivals


def by_hand(history: list[list[Outcome]], device: int) -> float:
    """``(1 + a) / (1 + k)`` in exact arithmetic."""
    return float(Fraction(1 + sum(round[device][1] for round in history), 1 + len(history)))


def probability(arrivals: NetworkArrivals, round: int) -> npt.NDArray[Any]:
    estimate = arrivals.attend(round).probability
    assert estimate is not None
    return estimate


@pytest.mark.slow
@given(histories())
def test_estimates_count_the_rounds_before(history: list[list[Outcome]]) -> None:
    arrivals = recorded(history)
    devices = range(len(history[0]))
    for k in range(len(history)):
        assert probability(arrivals, k).tolist() == [by_hand(history[:k], i) for i in devices]
    assert arrivals.probability.tolist() == [by_hand(history, i) for i in devices]


@given(histories(), st.data())
def test_an_estimate_does_not_depend_on_who_arrives_in_its_own_round_or_later(
    history: list[list[Outcome]], data: st.DataObject
) -> None:
    k = data.draw(st.integers(0, len(history) - 1))
    other = [list(round) for round in history]
    for round in range(k, len(history)):
        other[round] = [(rows, not came) if rows else (rows, came) for rows, came in history[round]]
    np.testing.assert_array_equal(probability(recorded(history), k), probability(recorded(other), k))


@given(histories())
def test_a_checkpoint_brings_everything_back(history: list[list[Outcome]]) -> None:
    arrivals = recorded(history)
    resumed = NetworkArrivals(len(history[0]), 30.0)
    kept: dict[str, Any] = dict(arrivals.arrays())
    resumed.restore(**kept)
    assert resumed.rounds == arrivals.rounds
    for k in range(arrivals.rounds):
        before, after = arrivals.attend(k), resumed.attend(k)
        np.testing.assert_array_equal(before.batch_sizes, after.batch_sizes)
        np.testing.assert_array_equal(before.arrived, after.arrived)
        np.testing.assert_array_equal(before.probability, after.probability)
    np.testing.assert_array_equal(resumed.record({0: 4}, {}).probability, arrivals.record({0: 4}, {}).probability)


@pytest.mark.slow
@given(histories())
def test_the_trace_replays_every_round_with_its_estimates(history: list[list[Outcome]]) -> None:
    arrivals = recorded(history)
    trace = arrivals.trace()
    assert trace.rounds == len(history)
    assert trace.duration_s == 30.0
    for k, round in enumerate(history):
        attendance = trace.attend(k)
        assert attendance.batch_sizes.tolist() == [rows for rows, _ in round]
        assert attendance.arrivals() == [(i, rows) for i, (rows, came) in enumerate(round) if came]
        np.testing.assert_array_equal(attendance.probability, probability(arrivals, k))


@given(histories())
def test_misses_count_since_the_last_arrival(history: list[list[Outcome]]) -> None:
    arrivals = recorded(history)
    for device in range(len(history[0])):
        misses = 0
        for asked, came in (round[device] for round in history):
            misses = 0 if came else misses + (asked > 0)
        assert arrivals.missed_in_a_row(device) == misses


def test_a_device_that_computed_on_fewer_rows_counts_with_those() -> None:
    attendance = NetworkArrivals(2, 30.0).record({0: 100, 1: 100}, {0: 40})
    assert attendance.batch_sizes.tolist() == [40, 100]
    assert attendance.arrivals() == [(0, 40)]


def test_weights_of_one_over_the_estimate_are_unbiased_in_the_long_run() -> None:
    """``E[1_k / p_k] = p E[1 / p_k]`` with ``p_k`` from ``k`` rounds before; by the binomial law
    ``E[(1 + k) / (1 + A)] = (1 - (1 - p)^(k + 1)) / p``, so the mean weight is ``1 - (1 - p)^(k + 1)``."""
    p, k, repetitions = 0.4, 6, 4000
    came = np.random.default_rng(0).random((k + 1, repetitions)) < p
    arrivals = NetworkArrivals(repetitions, 30.0)
    for round in came:
        arrivals.record(dict.fromkeys(range(repetitions), 1), dict.fromkeys(np.flatnonzero(round).tolist(), 1))
    weights = came[k] / probability(arrivals, k)
    standard_error = weights.std() / np.sqrt(repetitions)
    assert abs(weights.mean() - (1 - (1 - p) ** (k + 1))) < 4 * standard_error


@pytest.mark.parametrize("round", [-1, 1])
def test_a_round_that_has_not_taken_place_is_refused(round: int) -> None:
    arrivals = recorded([[(3, True)]])
    with pytest.raises(InputError, match=f"round = {round} has not taken place: 1 round"):
        arrivals.attend(round)


def test_arrays_of_another_fleet_are_refused() -> None:
    kept: dict[str, Any] = dict(recorded([[(3, True)]]).arrays())
    with pytest.raises(ValueError, match="do not fit"):
        NetworkArrivals(3, 30.0).restore(**kept)
    with pytest.raises(ValueError, match="do not fit"):
        NetworkArrivals(1, 30.0).restore(np.zeros((2, 1), np.int64), np.zeros((1, 1), np.bool_))
