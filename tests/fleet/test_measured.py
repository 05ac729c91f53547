from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import (
    Answers,
    ArrivalChances,
    Channel,
    CohortArrivals,
    FixedBatchArrivals,
    MeasuredFleet,
    MeasuredTiming,
    RecordedAnswers,
    ResponseTimes,
    RoundTiming,
    TraceArrivals,
    Workload,
    allocate,
    draw_fleet,
    epoch_seconds,
    fastest_deadline,
    optimal_loads,
    patient_deadline,
    read_trace,
    round_timing,
    write_trace,
)
from codedfl.fleet._round_design import CANDIDATES
from codedfl.streams import Streams

NAMES = ("a", "b", "c")
WORKLOAD = Workload.for_linear_model(50, 2, 5)
SAMPLES = np.array([100, 20, 0])
CHANCES = ArrivalChances(np.array([0.9, 0.4, 0.7]))
TIMES = ResponseTimes(np.array([20.0, 40.0, 10.0]), np.array([45.0, 60.0, 15.0]))
RECORDED = RecordedAnswers(np.array([[10.0, np.nan, 5.0], [20.0, 30.0, np.nan], [40.0, 12.0, 6.0]]))


def timing(answers: Answers = TIMES, deadline_s: float = 30.0, **known: np.ndarray) -> MeasuredTiming:
    return MeasuredTiming(MeasuredFleet(NAMES, answers, **known), WORKLOAD, deadline_s)


def test_the_kind_of_fleet_decides_on_the_timing() -> None:
    measured = round_timing(MeasuredFleet(NAMES, CHANCES), Channel(), WORKLOAD, 30.0)
    drawn = round_timing(draw_fleet(NAMES, np.random.default_rng(0)), Channel(), WORKLOAD, 30.0)
    assert isinstance(measured, MeasuredTiming)
    assert isinstance(drawn, RoundTiming)
    assert (measured.fixed_deadline, timing(TIMES).fixed_deadline, drawn.fixed_deadline) == (True, False, False)
    assert measured.server_batch(1e6, 100) == drawn.server_batch(1e6, 100)


@pytest.mark.parametrize("answers", [CHANCES, TIMES, RECORDED])
def test_everything_agrees_on_the_probability(answers: Answers) -> None:
    round = timing(answers)
    p = round.arrival_probability(1)
    usual = round.fleet.usual_batch(SAMPLES)
    arrivals = FixedBatchArrivals(round, usual, Streams(0))
    assert p.tolist() == answers.probability(30.0, np.ones(3)).tolist()
    assert round.straggler_ratio(1) == pytest.approx(np.mean(1 - p))
    assert arrivals.probability.tolist() == [p[0], p[1], 0.0]
    assert round.expected_batch(SAMPLES) == pytest.approx(arrivals.probability * SAMPLES)
    assert epoch_seconds(round, SAMPLES)[:2] == pytest.approx(30.0 / p[:2])
    assert arrivals.inverse_batch[:2] == pytest.approx(1 / SAMPLES[:2])
    assert arrivals.duration_s == 30.0
    assert optimal_loads(round, SAMPLES).tolist() == SAMPLES.tolist()
    allocation = allocate(
        replace(round, workload=Workload.for_linear_model(50, 2, 1)),
        SAMPLES,
        server_mac_rate=1.0,
        coded_samples=10,
        deadline="fixed",
    )
    assert allocation.arrival_probability.tolist() == arrivals.probability.tolist()
    rounds = 3000
    seen = np.mean([arrivals.attend(k).arrived for k in range(rounds)], axis=0)
    spread = np.sqrt(arrivals.probability * (1 - arrivals.probability) / rounds)
    assert (np.abs(seen - arrivals.probability) <= 4.5 * spread).all()


