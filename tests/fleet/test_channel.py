from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from codedfl.errors import InputError
from codedfl.fleet import Channel
from codedfl.fleet._channel import scaled_exponential_integral
from codedfl.streams import Streams


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
