from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.fleet import (
    Channel,
    Fleet,
    RoundTiming,
    Workload,
    allocate,
    draw_fleet,
    expected_return,
    optimal_loads,
)

SERVER_MAC_RATE = 15.36e6


def timing(devices: int = 20, deadline_s: float = 10.0) -> RoundTiming:
    fleet = draw_fleet([str(i) for i in range(devices)], np.random.default_rng(0))
    return RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s)


def best_by_brute_force(timing: RoundTiming, samples: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """The greatest expected return of each device over every load."""
    every = np.broadcast_to(np.arange(samples + 1)[:, None], (samples + 1, timing.fleet.devices))
    best: np.ndarray[tuple[int], np.dtype[np.float64]] = expected_return(timing, every).max(axis=0)
    return best


def test_optimal_loads_against_brute_force_for_random_devices() -> None:
    rng = np.random.default_rng(5)
    fleet = Fleet(tuple(map(str, range(400))), 10 ** rng.uniform(4, 7.5, 400), rng.uniform(-25, 45, 400))
    for deadline_s, bandwidth_hz in ((10.0, 180e3), (3.0, 30e3), (60.0, 1e4), (2.0, 1e7)):
        case = RoundTiming(fleet, Channel(bandwidth_hz), Workload(6.4e5, 4e4, 1), deadline_s)
        loads = optimal_loads(case, 600)
        assert ((loads >= 0) & (loads <= 600)).all()
        best = best_by_brute_force(case, 600)
        assert expected_return(case, loads) == pytest.approx(best, rel=1e-12)
        assert ((loads == 0) == (best == 0)).all()
        assert ((loads > 0) & (loads < 600)).any()


@given(
    mac_rate=st.floats(1e3, 1e8),
    power_dbm=st.floats(-40, 60),
    bandwidth_hz=st.floats(1e2, 1e8),
    deadline_s=st.floats(0.1, 100),
    samples=st.integers(0, 80),
)
def test_optimal_loads_of_any_device(
    mac_rate: float, power_dbm: float, bandwidth_hz: float, deadline_s: float, samples: int
) -> None:
    fleet = Fleet(("a",), np.array([mac_rate]), np.array([power_dbm]))
    case = RoundTiming(fleet, Channel(bandwidth_hz), Workload(6.4e5, 4e4, 1), deadline_s)
    load = optimal_loads(case, samples)
    assert expected_return(case, load) == pytest.approx(best_by_brute_force(case, samples), rel=1e-12)


def test_a_device_that_cannot_arrive_gets_nothing() -> None:
    assert optimal_loads(replace(timing(3), deadline_s=0.6), 100).tolist() == [0, 0, 0]
    assert optimal_loads(timing(3), np.array([0, 5, 0])).tolist() == [0, 5, 0]


def test_fixed_deadline() -> None:
    found = allocate(timing(), 3000, server_mac_rate=SERVER_MAC_RATE, coded_samples=10_000, deadline="fixed")
    assert found.deadline_s == 10.0
    assert (found.loads == optimal_loads(timing(), 3000)).all()
    assert (found.arrival_probability == timing().arrival_probability(found.loads)).all()
    assert found.server_load == 3840  # 10 s * 15.36e6 / 40,000
    assert found.expected_return == pytest.approx(3840 + expected_return(timing(), found.loads).sum())


@pytest.mark.parametrize("devices", [1, 20])
@pytest.mark.parametrize("coded", [1, 200, 2000, 100_000])
def test_free_deadline_is_the_least_that_returns_everything(devices: int, coded: int) -> None:
    rng = np.random.default_rng(1)
    samples = rng.integers(1, 400, size=devices)
    found = allocate(timing(devices), samples, server_mac_rate=SERVER_MAC_RATE, coded_samples=coded, deadline="free")
    assert found.expected_return >= samples.sum()
    assert found.server_load <= coded
    shorter = timing(devices, found.deadline_s * (1 - 2e-6))
    less = allocate(shorter, samples, server_mac_rate=SERVER_MAC_RATE, coded_samples=coded, deadline="fixed")
    assert less.expected_return < samples.sum()
    same = timing(devices, found.deadline_s)
    again = allocate(same, samples, server_mac_rate=SERVER_MAC_RATE, coded_samples=coded, deadline="fixed")
    assert again.expected_return == found.expected_return


def test_free_deadline_does_not_depend_on_where_the_search_starts() -> None:
    found = [
        allocate(
            timing(deadline_s=start), 300, server_mac_rate=SERVER_MAC_RATE, coded_samples=500, deadline="free"
        ).deadline_s
        for start in (1e-3, 10.0, 1e5)
    ]
    assert found == pytest.approx([found[0]] * 3, rel=2e-6)


def test_total_return_never_falls_as_the_deadline_grows() -> None:
    totals = [
        allocate(timing(5, t), 300, server_mac_rate=SERVER_MAC_RATE, coded_samples=500, deadline="fixed")
        for t in np.linspace(0.1, 40, 200)
    ]
    assert (np.diff([total.expected_return for total in totals]) >= 0).all()


def test_impossible_allocations_are_refused() -> None:
    with pytest.raises(InputError, match="coded_samples = 0"):
        allocate(timing(), 300, server_mac_rate=SERVER_MAC_RATE, coded_samples=0, deadline="free")
    with pytest.raises(InputError, match=r"0 sample\(s\)"):
        allocate(timing(), 0, server_mac_rate=SERVER_MAC_RATE, coded_samples=10, deadline="free")
    hopeless = replace(timing(2), channel=Channel(mean_gain=1e-40))
    with pytest.raises(InputError, match="still returns only 1 of 600 samples"):
        allocate(hopeless, 300, server_mac_rate=SERVER_MAC_RATE, coded_samples=1, deadline="free")
    with pytest.raises(InputError, match="deadline = 'soon'"):
        allocate(timing(), 300, server_mac_rate=1.0, coded_samples=1, deadline="soon")  # type: ignore[arg-type]
    five_steps = replace(timing(), workload=Workload(1.0, 1.0, 5))
    with pytest.raises(InputError, match=r"workload.local_steps = 5 must be 1"):
        allocate(five_steps, 300, server_mac_rate=1.0, coded_samples=1, deadline="fixed")
