"""What one round costs each device in seconds, and how likely the device makes the deadline (Sec. II-B)."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from codedfl._short_repr import ShortRepr
from codedfl._validation import require_positive
from codedfl.fleet._attendance import Attendance
from codedfl.fleet._channel import Channel
from codedfl.fleet._inputs import counts
from codedfl.fleet._profiles import Fleet
from codedfl.fleet._workload import ServerTiming, Workload, largest_fitting
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray


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
