"""The wireless channel: independent Rayleigh block fading, one draw per device and round (Sec. II-B)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.fleet._inputs import require_powers_dbm, whole_number
from codedfl.streams import Streams
from codedfl.typing import FloatArray

# From here on the fraction is exact to the last digit, and exp is still far from its overflow at 709.
_CONTINUED_FRACTION_FROM = 20.0
_CONTINUED_FRACTION_TERMS = 20


@dataclass(frozen=True)
class Channel:
    """Uplink and downlink between the devices and the server.

    Args:
        bandwidth_hz: B, of each device's uplink.
        noise_power_dbm: N_0, received noise power over that bandwidth.
        mean_gain: γ, mean of the channel gain |h|², which is exponentially distributed.
        download_rate_bps: rate at which every device downloads the model.

    Example:
        >>> channel = Channel()
        >>> power = np.array([15.0, 25.0])
        >>> channel.attenuation(power).round(4)
        array([0.3162, 0.0316])
        >>> channel.mean_uplink_rate_bps(power).round(-3)
        array([309000., 779000.])
    """

    bandwidth_hz: float = 180e3
    noise_power_dbm: float = -70.0
    mean_gain: float = 1e-8
    download_rate_bps: float = 1e6

    def __post_init__(self) -> None:
        require_positive("channel.bandwidth_hz", self.bandwidth_hz)
        require_positive("channel.download_rate_bps", self.download_rate_bps)
        require_powers_dbm("channel.noise_power_dbm", self.noise_power_dbm)
        if not 1e-100 <= self.mean_gain <= 1e100:
            raise InputError(
                f"channel.mean_gain = {self.mean_gain} must lie from 1e-100 to 1e100: give a ratio of powers, such as "
                "1e-8 for a loss of 80 dB."
            )

    def attenuation(self, transmit_power_dbm: float | FloatArray) -> FloatArray:
        """Return κ_i = N_0 / (γ P_i), the inverse of the mean signal-to-noise ratio."""
        require_powers_dbm("transmit_power_dbm", transmit_power_dbm)
        below_dbm = self.noise_power_dbm - np.asarray(transmit_power_dbm, dtype=np.float64)
        return np.asarray(np.power(10.0, below_dbm / 10.0) / self.mean_gain)

    def uplink_rate_bps(self, fading: float | FloatArray, transmit_power_dbm: float | FloatArray) -> FloatArray:
        """Return R = B log2(1 + fading / κ), with fading = |h|² / γ."""
        gain = np.asarray(fading, dtype=np.float64)
        if not (gain >= 0).all():
            raise InputError("fading must be zero or more: it is the channel gain |h|² divided by its mean.")
        return np.asarray(self.bandwidth_hz / math.log(2) * np.log1p(gain / self.attenuation(transmit_power_dbm)))

    def mean_uplink_rate_bps(self, transmit_power_dbm: float | FloatArray) -> FloatArray:
        """Return E[R] = (B / ln 2) e^κ E_1(κ), the ergodic capacity under Rayleigh fading."""
        return self.bandwidth_hz / math.log(2) * scaled_exponential_integral(self.attenuation(transmit_power_dbm))

    def sample_fading(self, streams: Streams, round: int, devices: int) -> FloatArray:
        """Draw |h|² / γ ~ Exp(1) for every device in a round.

        Drawn by inversion, one uniform number per device: adding devices does not change the earlier ones, and all
        schemes with the same seed see the same channel.
        """
        rng = streams.at("channel", round=whole_number("round", round, 0))
        return -np.log1p(-rng.random(whole_number("devices", devices, 1)))


def scaled_exponential_integral(kappa: FloatArray) -> FloatArray:
    """Return e^κ E_1(κ) for positive κ without overflow.

    For large κ, where e^κ overflows and E_1(κ) underflows, it uses the continued fraction
    1 / (κ + 1 - 1² / (κ + 3 - 2² / (κ + 5 - ...))).

    Example:
        >>> scaled_exponential_integral(np.array([1.0, 1e6])).round(12)
        array([5.96347362e-01, 9.99999000e-07])
    """
    large = kappa >= _CONTINUED_FRACTION_FROM
    moderate = np.minimum(kappa, _CONTINUED_FRACTION_FROM)
    fraction = kappa + (2 * _CONTINUED_FRACTION_TERMS + 1)
    for term in range(_CONTINUED_FRACTION_TERMS, 0, -1):
        fraction = kappa + (2 * term - 1) - term**2 / fraction
    return np.where(large, 1.0 / fraction, np.exp(moderate) * special.exp1(moderate))
