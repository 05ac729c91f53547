from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import (
    AdaptiveBatchArrivals,
    Arrivals,
    Channel,
    CohortArrivals,
    FixedBatchArrivals,
    Fleet,
    RoundTiming,
    TraceArrivals,
    Workload,
    draw_fleet,
)
from codedfl.streams import Streams

ROUNDS = 4000


def timing(devices: int = 5) -> RoundTiming:
    fleet = draw_fleet([str(i) for i in range(devices)], np.random.default_rng(0))
    return RoundTiming(fleet, Channel(bandwidth_hz=60e3), Workload.for_linear_model(2000, 10, 5), deadline_s=9.0)


def assert_arrives_as_often_as_promised(arrivals: Arrivals) -> None:
    arrived = np.mean([arrivals.attend(k).arrived for k in range(ROUNDS)], axis=0)
    p = arrivals.probability
    assert (np.abs(arrived - p) <= 4.5 * np.sqrt(p * (1 - p) / ROUNDS)).all()


@pytest.mark.slow
def test_adaptive_devices_arrive_whenever_one_sample_fits() -> None:
    arrivals = AdaptiveBatchArrivals(timing(), np.array([3000, 5, 1, 40, 0]), Streams(seed=4))
    assert arrivals.probability[:4].tolist() == timing().arrival_probability(1)[:4].tolist()
    assert arrivals.probability[4] == 0
    assert arrivals.duration_s == 9.0
    assert_arrives_as_often_as_promised(arrivals)
    seen = [arrivals.attend(k) for k in range(50)]
    assert all(((a.batch_sizes > 0) == a.arrived).all() for a in seen)
    assert all((a.batch_sizes <= arrivals.samples).all() for a in seen)
    assert not any(a.late_bits.any() for a in seen)


@pytest.mark.slow
def test_fixed_batches_arrive_with_their_probability() -> None:
    arrivals = FixedBatchArrivals(timing(), np.array([1, 10, 20, 30, 0]), Streams(seed=4))
    assert arrivals.probability.tolist() == timing().arrival_probability(arrivals.batch_sizes).tolist()
    assert arrivals.duration_s == 9.0
    assert_arrives_as_often_as_promised(arrivals)


def test_late_bits_are_what_was_sent_until_the_deadline() -> None:
    round_timing = timing()
    batch = np.array([10, 10, 30, 500, 0])  # the fourth is still computing at the deadline, the fifth sits out
    arrivals = FixedBatchArrivals(round_timing, batch, Streams(seed=4))
    late_rounds = 0
    for k in range(200):
        seen = arrivals.attend(k)
        fading = round_timing.channel.sample_fading(Streams(seed=4), k, 5)
        rate = 640e3 / round_timing.upload_s(fading)
        left = 9.0 - 0.64 - round_timing.compute_s(batch)
        late = ~seen.arrived & (batch > 0)
        expected = np.where(late, rate * np.maximum(left, 0), 0)
        assert seen.late_bits == pytest.approx(expected)
        assert (seen.late_bits <= 640e3).all()
        assert (seen.late_bits[3:] == 0).all()
        late_rounds += int(late[:3].any())
    assert 0 < late_rounds < 200


def test_schemes_meet_the_same_channel() -> None:
    """An adaptive device arrives exactly when a fixed batch of one does, in any order of asking."""
    adaptive = AdaptiveBatchArrivals(timing(), np.full(5, 50), Streams(seed=8))
    fixed = FixedBatchArrivals(timing(), np.ones(5, dtype=np.int64), Streams(seed=8))
    for k in (7, 3, 7, 0):
        assert (adaptive.attend(k).arrived == fixed.attend(k).arrived).all()


def test_a_single_device_that_can_never_arrive() -> None:
    short = replace(timing(1), deadline_s=0.5)
    for arrivals in (
        AdaptiveBatchArrivals(short, np.array([10]), Streams(seed=1)),
        FixedBatchArrivals(short, np.array([10]), Streams(seed=1)),
    ):
        assert arrivals.probability.tolist() == [0.0]
        seen = arrivals.attend(0)
        assert seen.arrived.tolist() == [False]
        assert seen.late_bits.tolist() == [0.0]