def test_an_answer_that_is_late_is_sent_in_full_and_one_that_is_missing_costs_nothing() -> None:
    arrivals = FixedBatchArrivals(timing(RECORDED), np.array([100, 20, 7]), Streams(0))
    first, second, third = (arrivals.attend(k) for k in range(3))
    assert (first.arrived.tolist(), first.batch_sizes.tolist()) == ([True, False, True], [100, 0, 7])
    assert first.late_bits.tolist() == [0.0, 0.0, 0.0]
    assert (second.arrived.tolist(), second.batch_sizes.tolist()) == ([True, True, False], [100, 20, 0])
    assert (third.arrived.tolist(), third.batch_sizes.tolist()) == ([False, True, True], [100, 20, 7])
    assert third.late_bits.tolist() == [WORKLOAD.payload_bits, 0.0, 0.0]
    unlucky = FixedBatchArrivals(timing(ArrivalChances(np.zeros(3))), SAMPLES, Streams(0)).attend(0)
    assert unlucky.late_bits.tolist() == [WORKLOAD.payload_bits, WORKLOAD.payload_bits, 0.0]


def test_more_rows_than_were_measured_take_longer_and_fewer_do_not_take_less() -> None:
    measured = timing(TIMES, batch_size=np.array([10, 10, 10]))
    usual = measured.arrival_probability(10)
    assert measured.arrival_probability(1).tolist() == usual.tolist()
    twice = replace(measured, deadline_s=60.0).arrival_probability(20)
    assert twice == pytest.approx(usual)
    assert (measured.arrival_probability(20) < usual).all()
    assert measured.fleet.usual_batch(np.array([100, 7, 0])).tolist() == [10, 7, 0]
    assert measured.expected_batch(np.array([100, 7, 0])) == pytest.approx(usual * [10, 7, 0])
    assert optimal_loads(measured, np.array([100, 7, 0])).tolist() == [10, 7, 0]
    chances = timing(CHANCES, batch_size=np.array([10, 10, 10]))
    assert chances.arrival_probability(1000).tolist() == CHANCES.chance.tolist()


def test_without_rates_an_upload_is_charged_as_multiples_of_a_round() -> None:
    """It takes at most max(j, k) rounds, if it has j times the arithmetic and k times the bits of a round."""
    round, macs_of_a_round = timing(TIMES), WORKLOAD.local_steps * WORKLOAD.macs_per_sample * SAMPLES[0]
    bits, macs = np.full(3, 7.0 * WORKLOAD.payload_bits), np.full(3, 3.0 * macs_of_a_round)
    encoding, upload = round.preparation_s(bits, macs, np.array([100, 20, 100]))
    assert encoding.tolist() == [0.0, 15.0 * 40.0, 0.0]  # of the second, the same arithmetic is that of fifteen rounds
    assert upload.tolist() == [7.0 * 20.0, 0.0, 7.0 * 10.0]
    chances = timing(CHANCES).preparation_s(bits, macs, np.array([100, 20, 100]))
    assert [part.tolist() for part in chances] == [[0.0, 15.0 * 30.0, 0.0], [7.0 * 30.0, 0.0, 7.0 * 30.0]]
    assert round.receiving_s(2.0 * WORKLOAD.payload_bits).tolist() == [40.0, 80.0, 20.0]
    assert round.computing_s(macs, np.array([1.0, 2.0, 3.0])).tolist() == [20.0, 80.0, 30.0]


def test_with_rates_an_upload_is_charged_by_them() -> None:
    mac_rate, uplink = np.array([1e6, 2e6, 4e6]), np.array([1e3, 2e3, 4e3])
    round = timing(TIMES, mac_rate=mac_rate, uplink_bps=uplink)
    encoding, upload = round.preparation_s(np.full(3, 8e3), np.full(3, 8e6), SAMPLES)
    assert (encoding.tolist(), upload.tolist()) == ([8.0, 4.0, 2.0], [8.0, 4.0, 2.0])
    assert round.receiving_s(8e3).tolist() == [8.0, 4.0, 2.0]
    assert round.computing_s(np.full(3, 8e6), np.ones(3)).tolist() == [8.0, 4.0, 2.0]


def test_the_fastest_deadline_is_the_best_of_the_candidates_by_its_own_rule() -> None:
    round = timing(TIMES)
    costs = {
        T: 15 * T + np.mean(T / TIMES.probability(T, np.ones(3))[:2]) for T in (30.0 * CANDIDATES) if T > 5
    }  # shorter ones let nobody arrive
    assert fastest_deadline(round, SAMPLES) == min(costs, key=lambda T: costs[T])
    assert fastest_deadline(timing(CHANCES), SAMPLES) == 30.0
    assert 5.0 <= fastest_deadline(timing(RECORDED), SAMPLES) <= 41.0


