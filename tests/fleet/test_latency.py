from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.fleet import Channel, Fleet, RoundTiming, Workload, draw_fleet
from codedfl.fleet._latency import outage_exponent
from codedfl.fleet._workload import largest_fitting
from codedfl.streams import Streams

SERVER_MAC_RATE = 15.36e6


def mnist(devices: int = 20, deadline_s: float = 10.0, bandwidth_hz: float = 180e3) -> RoundTiming:
    fleet = draw_fleet([str(i) for i in range(devices)], np.random.default_rng(0))
    workload = Workload.for_linear_model(2000, 10, 5)
    return RoundTiming(fleet, Channel(bandwidth_hz=bandwidth_hz), workload, deadline_s)


def one_device(mac_rate: float, power_dbm: float, bandwidth_hz: float, deadline_s: float) -> RoundTiming:
    fleet = Fleet(("a",), np.array([mac_rate]), np.array([power_dbm]))
    return RoundTiming(fleet, Channel(bandwidth_hz=bandwidth_hz), Workload(6.4e5, 4e4, 5), deadline_s)


devices = st.builds(
    one_device,
    mac_rate=st.floats(1e4, 1e8),
    power_dbm=st.floats(-20, 50),
    bandwidth_hz=st.floats(1e2, 1e8),
    deadline_s=st.floats(0.1, 60),
)


def test_times_are_those_of_the_paper() -> None:
    timing = mnist()
    fading = np.ones(20)
    assert timing.download_s == pytest.approx(0.64)
    assert timing.seconds_per_sample == pytest.approx(5 * 40_000 / timing.fleet.mac_rate)
    assert timing.compute_s(32) == pytest.approx(32 * timing.seconds_per_sample)
    rate = 180e3 * np.log2(1 + 1e-8 * 10 ** (timing.fleet.transmit_power_dbm / 10 - 3) / 1e-10)
    assert timing.upload_s(fading) == pytest.approx(640e3 / rate)
    assert timing.total_s(32, fading) == pytest.approx(0.64 + 32 * timing.seconds_per_sample + 640e3 / rate)


@pytest.mark.parametrize(
    ("dimension", "deadline_s", "expected"), [(4096, 15.0, 562), (2000, 10.0, 768), (2000, 6.5, 499)]
)
def test_server_batch_of_the_paper(dimension: int, deadline_s: float, expected: int) -> None:
    timing = RoundTiming(mnist().fleet, Channel(), Workload.for_linear_model(dimension, 10, 5), deadline_s)
    assert timing.server_batch(SERVER_MAC_RATE, 10_000) == expected


def test_server_batch_is_at_least_one_and_at_most_c() -> None:
    assert mnist().server_batch(1.0, 10_000) == 1
    assert mnist().server_capacity(1.0, 10_000) == 0
    assert mnist().server_batch(SERVER_MAC_RATE, 100) == 100


@given(batch=st.integers(1, 5000), mac_rate=st.integers(1, 10**7), steps=st.integers(1, 7))
def test_server_batch_survives_rounding(batch: int, mac_rate: int, steps: int) -> None:
    """A deadline that is, up to rounding, exactly what a batch takes leaves room for that batch."""
    workload = Workload.for_linear_model(7, 3, steps)
    timing = replace(mnist(1), workload=workload, deadline_s=steps * 42 * batch / mac_rate)
    assert timing.server_batch(mac_rate, 10_000) == batch


def test_arrival_probability_against_sampled_arrivals() -> None:
    rounds = 20_000
    timing = replace(mnist(6, bandwidth_hz=60e3), deadline_s=9.0)
    fading = timing.channel.sample_fading(Streams(seed=2), 0, rounds * 6).reshape(rounds, 6)
    for batch in (1, 10, np.array([1, 5, 10, 15, 20, 30])):
        probability = timing.arrival_probability(batch)
        arrived = (timing.total_s(batch, fading) <= timing.deadline_s).mean(axis=0)
        bound = 4.5 * np.sqrt(probability * (1 - probability) / rounds)
        assert ((probability > 0.02) & (probability < 0.98)).all()
        assert (np.abs(arrived - probability) < bound).all()


def test_batch_zero_and_no_time_never_arrive() -> None:
    timing = mnist(3)
    assert timing.arrival_probability(np.array([0, 1, 10_000])).tolist()[::2] == [0.0, 0.0]
    assert replace(timing, deadline_s=0.5).arrival_probability(1).tolist() == [0.0, 0.0, 0.0]
    assert replace(timing, deadline_s=0.5).straggler_ratio(1) == 1.0


def test_straggler_ratio_is_the_mean_miss() -> None:
    timing = mnist()
    assert timing.straggler_ratio(32) == pytest.approx(1 - timing.arrival_probability(32).mean(), rel=1e-12)


@given(timing=devices, batch=st.integers(1, 500), more=st.integers(0, 100), wider=st.floats(1, 100))
def test_probability_falls_with_batch_and_rises_with_bandwidth(
    timing: RoundTiming, batch: int, more: int, wider: float
) -> None:
    probability = timing.arrival_probability(batch).item()
    assert 0 <= probability <= 1
    assert timing.arrival_probability(batch + more).item() <= probability
    broad = replace(timing, channel=replace(timing.channel, bandwidth_hz=timing.channel.bandwidth_hz * wider))
    assert broad.arrival_probability(batch).item() >= probability * (1 - 1e-14)  # exp may be off by a last digit