def test_a_trace_is_replayed_and_ends() -> None:
    source = FixedBatchArrivals(timing(), np.full(5, 10), Streams(seed=4))
    seen = [source.attend(k) for k in range(30)]
    trace: Arrivals = TraceArrivals(
        batch_sizes=np.stack([a.batch_sizes for a in seen]),
        arrived=np.stack([a.arrived for a in seen]),
        probability=source.probability,
        duration_s=source.duration_s,
    )
    for k in (29, 0, 11):
        assert (trace.attend(k).arrived == seen[k].arrived).all()
        assert (trace.attend(k).batch_sizes == 10).all()
        assert not trace.attend(k).late_bits.any()
    with pytest.raises(InputError, match=r"round = 30 is beyond the trace, which has 30 round\(s\)"):
        trace.attend(30)
    with pytest.raises(InputError, match="round = -1"):
        trace.attend(-1)


def test_bad_arrivals_are_refused() -> None:
    with pytest.raises(InputError, match="samples has shape"):
        AdaptiveBatchArrivals(timing(), np.array([1, 2]), Streams(seed=1))
    with pytest.raises(InputError, match="batch_sizes = -1"):
        FixedBatchArrivals(timing(), np.full(5, -1), Streams(seed=1))
    yes, one = np.ones((2, 2), dtype=np.bool_), np.ones((2, 2), dtype=np.int64)
    p = np.array([0.5, 0.5])
    with pytest.raises(InputError, match=r"trace.duration_s"):
        TraceArrivals(one, yes, p, 0.0)
    with pytest.raises(InputError, match=r"trace.probability"):
        TraceArrivals(one, yes, 3 * p, 1.0)
    with pytest.raises(InputError, match=r"shape \(1, 2\)"):
        TraceArrivals(one, yes[:1], p, 1.0)
    with pytest.raises(InputError, match=r"\(round, device\) = \(0, 0\)"):
        TraceArrivals(0 * one, yes, p, 1.0)


@pytest.mark.slow
def test_the_inverse_of_an_adaptive_batch_is_that_of_many_rounds() -> None:
    """Off by 4.5 standard errors at most: one of the four devices would be with probability 3e-5."""
    arrivals = AdaptiveBatchArrivals(timing(), np.array([3000, 5, 2, 40, 0]), Streams(seed=4))
    seen = [arrivals.attend(k) for k in range(ROUNDS)]
    for i in range(4):
        inverse = np.array([1 / a.batch_sizes[i] for a in seen if a.arrived[i]])
        error = inverse.std(ddof=1) / np.sqrt(len(inverse))
        assert 0 < error < 0.1 * arrivals.inverse_batch[i]
        assert abs(inverse.mean() - arrivals.inverse_batch[i]) < 4.5 * error
    assert np.isnan(arrivals.inverse_batch[4])


@pytest.mark.parametrize("most", [1, 2, 255, 256, 257, 258, 700])
def test_the_inverse_of_an_adaptive_batch_is_a_sum_over_its_sizes(most: int) -> None:
    """In blocks of sizes, so that numbers around the length of a block matter; with so late a deadline, all sizes do."""
    late = replace(timing(), deadline_s=120.0)
    arrivals = AdaptiveBatchArrivals(late, np.array([most, 1, 3, 40, most]), Streams(seed=4))
    for i, samples in enumerate(arrivals.samples):
        p = [float(late.arrival_probability(n)[i]) for n in range(1, samples + 1)]
        expected = 0.0
        for n in range(1, samples + 1):
            exactly = p[n - 1] - (p[n] if n < samples else 0.0)
            expected += exactly / p[0] / n
        assert arrivals.inverse_batch[i] == pytest.approx(expected, rel=1e-10)
    assert float(late.arrival_probability(most)[0]) > 0.01


def test_the_inverse_of_a_fixed_batch() -> None:
    batch = np.array([1, 10, 20, 5000, 0])  # the fourth can never arrive, the fifth sits out
    arrivals = FixedBatchArrivals(timing(), batch, Streams(seed=4))
    assert arrivals.inverse_batch[:3] == pytest.approx([1.0, 0.1, 0.05], rel=1e-12)
    assert np.isnan(arrivals.inverse_batch[3:]).all()


