from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import (
    AdaptiveBatchArrivals,
    Arrivals,
    Attendance,
    Channel,
    CohortArrivals,
    FixedBatchArrivals,
    RoundTiming,
    TraceArrivals,
    Workload,
    draw_fleet,
    read_trace,
    write_trace,
)
from codedfl.streams import Streams

NAMES = ("phone", 'a, "b"', "Gerät", "3", "NA")
ROUNDS = 12


def timing() -> RoundTiming:
    fleet = draw_fleet(NAMES, np.random.default_rng(0))
    return RoundTiming(fleet, Channel(bandwidth_hz=60e3), Workload.for_linear_model(2000, 10, 5), deadline_s=9.0)


def arrivals(kind: str) -> Arrivals:
    if kind.startswith("adaptive"):
        everyone: AdaptiveBatchArrivals | FixedBatchArrivals = AdaptiveBatchArrivals(
            timing(), np.array([3000, 5, 1, 40, 0]), Streams(seed=4)
        )
    else:
        everyone = FixedBatchArrivals(timing(), np.array([10, 10, 20, 30, 0]), Streams(seed=4))
    return CohortArrivals(everyone, int(kind[-1])) if kind[-1].isdigit() else everyone


def assert_same(a: Attendance, b: Attendance) -> None:
    for name in ("batch_sizes", "arrived", "late_bits", "devices"):
        x, y = getattr(a, name), getattr(b, name)
        assert (x is None) == (y is None)
        if x is not None:
            assert x.dtype == y.dtype
            assert x.tolist() == y.tolist()
    assert a.weight == b.weight
    assert a.arrivals() == b.arrivals()


@pytest.mark.parametrize("kind", ["adaptive", "fixed", "adaptive cohort 1", "fixed cohort 2", "fixed cohort 5"])
def test_a_recorded_trace_replays_every_round_identically(tmp_path: Path, kind: str) -> None:
    source = arrivals(kind)
    recorded = TraceArrivals.record(source, ROUNDS)
    write_trace(tmp_path / "trace.csv", recorded, NAMES)
    replayed: Arrivals = read_trace(str(tmp_path / "trace.csv"), NAMES)
    for trace in (recorded, replayed):
        assert trace.probability.tolist() == source.probability.tolist()
        assert trace.duration_s == source.duration_s
        for k in range(ROUNDS):
            assert_same(trace.attend(k), source.attend(k))
        with pytest.raises(InputError, match=rf"round = {ROUNDS} is beyond the trace"):
            trace.attend(ROUNDS)


def test_late_bits_are_on_record() -> None:
    late = np.concatenate([TraceArrivals.record(arrivals("fixed"), 40).attend(k).late_bits for k in range(40)])
    assert (late > 0).any()


def test_the_order_of_rows_does_not_matter(tmp_path: Path) -> None:
    source = TraceArrivals.record(arrivals("fixed cohort 2"), ROUNDS)
    file = tmp_path / "trace.csv"
    write_trace(file, source, NAMES)
    header, *rows = file.read_text(encoding="utf-8").splitlines()
    np.random.default_rng(0).shuffle(rows)
    file.write_text("\n".join([header, *rows]), encoding="utf-8")
    for k in range(ROUNDS):
        assert_same(read_trace(file, NAMES).attend(k), source.attend(k))


def test_the_inverse_batch_of_a_cohort_is_a_mean_over_its_arrivals() -> None:
    source = arrivals("adaptive cohort 2")
    trace = TraceArrivals.record(source, 50)
    seen: list[list[float]] = [[] for _ in NAMES]
    for k in range(50):
        for device, batch in source.attend(k).arrivals():
            seen[device].append(1 / batch)
    expected = [float(np.mean(values)) if values else np.nan for values in seen]
    np.testing.assert_allclose(trace.inverse_batch, expected, rtol=1e-12)


def test_only_cohorts_of_one_size_are_recorded() -> None:
    class Changing:
        probability = np.full(3, 0.5)
        duration_s = 1.0

        def attend(self, round: int) -> Attendance:
            asked = np.arange(1 + round)
            return Attendance(np.ones(len(asked), np.int64), asked > 0, np.zeros(len(asked)), asked)

    with pytest.raises(InputError, match="different numbers of devices"):
        TraceArrivals.record(Changing(), 2)


HEADER = "round,device,batch_size,arrived,late_bits,probability,duration_s,rounds\n"
GOOD = HEADER + "0,a,8,1,0,0.9,10,2\n0,b,4,0,32,0.5,10,2\n1,a,8,1,0,0.9,10,2\n1,b,0,0,0,0.5,10,2\n"
COHORT = HEADER[:-1] + ",asked,weight\n0,a,8,1,0,0.9,10,2,1,2\n1,b,4,0,32,0.5,10,2,1,2\n"


