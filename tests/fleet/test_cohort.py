from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import (
    AdaptiveBatchArrivals,
    Channel,
    CohortArrivals,
    FixedBatchArrivals,
    Fleet,
    RoundTiming,
    Workload,
)
from codedfl.streams import Streams

DEVICES, ROUNDS = 12, 4000
POWERS = np.linspace(5.0, 25.0, DEVICES)


def timing(devices: int = DEVICES) -> RoundTiming:
    fleet = Fleet(tuple(f"d{i}" for i in range(devices)), np.full(devices, 1.4e6), np.resize(POWERS, devices))
    return RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=9.0)


def everyone(kind: str) -> Any:
    samples = np.arange(20, 20 + DEVICES)
    if kind == "adaptive":
        return AdaptiveBatchArrivals(timing(), samples, Streams(3))
    return FixedBatchArrivals(timing(), np.minimum(samples, 30), Streams(3))


@pytest.mark.parametrize("kind", ["adaptive", "fixed"])
def test_every_device_is_asked_and_arrives_as_often_as_promised(kind: str) -> None:
    """Means of Bernoulli variables within 4.5 standard errors: 24 of them, so one correct test in 6,000 would fail."""
    arrivals = CohortArrivals(everyone(kind), 5)
    asked, arrived = np.zeros((2, DEVICES))
    for k in range(ROUNDS):
        attendance = arrivals.attend(k)
        assert attendance.devices is not None
        assert len(np.unique(attendance.devices)) == 5
        asked[attendance.devices] += 1
        arrived[attendance.devices] += attendance.arrived
    for counts, probability in ((asked, np.full(DEVICES, 5 / 12)), (arrived, 5 / 12 * arrivals.probability)):
        error = np.sqrt(ROUNDS * probability * (1 - probability))
        assert (np.abs(counts - ROUNDS * probability) < 4.5 * error).all()
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
