from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from codedfl.errors import InputError
from codedfl.fleet import (
    Channel,
    Fleet,
    RoundTiming,
    Workload,
    bandwidth_for_straggler_ratio,
    draw_fleet,
)
from codedfl.fleet._radio import outage_exponent, scaled_exponential_integral
from codedfl.fleet._round import largest_fitting
from codedfl.streams import Streams

SERVER_MAC_RATE = 15.36e6


def by_quadrature(kappa: float) -> float:
    """e^κ E_1(κ) as the integral of e^-t / (t + κ); for small κ over ln t, to resolve the bend at t = κ."""
    if kappa >= 1:
        value, _ = integrate.quad(lambda t: math.exp(-t) / (t + kappa), 0, np.inf, epsabs=0, epsrel=1e-12)
        return float(value)

    def integrand(u: float) -> float:
        t = math.exp(u)
        return t * math.exp(-t) / (t + kappa)

    bend = math.log(kappa)
    value, _ = integrate.quad(integrand, bend - 40, 6, epsabs=0, epsrel=1e-12, limit=500, points=[bend, 0])
    return float(value)


@pytest.mark.parametrize("exponent", np.linspace(-12, 6, 37))
def test_mean_rate_against_quadrature(exponent: float) -> None:
    # noise_power and power of 0 dBm make κ = 1 / γ
    channel = Channel(bandwidth_hz=math.log(2), noise_power_dbm=0.0, mean_gain=10.0**-exponent)
    kappa = float(channel.attenuation(0.0))
    assert float(channel.mean_uplink_rate_bps(0.0)) == pytest.approx(by_quadrature(kappa), rel=1e-9)


def test_mean_rate_is_seamless_where_the_two_forms_meet() -> None:
    below, above = scaled_exponential_integral(np.array([20 * (1 - 1e-15), 20.0]))
    assert below == pytest.approx(above, rel=1e-14)


def test_mean_rate_against_sampled_rates() -> None:
    channel, power = Channel(), np.array([15.0, 20.0, 25.0])
    fading = channel.sample_fading(Streams(seed=5), 0, 300_000).reshape(-1, 3)
    rates = channel.uplink_rate_bps(fading, power)
    standard_error = rates.std(axis=0) / np.sqrt(len(rates))
    assert (np.abs(rates.mean(axis=0) - channel.mean_uplink_rate_bps(power)) < 4.5 * standard_error).all()


def test_attenuation_is_noise_over_mean_received_power_in_watts() -> None:
    # 20 dBm = 0.1 W and -70 dBm = 1e-10 W: κ = 1e-10 / (1e-8 * 0.1)
    assert float(Channel().attenuation(20.0)) == pytest.approx(0.1, rel=1e-12)
    assert Channel().uplink_rate_bps(0.3, 20.0) == pytest.approx(180e3 * 2, rel=1e-12)


def test_fading_is_standard_exponential() -> None:
    fading = Channel().sample_fading(Streams(seed=1), 0, 100_000)
    assert (fading >= 0).all()
    assert abs(fading.mean() - 1) < 4.5 / math.sqrt(100_000)
    tail = math.exp(-2)
    assert abs((fading > 2).mean() - tail) < 4.5 * math.sqrt(tail * (1 - tail) / 100_000)


@given(few=st.integers(1, 40), more=st.integers(0, 40), round=st.integers(0, 10_000))
def test_fading_has_an_address(few: int, more: int, round: int) -> None:
    channel, streams = Channel(), Streams(seed=9)
    short, long = (channel.sample_fading(streams, round, n) for n in (few, few + more))
    assert (short == long[:few]).all()
    assert (short != channel.sample_fading(streams, round + 1, few)).any()


def test_bad_channels_are_refused() -> None:
    with pytest.raises(InputError, match=r"channel.bandwidth_hz = 0"):
        Channel(bandwidth_hz=0)
    with pytest.raises(InputError, match=r"channel.noise_power_dbm = nan"):
        Channel(noise_power_dbm=math.nan)
    with pytest.raises(InputError, match=r"channel.mean_gain = -1"):
        Channel(mean_gain=-1)
    with pytest.raises(InputError, match=r"channel.download_rate_bps"):
        Channel(download_rate_bps=math.inf)
    with pytest.raises(InputError, match="fading"):
        Channel().uplink_rate_bps(np.array([-1.0]), 20.0)
    with pytest.raises(InputError, match="round = -1"):
        Channel().sample_fading(Streams(seed=1), -1, 3)
    with pytest.raises(InputError, match="devices = 0"):
        Channel().sample_fading(Streams(seed=1), 0, 0)


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