def test_the_inverse_of_recorded_batches_is_their_mean_over_arrivals() -> None:
    batch = np.array([[8, 4, 2, 0], [2, 4, 2, 0], [4, 1, 2, 0]])
    arrived = np.array([[True, True, False, False], [True, False, False, False], [False, True, False, False]])
    trace = TraceArrivals(batch, arrived, probability=np.full(4, 0.5), duration_s=1.0)
    assert trace.inverse_batch[:2] == pytest.approx([(1 / 8 + 1 / 2) / 2, (1 / 4 + 1) / 2], rel=1e-12)
    assert np.isnan(trace.inverse_batch[2:]).all()
    with pytest.raises(ValueError, match="read-only"):
        trace.inverse_batch[0] = 1.0


DEVICES = 12
POWERS = np.linspace(5.0, 25.0, DEVICES)


def cohort_timing(devices: int = DEVICES) -> RoundTiming:
    fleet = Fleet(tuple(f"d{i}" for i in range(devices)), np.full(devices, 1.4e6), np.resize(POWERS, devices))
    return RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=9.0)


def everyone(kind: str) -> Any:
    samples = np.arange(20, 20 + DEVICES)
    if kind == "adaptive":
        return AdaptiveBatchArrivals(cohort_timing(), samples, Streams(3))
    return FixedBatchArrivals(cohort_timing(), np.minimum(samples, 30), Streams(3))


@pytest.mark.parametrize("rounds", [500, pytest.param(ROUNDS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", ["adaptive", "fixed"])
def test_every_device_is_asked_and_arrives_as_often_as_promised(kind: str, rounds: int) -> None:
    """Means of Bernoulli variables within 4.5 standard errors: 24 of them, so one correct test in 6,000 would fail."""
    arrivals = CohortArrivals(everyone(kind), 5)
    asked, arrived = np.zeros((2, DEVICES))
    for k in range(rounds):
        attendance = arrivals.attend(k)
        assert attendance.devices is not None
        assert len(np.unique(attendance.devices)) == 5
        asked[attendance.devices] += 1
        arrived[attendance.devices] += attendance.arrived
    for counts, probability in ((asked, np.full(DEVICES, 5 / 12)), (arrived, 5 / 12 * arrivals.probability)):
        error = np.sqrt(rounds * probability * (1 - probability))
        assert (np.abs(counts - rounds * probability) < 4.5 * error).all()
    assert attendance.weight == DEVICES / 5
    assert arrivals.duration_s == 9.0


@pytest.mark.parametrize("kind", ["adaptive", "fixed"])
def test_members_of_a_cohort_do_what_their_profile_says(kind: str) -> None:
    whole = everyone(kind)
    for k in range(50):
        attendance = CohortArrivals(whole, 4).attend(k)
        assert attendance.devices is not None
        most = whole.samples if kind == "adaptive" else whole.batch_sizes
        assert (attendance.batch_sizes <= most[attendance.devices]).all()
        assert [device for device, _ in attendance.arrivals()] == attendance.devices[attendance.arrived].tolist()


def test_the_same_round_has_the_same_cohort() -> None:
    a, b = (CohortArrivals(everyone("adaptive"), 3) for _ in range(2))
    for k in (0, 7, 7):
        first, second = a.attend(k), b.attend(k)
        assert np.array_equal(first.devices, second.devices)  # type: ignore[arg-type]
        assert np.array_equal(first.batch_sizes, second.batch_sizes)
    assert not np.array_equal(a.attend(0).devices, a.attend(1).devices)  # type: ignore[arg-type]


def test_a_cohort_of_everyone_asks_everyone() -> None:
    attendance = CohortArrivals(everyone("adaptive"), DEVICES).attend(2)
    assert attendance.devices is not None
    assert attendance.devices.tolist() == list(range(DEVICES))
    assert attendance.weight == 1.0


@pytest.mark.parametrize("cohort", [0, -1, 13, 2.5])
def test_impossible_cohorts_are_refused(cohort: Any) -> None:
    with pytest.raises(InputError, match=f"cohort = {cohort}"):
        CohortArrivals(everyone("adaptive"), cohort)
