from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedfl.errors import InputError
from codedfl.fleet import Answers, ArrivalChances, RecordedAnswers, ResponseTimes
from codedfl.fleet._answers import LARGEST_TAIL, impossible_tail
from codedfl.streams import Streams

ROUNDS = 3000
ONE = np.ones(3)


@given(mean=st.floats(1e-3, 1e6), ratio=st.floats(1.001, 0.999 * LARGEST_TAIL), deadline=st.floats(0.01, 20.0))
def test_the_law_has_the_mean_and_the_percentile_that_were_given(mean: float, ratio: float, deadline: float) -> None:
    """Compared with scipy's lognormal law, of which σ is solved for numerically."""
    times = ResponseTimes(np.array([mean]), np.array([mean * ratio]))
    (sigma,) = times._deviation
    law = stats.lognorm(s=sigma, scale=mean * math.exp(-(sigma**2) / 2))
    assert law.mean() == pytest.approx(mean, rel=1e-9)
    assert law.ppf(0.95) == pytest.approx(mean * ratio, rel=1e-6)
    (p,) = times.probability(deadline * mean, np.ones(1))
    assert p == pytest.approx(law.cdf(deadline * mean), abs=1e-9)


def test_of_the_two_laws_with_a_percentile_the_one_with_the_lighter_tail_is_taken() -> None:
    (sigma,) = ResponseTimes(np.array([10.0]), np.array([20.0]))._deviation
    assert sigma < stats.norm.ppf(0.95)


def test_equal_mean_and_percentile_is_a_device_that_always_takes_the_same_time() -> None:
    times = ResponseTimes(np.array([30.0, 30.0, 30.0]), np.array([30.0, 30.0, 60.0]))
    assert times.probability(29.999, ONE)[:2].tolist() == [0.0, 0.0]
    assert times.probability(30.0, ONE)[:2].tolist() == [1.0, 1.0]


def test_twice_the_work_takes_twice_as_long() -> None:
    times = ResponseTimes(np.array([10.0, 20.0, 30.0]), np.array([20.0, 30.0, 30.0]))
    assert times.probability(60.0, 2 * ONE) == pytest.approx(times.probability(30.0, ONE))
    recorded = RecordedAnswers(np.array([[1.0, 2.0, 3.0], [4.0, np.nan, 6.0]]))
    assert recorded.probability(6.0, 2 * ONE).tolist() == recorded.probability(3.0, ONE).tolist() == [0.5, 0.5, 0.5]


LAWS: dict[str, Answers] = {
    "chances": ArrivalChances(np.array([0.0, 0.3, 1.0])),
    "times": ResponseTimes(np.array([5.0, 10.0, 20.0]), np.array([12.0, 30.0, 25.0])),
    "recording": RecordedAnswers(np.random.default_rng(0).lognormal(2.0, 0.8, (ROUNDS, 3))),
}


@pytest.mark.parametrize("law", LAWS)
def test_devices_answer_in_time_as_often_as_promised(law: str) -> None:
    answers, streams = LAWS[law], Streams(4)
    arrived = np.mean([answers.attend(12.0, ONE, streams, k)[0] for k in range(ROUNDS)], axis=0)
    p = answers.probability(12.0, ONE)
    assert (np.abs(arrived - p) <= 4.5 * np.sqrt(p * (1 - p) / ROUNDS)).all()
    assert ((p > 0) & (p < 1)).any()


@pytest.mark.parametrize("law", LAWS)
def test_a_part_of_the_devices_has_the_same_law_and_a_shape_of_work_is_kept(law: str) -> None:
    answers = LAWS[law]
    part = answers.among(np.array([2, 0]))
    assert part.devices == 2
    assert part.probability(12.0, np.ones(2)).tolist() == answers.probability(12.0, ONE)[[2, 0]].tolist()
    assert answers.probability(12.0, np.ones((4, 5, 3))).shape == (4, 5, 3)


@pytest.mark.parametrize("law", ["times", "recording"])
def test_a_longer_deadline_only_adds_devices(law: str) -> None:
    answers, streams = LAWS[law], Streams(1)
    for k in range(50):
        short, long = (answers.attend(T, ONE, streams, k)[0] for T in (8.0, 16.0))
        assert (long | ~short).all()


def test_a_recording_is_replayed_in_order_and_then_again() -> None:
    recorded = RecordedAnswers(np.array([[1.0, np.nan], [3.0, 8.0]]))
    seen = [recorded.attend(3.0, np.ones(2), Streams(0), k) for k in range(4)]
    assert [(a.tolist(), b.tolist()) for a, b in seen] == 2 * [
        ([True, False], [True, False]),
        ([True, False], [True, True]),
    ]


def test_mean_and_range_of_a_recording() -> None:
    recorded = RecordedAnswers(np.array([[1.0, np.nan, np.nan], [3.0, 8.0, np.nan]]))
    assert recorded.mean_s.tolist() == [2.0, 8.0, 8.0]
    assert (recorded.shortest_s, recorded.longest_s) == (1.0, 8.0)
    silent = recorded.among(np.array([2]))
    assert silent.probability(1e9, np.ones(1)).tolist() == [0.0]
    assert (silent.shortest_s, silent.longest_s) == (1e-3, 1e-3)


def test_hardly_anybody_makes_the_shortest_deadline() -> None:
    for ratio in (1.0, 1.5, 3.0, LARGEST_TAIL):
        times = ResponseTimes(np.array([7.0, 50.0]), ratio * np.array([7.0, 50.0]))
        assert (times.probability(times.shortest_s, np.ones(2)) < 1 / 6).all()


@pytest.mark.parametrize(("mean", "p95"), [(10.0, 10.0), (10.0, 38.6), (1e-9, 2e-9)])
def test_possible_pairs(mean: float, p95: float) -> None:
    assert impossible_tail(mean, p95) == ""
    assert np.isfinite(ResponseTimes(np.array([mean]), np.array([p95])).probability(1.0, np.ones(1))).all()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ResponseTimes(np.array([10.0]), np.array([9.0])), "fleet.p95_s = 9 is below the mean of 10 s"),
        (
            lambda: ResponseTimes(np.array([10.0]), np.array([39.0])),
            "fleet.p95_s = 39 is more than 3.87 times the mean",
        ),
        (lambda: ResponseTimes(np.array([0.0]), np.array([1.0])), "fleet.mean_s must be a positive number"),
        (lambda: ResponseTimes(np.array([1.0]), np.array([1.0, 2.0])), "fleet.mean_s has 1 value"),
        (lambda: ArrivalChances(np.array([0.5, 1.1])), "fleet.arrival_probability must lie from 0 to 1"),
        (lambda: ArrivalChances(np.array([np.nan])), "fleet.arrival_probability has 1 value"),
        (lambda: RecordedAnswers(np.array([1.0])), "recorded seconds have shape"),
        (lambda: RecordedAnswers(np.array([[-1.0]])), "zero or more"),
        (lambda: RecordedAnswers(np.array([[np.inf]])), "zero or more"),
    ],
)
def test_impossible_numbers_are_refused_in_a_sentence(make: object, words: str) -> None:
    with pytest.raises(InputError) as error:
        make()  # type: ignore[operator]
    assert words in str(error.value)
    assert "\n" not in str(error.value)
