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
    bandwidth_for_straggler_ratio,
    draw_fleet,
)


def timing(devices: int = 20, seed: int = 0) -> RoundTiming:
    fleet = draw_fleet([str(i) for i in range(devices)], np.random.default_rng(seed))
    return RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=10.0)


def ratio_at(given: RoundTiming, bandwidth_hz: float, batch: object) -> float:
    channel = replace(given.channel, bandwidth_hz=bandwidth_hz)
    return replace(given, channel=channel).straggler_ratio(batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("devices", [1, 2, 20, 1000])
@pytest.mark.parametrize("batch", [1, 32])
@pytest.mark.parametrize("ratio", [1e-6, 0.05, 0.2, 0.5, 0.9, 1 - 1e-6])
def test_the_ratio_is_hit_on_the_actual_devices(devices: int, batch: int, ratio: float) -> None:
    bandwidth = bandwidth_for_straggler_ratio(timing(devices), batch, ratio)
    assert ratio_at(timing(devices), bandwidth, batch) == pytest.approx(ratio, abs=1e-9)


@given(
    ratio=st.floats(1e-14, 1 - 1e-14),
    powers=st.lists(st.floats(-60, 90), min_size=1, max_size=6),
    batch=st.integers(1, 60),
)
def test_very_different_devices(ratio: float, powers: list[float], batch: int) -> None:
    fleet = Fleet(tuple(map(str, range(len(powers)))), np.full(len(powers), 1.5e6), np.array(powers))
    given = replace(timing(), fleet=fleet)
    bandwidth = bandwidth_for_straggler_ratio(given, batch, ratio)
    assert ratio_at(given, bandwidth, batch) == pytest.approx(ratio, abs=1e-9)


def test_more_stragglers_need_less_bandwidth() -> None:
    bandwidths = [bandwidth_for_straggler_ratio(timing(), 1, r) for r in np.linspace(0.01, 0.99, 30)]
    assert (np.diff(bandwidths) < 0).all()


def test_devices_that_never_arrive_count_as_stragglers() -> None:
    batch = np.ones(20, dtype=np.int64)
    batch[:3] = 10_000  # computing alone takes longer than the round
    batch[3:5] = 0  # sits out
    bandwidth = bandwidth_for_straggler_ratio(timing(), batch, 0.3)
    assert ratio_at(timing(), bandwidth, batch) == pytest.approx(0.3, abs=1e-9)
    for ratio in (0.1, 0.25):
        with pytest.raises(InputError, match=r"5 of 20 .* above 0.25 and below 1"):
            bandwidth_for_straggler_ratio(timing(), batch, ratio)
    with pytest.raises(InputError, match="20 of 20"):
        bandwidth_for_straggler_ratio(replace(timing(), deadline_s=0.5), 1, 0.9)


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, float("nan")])
def test_bad_ratios_are_refused(ratio: float) -> None:
    with pytest.raises(InputError, match="straggler_ratio = "):
        bandwidth_for_straggler_ratio(timing(), 1, ratio)