def test_a_free_deadline_needs_seconds() -> None:
    one_step = Workload.for_linear_model(50, 2, 1)
    free = allocate(
        replace(timing(TIMES), workload=one_step), SAMPLES, server_mac_rate=1e6, coded_samples=30, deadline="free"
    )
    assert free.expected_return == pytest.approx(120.0, rel=1e-4)
    with pytest.raises(InputError, match="'arrival_probability', which holds for a deadline of 30 s alone"):
        allocate(
            replace(timing(CHANCES), workload=one_step), SAMPLES, server_mac_rate=1e6, coded_samples=30, deadline="free"
        )


def test_patient_rounds_wait_for_nearly_all_answers() -> None:
    sizes = np.array([100, 20, 5])
    for answers in (TIMES, ResponseTimes(np.full(3, 30.0), np.full(3, 30.0))):
        patient = replace(timing(answers), deadline_s=patient_deadline(timing(answers), sizes))
        assert patient.straggler_ratio(sizes) <= 0.02
        assert replace(patient, deadline_s=0.999 * patient.deadline_s).straggler_ratio(sizes) > 0.02
    assert patient_deadline(timing(CHANCES), sizes) == 30.0
    assert patient_deadline(timing(RECORDED), sizes) == pytest.approx(40.0)  # some never answer
    everybody = RecordedAnswers(np.array([[1.0, 2.0, 3.0], [7.0, 1.0, 2.0]]))
    assert patient_deadline(timing(everybody), sizes) == pytest.approx(7.0)


def test_cohorts_and_traces_of_a_measured_fleet(tmp_path: object) -> None:
    arrivals = CohortArrivals(FixedBatchArrivals(timing(RECORDED), np.array([100, 20, 7]), Streams(0)), 2)
    for k in range(3):
        seen = arrivals.attend(k)
        assert seen.devices is not None
        whole = arrivals.everyone.attend(k)
        assert seen.arrived.tolist() == whole.arrived[seen.devices].tolist()
    trace = TraceArrivals.record(arrivals.everyone, 5)
    write_trace(f"{tmp_path}/trace.csv", trace, NAMES)
    replayed = read_trace(f"{tmp_path}/trace.csv", NAMES)
    assert replayed.arrived.tolist() == trace.arrived.tolist()
    assert replayed.attend(4).late_bits.tolist() == arrivals.everyone.attend(1).late_bits.tolist()


def test_longest_and_shortest_deadlines() -> None:
    assert math.isinf(timing(TIMES).longest_s(1))
    assert timing(RECORDED).longest_s(1) == pytest.approx(40.0)
    assert timing(RECORDED, batch_size=np.full(3, 10)).longest_s(30) == pytest.approx(120.0)
    assert (timing(CHANCES).shortest_s(1), timing(CHANCES).longest_s(1)) == (30.0, 30.0)


@pytest.mark.parametrize(
    ("known", "words"),
    [
        ({"batch_size": np.array([1, 0, 1])}, "fleet.batch_size must be 1 or more"),
        ({"mac_rate": np.ones(3)}, "give both or neither"),
        (
            {"mac_rate": np.ones(2), "uplink_bps": np.ones(3)},
            "fleet.mac_rate must be a positive number for each of the 3",
        ),
        (
            {"mac_rate": np.ones(3), "uplink_bps": np.array([1.0, 0.0, 1.0])},
            "fleet.uplink_bps must be a positive number",
        ),
    ],
)
def test_wrong_numbers_are_refused(known: dict[str, np.ndarray], words: str) -> None:
    with pytest.raises(InputError, match=words):
        MeasuredFleet(NAMES, CHANCES, **known)
    with pytest.raises(InputError, match=r"the answers are those of 3 device\(s\), but the fleet has 2"):
        MeasuredFleet(("a", "b"), CHANCES)
