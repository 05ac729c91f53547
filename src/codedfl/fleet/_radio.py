"""The radio model: fading, what a round costs each device in seconds, and how likely it makes the deadline (Sec. II-B).

Fading is independent Rayleigh block fading, one draw per device and round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize, special

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.fleet._inputs import count_vector, counts, require_powers_dbm, whole_number
from codedfl.fleet._profiles import Fleet
from codedfl.fleet._round import Attendance, ServerTiming, Workload, largest_fitting
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray, ShortRepr

# From here on the fraction is exact to the last digit, and exp is still far from its overflow at 709.
_CONTINUED_FRACTION_FROM = 20.0
_CONTINUED_FRACTION_TERMS = 20

QUADRATURE_POINTS = 65
"""Batch sizes at which the probability to arrive is computed for its mean."""


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


@dataclass(frozen=True, repr=False)
class RoundTiming(ShortRepr, ServerTiming):
    """The times of a round: t_k^i(b) = t_D + t_C^i(b) + t_U,k^i against the deadline T.

    Batch sizes are whole numbers, one for all devices or one for each, (..., N). A batch of 0 means that the device
    sits the round out: it computes nothing and sends nothing.

    Args:
        fleet: the devices.
        channel: the channel between them and the server.
        workload: what a device does in a round.
        deadline_s: T.

    Example:
        >>> fleet = Fleet(("slow", "fast"), np.array([1.2e6, 1.5e6]), np.array([15.0, 25.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=10.0)
        >>> timing.download_s
        0.64
        >>> timing.compute_s(32).round(3)
        array([5.333, 4.267])
        >>> timing.arrival_probability(32).round(3)
        array([0.766, 0.981])
        >>> timing.largest_batch(np.array([0.05, 1.0]), samples=3000)
        array([ 0, 64])
    """

    fleet: Fleet
    channel: Channel
    workload: Workload
    deadline_s: float

    radio: ClassVar[Literal[True]] = True
    """Whether times follow from the radio model."""

    def __post_init__(self) -> None:
        require_positive("deadline_s", self.deadline_s)

    def among(self, devices: IntArray) -> RoundTiming:
        """Return the round of the devices with these indices."""
        return replace(self, fleet=self.fleet.among(devices))

    @property
    def download_s(self) -> float:
        """t_D = M / download rate."""
        return self.workload.bits_down / self.channel.download_rate_bps

    @property
    def attenuation(self) -> FloatArray:
        """κ_i = N_0 / (γ P_i) of each device."""
        return self.channel.attenuation(self.fleet.transmit_power_dbm)

    @property
    def seconds_per_sample(self) -> FloatArray:
        """a_i = τ N_MAC / MACR_i, the seconds that one more sample in the batch costs."""
        return self._seconds_of(np.ones(self.fleet.devices, dtype=np.int64))

    def compute_s(self, batch: npt.ArrayLike) -> FloatArray:
        """Return t_C^i(b) = τ b N_MAC / MACR_i."""
        return self._seconds_of(counts("batch", batch, self.fleet.devices))

    def upload_s(self, fading: FloatArray) -> FloatArray:
        """Return t_U^i = M / R^i; infinite if there is no channel at all."""
        rate = self.channel.uplink_rate_bps(fading, self.fleet.transmit_power_dbm)
        with np.errstate(divide="ignore", over="ignore"):
            return np.asarray(self.workload.payload_bits / rate)

    def total_s(self, batch: npt.ArrayLike, fading: FloatArray) -> FloatArray:
        """Return t^i(b) = t_D + t_C^i(b) + t_U^i."""
        return self.download_s + self.compute_s(batch) + self.upload_s(fading)

    def upload_window_s(self, batch: npt.ArrayLike) -> FloatArray:
        """Return the seconds left to upload, x_i(b) = T - t_D - t_C^i(b), and 0 if none or if the batch is 0."""
        size = counts("batch", batch, self.fleet.devices)
        window = self.deadline_s - self.download_s - self._seconds_of(size)
        return np.where(size > 0, np.maximum(window, 0.0), 0.0)

    def arrival_probability(self, batch: npt.ArrayLike) -> FloatArray:
        """Return p_i(b) = exp(-κ_i (2^(M / (B x_i(b))) - 1)), and 0 where no time is left to upload."""
        return np.exp(-self._outage(batch))

    def straggler_ratio(self, batch: npt.ArrayLike) -> float:
        """Return the mean of 1 - p_i(b_i), the share of devices that miss the deadline on average."""
        return float(np.mean(-np.expm1(-self._outage(batch))))

    def largest_batch(self, fading: FloatArray, samples: npt.ArrayLike) -> IntArray:
        """Return b_k^i = max {b in [1, l_i] : t^i(b) <= T}, and 0 where not even one sample fits.

        Args:
            fading: |h|² / γ of each device, (..., N).
            samples: l_i, the largest batch of each device.
        """
        most = counts("samples", samples, self.fleet.devices)
        upload = self.upload_s(fading)
        estimate = np.maximum(self.deadline_s - self.download_s - upload, 0.0) / self.seconds_per_sample
        return largest_fitting(
            estimate,
            most,
            lambda batch: self.download_s + self._seconds_of(batch) + upload <= self.deadline_s,
        )

    def expected_batch(self, samples: IntArray) -> FloatArray:
        """Return E[b_k^i], the mean of the largest batch that meets the deadline, 0 in rounds that a device misses, (N,).

        A batch has n rows or more with probability p_i(n), so this is sum_{n=1}^{l_i} p_i(n), here by quadrature.

        Args:
            samples: l_i, (N,).

        Example:
            >>> fleet = Fleet(("a", "b"), np.array([1.2e6, 1.5e6]), np.array([15.0, 25.0]))
            >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
            >>> timing.expected_batch(np.array([3000, 3000])).round()
            array([185., 309.])
        """
        share = np.linspace(0.0, 1.0, QUADRATURE_POINTS)
        # Beyond the rows that fit without any upload the probability is zero, so points there would be wasted.
        room = np.maximum(self.deadline_s - self.download_s, 0.0) / self.seconds_per_sample
        most = np.maximum(np.minimum(samples, room), 1.0)
        sizes = 1.0 + share[:, None] * (most - 1.0)
        window = np.maximum(self.deadline_s - self.download_s - sizes * self.seconds_per_sample, 0.0)
        arrives = np.exp(-self.outage_exponents(window))
        mean = np.trapezoid(arrives, sizes, axis=0) + 0.5 * (arrives[0] + arrives[-1] * (most >= samples))
        return np.where(samples > 0, np.minimum(mean, samples), 0.0)

    def attend(self, batch_sizes: IntArray, streams: Streams, round: int) -> Attendance:
        """Return who arrives with these batches, and the bits that late devices had sent: R (T - t_D - t_C), less than M."""
        fading = self.channel.sample_fading(streams, round, self.fleet.devices)
        arrived = (batch_sizes > 0) & (self.total_s(batch_sizes, fading) <= self.deadline_s)
        rate = self.channel.uplink_rate_bps(fading, self.fleet.transmit_power_dbm)
        sent = np.minimum(rate * self.upload_window_s(batch_sizes), self.workload.payload_bits)
        return Attendance(batch_sizes, arrived, late_bits=np.where(arrived, 0.0, sent))

    def preparation_s(self, bits: FloatArray, macs: FloatArray, samples: IntArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002
        """Return the time for arithmetic before training, and for sending what it made at the mean uplink rate, (N,) each.

        Args:
            bits: sent by each device, (N,).
            macs: arithmetic on each device, (N,).
            samples: l_i, which measured fleets need.
        """
        return macs / self.fleet.mac_rate, bits / self.channel.mean_uplink_rate_bps(self.fleet.transmit_power_dbm)

    def computing_s(self, macs: FloatArray, updates: FloatArray) -> FloatArray:  # noqa: ARG002 (of measured fleets)
        """Return the time that each device took for arithmetic, which made so many updates, (N,)."""
        return macs / self.fleet.mac_rate

    def receiving_s(self, bits: float) -> FloatArray:
        """Return the time in which each device downloads something, (N,)."""
        return np.full(self.fleet.devices, bits / self.channel.download_rate_bps)

    def shortest_s(self, batch: npt.ArrayLike) -> float:
        """Return a deadline that at least one device with these batches misses for certain, or just so."""
        return float(np.max(self.compute_s(batch))) + self.download_s

    def longest_s(self, batch: npt.ArrayLike) -> float:  # noqa: ARG002 (of measured fleets)
        """Return infinity: a longer deadline always lets more devices arrive."""
        return math.inf

    @property
    def fixed_deadline(self) -> bool:
        """Whether arrivals are known for this deadline alone: no, the model holds for any."""
        return False

    def _seconds_of(self, batch: IntArray) -> FloatArray:
        return self.workload.local_steps * self.workload.macs_per_sample * batch / self.fleet.mac_rate

    def outage_exponents(self, window_s: FloatArray) -> FloatArray:
        """Return the exponents of `outage_exponent` for the seconds that are left to upload, (..., N)."""
        return outage_exponent(self.attenuation, self.workload.payload_bits, self.channel.bandwidth_hz, window_s)

    def _outage(self, batch: npt.ArrayLike) -> FloatArray:
        return self.outage_exponents(self.upload_window_s(batch))


def outage_exponent(
    attenuation: FloatArray, payload_bits: float, bandwidth_hz: float, window_s: FloatArray
) -> FloatArray:
    """Return κ (2^(M / (B x)) - 1): an upload succeeds with probability exp(-this).

    M bits fit into x seconds if B log2(1 + fading / κ) >= M / x, and fading is standard exponential. The exponent is
    infinite where no time is left.

    Args:
        attenuation: κ, positive.
        payload_bits: M.
        bandwidth_hz: B.
        window_s: x, the seconds that are left for the upload.

    Example:
        >>> outage_exponent(np.array([0.1, 0.1, 0.1]), 1e6, 1e6, np.array([1.0, 0.5, 0.0]))
        array([0.1, 0.3, inf])
    """
    open_window = window_s > 0
    # An overflow to infinity is the right answer here: the probability exp(-inf) is zero.
    with np.errstate(over="ignore"):
        doublings = payload_bits / bandwidth_hz / np.where(open_window, window_s, 1.0)
        exponent = attenuation * np.expm1(math.log(2) * doublings)
    return np.where(open_window, exponent, np.inf)


def bandwidth_for_straggler_ratio(timing: RoundTiming, batch: npt.ArrayLike, ratio: float) -> float:
    """Return the bandwidth in Hz at which the mean of 1 - p_i(b_i) is ``ratio``.

    Each device with time left to upload reaches any arrival probability at some bandwidth. The answer lies between the
    least and the greatest of these bandwidths, where the ratio falls as the bandwidth grows. A device whose computation
    alone takes the whole round is a straggler at every bandwidth.

    Args:
        timing: the round; its own bandwidth does not matter.
        batch: b, one for all devices or one per device; 1 for adaptive batches.
        ratio: the target, above 0 and below 1.

    Raises:
        InputError: the ratio is not attainable.

    Example:
        >>> from codedfl.fleet import Channel, Workload, draw_fleet
        >>> fleet = draw_fleet([str(i) for i in range(20)], np.random.default_rng(0))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=10.0)
        >>> timing.channel.bandwidth_hz, round(timing.straggler_ratio(1), 3)
        (180000.0, 0.04)
        >>> round(bandwidth_for_straggler_ratio(timing, batch=1, ratio=0.2))
        47777
    """
    if not 0 < ratio < 1:
        raise InputError(f"fleet.straggler_ratio = {ratio} must be above 0 and below 1.")
    window = timing.upload_window_s(count_vector("batch", batch, timing.fleet.devices))
    open_window = window > 0
    never = np.count_nonzero(~open_window) / window.size
    if ratio <= never:
        remedy = f"choose a ratio above {never:g} and below 1, " if never < 1 else ""
        raise InputError(
            f"fleet.straggler_ratio = {ratio} is not attainable, as {np.count_nonzero(~open_window)} of {window.size} device(s) "
            f"have no time left to upload at any bandwidth: {remedy}give a longer training.deadline_s, smaller batches or a "
            "smaller model."
        )
    attenuation = timing.attenuation[open_window]
    window = window[open_window]
    payload = timing.workload.payload_bits
    missing = (ratio - never) / (1.0 - never)
    arriving = (1.0 - ratio) / (1.0 - never)

    def excess(log_bandwidth: float) -> float:
        exponent = outage_exponent(attenuation, payload, math.exp(log_bandwidth), window)
        # Of the two equivalent differences, the one between small numbers keeps its digits.
        if missing < 0.5:
            return float(np.mean(-np.expm1(-exponent))) - missing
        return arriving - float(np.mean(np.exp(-exponent)))

    target = -math.log(arriving) if missing >= 0.5 else -math.log1p(-missing)
    own_bandwidth = np.log(payload * math.log(2) / window / np.log1p(target / attenuation))
    margin = 1e-6
    low, high = float(own_bandwidth.min()) - margin, float(own_bandwidth.max()) + margin
    return math.exp(float(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-15)))