def test_a_file_written_by_hand_is_read(tmp_path: Path) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(GOOD)
    assert read_trace(file, ["a", "b"]).attend(0).late_bits.tolist() == [0, 32]
    file.write_text(COHORT)
    assert read_trace(file, ["a", "b"]).attend(1).devices is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (HEADER, "has a header but no row"),
        ("#" + GOOD, "has a column '#round'"),
        (GOOD.replace(",rounds", ""), "has no column 'rounds'"),
        (GOOD.replace("1,b,0,0,0,0.5,10,2\n", ""), r"has 1 of 2 row\(s\) for round 1 of 2: the file is truncated"),
        (GOOD[: GOOD.index("1,a,")], r"has 0 of 2 row\(s\) for round 1 of 2: the file is truncated"),
        (GOOD[:-4], r"row 4 has 7 value\(s\) for the 8 column\(s\)"),
        (GOOD.replace("1,b", "1,c"), "column 'device', row 4: 'c' is not a device of this experiment"),
        (GOOD.replace(",b,", ",a,"), "has no row for device 'b'"),
        (GOOD.replace("1,b", "1,"), "column 'device', row 4: '' is not a name"),
        (GOOD.replace("1,b", "0,b"), r"has 3 of 2 row\(s\) for round 0"),
        (GOOD.replace("1,b", "1,a"), "column 'device', row 4: 'a' has more than one row in round 1"),
        (GOOD.replace("1,b", "2,b"), r"column 'round', row 4: '2' is beyond the 2 round\(s\)"),
        (GOOD.replace("1,b", "-1,b"), "column 'round', row 4: '-1' must be a whole number"),
        (GOOD.replace("a,8,1", "a,8,2", 1), "column 'arrived', row 1: '2' must be 0 or 1"),
        (GOOD.replace("a,8,1", "a,8,true", 1), "column 'arrived', row 1: 'true' must be 0 or 1"),
        (GOOD.replace("a,8,1", "a,0,1", 1), "column 'arrived', row 1: '1' must be 0, as the batch size is 0"),
        (GOOD.replace("a,8,1", "a,8.5,1", 1), "column 'batch_size', row 1: '8.5' must be a whole number"),
        (GOOD.replace("0,32,", "0,-32,"), "column 'late_bits', row 2: '-32' must be zero or more"),
        (GOOD.replace("0,32,", "0,nan,"), "column 'late_bits', row 2: 'nan' must be a finite"),
        (GOOD.replace("0,0.9,10", "0,0.8,10", 1), "column 'probability', row 3: '0.9' differs from 0.8"),
        (GOOD.replace("0.9", "1.9"), "trace.probability must lie from 0 to 1"),
        (GOOD.replace("10,2\n", "9,2\n", 1), "column 'duration_s', row 2: '10' differs from 9.0"),
        (GOOD.replace("10,2\n", "10,3\n", 1), "column 'rounds', row 2: '2' differs from 3.0"),
        (COHORT.replace(",weight", ",wait"), "has a column 'wait'"),
        (COHORT.replace("10,2,1,2\n", "10,2,0,2\n"), "of 0 row"),
    ],
)
def test_a_bad_trace_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "trace.csv"
    file.write_text(text)
    with pytest.raises(InputError, match=message) as caught:
        read_trace(file, ["a", "b"])
    assert "\n" not in str(caught.value)


def test_names_must_fit_the_trace(tmp_path: Path) -> None:
    trace = TraceArrivals.record(arrivals("fixed"), 1)
    with pytest.raises(InputError, match=r"the trace has 5 device\(s\) but 1 name"):
        write_trace(tmp_path / "trace.csv", trace, ["a"])
    assert list(tmp_path.iterdir()) == []


class Estimating:
    """Arrivals whose probabilities are estimated as rounds go by."""

    duration_s = 2.0
    probability = np.array([0.75, 0.5])

    def attend(self, round: int) -> Attendance:
        estimate = np.array([1.0, 1.0 / (round + 1.0)])
        return Attendance(np.array([4, 2]), np.array([True, round == 1]), np.zeros(2), probability=estimate)


def test_estimates_of_each_round_are_recorded_and_read_back(tmp_path: Path) -> None:
    recorded = TraceArrivals.record(Estimating(), 3)
    write_trace(tmp_path / "trace.csv", recorded, ("a", "b"))
    replayed = read_trace(tmp_path / "trace.csv", ("a", "b"))
    assert replayed.probability.tolist() == [0.75, 0.5]
    for round in range(3):
        estimate = replayed.attend(round).probability
        assert estimate is not None
        assert estimate.tolist() == [1.0, 1.0 / (round + 1.0)]
    assert TraceArrivals.record(arrivals("fixed"), 2).attend(0).probability is None


def test_estimates_that_cannot_be_weights_are_refused() -> None:
    given = np.array([[4, 2]]), np.array([[True, False]]), np.array([0.5, 0.5])
    for estimates in (np.array([[0.0, 1.0]]), np.array([[0.5, 1.5]]), np.array([[np.nan, 1.0]]), np.ones((2, 2))):
        with pytest.raises(InputError, match=r"trace\.estimates has shape"):
            TraceArrivals(*given, duration_s=1.0, estimates=estimates)
    with pytest.raises(InputError, match="cannot be given together"):
        TraceArrivals(*given, duration_s=1.0, devices=np.array([[0, 1]]), estimates=np.ones((1, 2)))