def test_largest_batch_against_brute_force() -> None:
    timing = mnist(200)
    samples = np.random.default_rng(1).integers(0, 70, size=200)
    fading = timing.channel.sample_fading(Streams(seed=3), 0, 200)
    every = np.arange(1, 71)[:, None]
    fits = (timing.total_s(np.broadcast_to(every, (70, 200)), fading) <= timing.deadline_s) & (every <= samples)
    expected = np.where(fits, every, 0).max(axis=0)
    found = timing.largest_batch(fading, samples)
    assert (found == expected).all()
    assert (found == 0).any()
    assert ((found > 0) & (found < samples)).any()
    assert ((found > 0) & (found == samples)).any()


@given(timing=devices, fading=st.floats(0, 40), samples=st.integers(0, 10**6))
def test_largest_batch_fits_and_one_more_does_not(timing: RoundTiming, fading: float, samples: int) -> None:
    gain = np.array([fading])
    batch = timing.largest_batch(gain, samples).item()
    assert 0 <= batch <= samples
    assert batch == 0 or timing.total_s(batch, gain).item() <= timing.deadline_s
    assert batch == samples or timing.total_s(batch + 1, gain).item() > timing.deadline_s


@given(timing=devices, fading=st.floats(0.1, 10), batch=st.integers(1, 2000))
def test_largest_batch_at_a_deadline_met_to_the_last_digit(timing: RoundTiming, fading: float, batch: int) -> None:
    gain = np.array([fading])
    exact = timing.total_s(batch, gain).item()
    assert replace(timing, deadline_s=exact).largest_batch(gain, 10_000).item() >= batch
    less = replace(timing, deadline_s=float(np.nextafter(exact, 0)))
    assert less.largest_batch(gain, 10_000).item() < batch


def test_a_dead_channel_takes_for_ever() -> None:
    timing = mnist(2)
    assert np.isposinf(timing.upload_s(np.array([0.0, 1.0]))).tolist() == [True, False]
    assert timing.largest_batch(np.array([0.0, 1.0]), 100)[0] == 0


def test_a_hundred_thousand_devices() -> None:
    timing = mnist(100_000)
    fading = timing.channel.sample_fading(Streams(seed=1), 0, 100_000)
    batch = timing.largest_batch(fading, 3000)
    assert abs((batch > 0).mean() - timing.arrival_probability(1).mean()) < 0.005


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (-1, "batch = -1"),
        (1.5, "batch = 1.5"),
        ([1, 2], "batch has shape"),
        ("many", "batch must be whole"),
        ([[1], [1, 2]], "batch"),
    ],
)
def test_bad_batches_are_refused(batch: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        mnist(3).arrival_probability(batch)


def test_bad_work_is_refused() -> None:
    with pytest.raises(InputError, match=r"workload.local_steps = 0"):
        Workload(1.0, 1.0, 0)
    with pytest.raises(InputError, match=r"workload.local_steps = nan"):
        Workload(1.0, 1.0, float("nan"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"workload.payload_bits = 0"):
        Workload(0.0, 1.0, 1)
    with pytest.raises(InputError, match=r"workload.macs_per_sample"):
        Workload(1.0, float("inf"), 1)
    with pytest.raises(InputError, match="dimension = 0"):
        Workload.for_linear_model(0, 1, 1)
    with pytest.raises(InputError, match="deadline_s = -1"):
        mnist(deadline_s=-1)
    with pytest.raises(InputError, match=r"server.mac_rate = 0"):
        mnist().server_batch(0, 10)
    with pytest.raises(InputError, match="coded_samples = 0"):
        mnist().server_batch(1e6, 0)


def test_exponent_is_the_formula() -> None:
    kappa, window = np.array([0.3, 0.05]), np.array([2.0, 0.7])
    expected = kappa * (2 ** (640e3 / (180e3 * window)) - 1)
    assert outage_exponent(kappa, 640e3, 180e3, window) == pytest.approx(expected, rel=1e-13)


def test_small_exponents_keep_their_digits() -> None:
    assert outage_exponent(np.array([1.0]), 1.0, 1e18, np.array([1.0])) == pytest.approx(np.log(2) * 1e-18)


def test_no_time_or_far_too_little_is_infinite_without_a_warning() -> None:
    exponent = outage_exponent(np.full(4, 1e-9), 1e6, 1e3, np.array([-1.0, 0.0, 1e-3, 5e-324]))
    assert np.isposinf(exponent).all()


@given(
    limit=st.integers(1, 400),
    start=st.integers(0, 100),
    each=st.integers(1, 30),
    most=st.integers(0, 60),
    guess=st.floats(-5, 100),
)
def test_largest_fitting_is_exact_from_any_start(limit: int, start: int, each: int, most: int, guess: float) -> None:
    # tenths are not exact in binary, so limits fall on integers up to rounding
    def fits(count: int) -> bool:
        return start / 10 + each / 10 * count <= limit / 10

    expected = max((b for b in range(1, most + 1) if fits(b)), default=0)
    found = largest_fitting(np.array([guess]), np.array([most]), lambda b: start / 10 + each / 10 * b <= limit / 10)
    assert found.tolist() == [expected]
