"""What one round costs each device in seconds, and how likely the device makes the deadline (Sec. II-B)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from codedfl._validation import require_positive
from codedfl.fleet._channel import Channel
from codedfl.fleet._inputs import counts, whole_number
from codedfl.fleet._profiles import Fleet
from codedfl.typing import BoolArray, FloatArray, IntArray

BITS_PER_NUMBER = 32


@dataclass(frozen=True)
class Workload:
    """What a device does in a round.

    Args:
        payload_bits: M, the size of a model or of an update.
        macs_per_sample: N_MAC, multiply-accumulate operations for one sample in one local step.
        local_steps: τ.

    Example:
        >>> Workload.for_linear_model(dimension=2000, outputs=10, local_steps=5)
        Workload(payload_bits=640000, macs_per_sample=40000, local_steps=5)
    """

    payload_bits: float
    macs_per_sample: float
    local_steps: int

    def __post_init__(self) -> None:
        require_positive("workload.payload_bits", self.payload_bits)
        require_positive("workload.macs_per_sample", self.macs_per_sample)
        object.__setattr__(self, "local_steps", whole_number("workload.local_steps", self.local_steps, 1))

    @classmethod
    def for_linear_model(cls, dimension: int, outputs: int, local_steps: int) -> Workload:
        """Return the work for W of d × o numbers: M = 32 d o and N_MAC = 2 d o (forward and backward)."""
        size = whole_number("dimension", dimension, 1) * whole_number("outputs", outputs, 1)
        return cls(payload_bits=BITS_PER_NUMBER * size, macs_per_sample=2 * size, local_steps=local_steps)


@dataclass(frozen=True)
class RoundTiming:
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

    def __post_init__(self) -> None:
        require_positive("deadline_s", self.deadline_s)

    @property
    def download_s(self) -> float:
        """t_D = M / download rate."""
        return self.workload.payload_bits / self.channel.download_rate_bps

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

    def server_batch(self, mac_rate: float, coded_samples: int) -> int:
        """Return b_s = floor(T MACR_s / (τ N_MAC)), at least 1 and at most c.

        Args:
            mac_rate: MACR_s of the server, in MAC per second.
            coded_samples: c.
        """
        return max(1, self.server_capacity(mac_rate, whole_number("coded_samples", coded_samples, 1)))

    def server_capacity(self, mac_rate: float, coded_samples: int) -> int:
        """Return how many of c coded samples the server gets through in time; 0 if not even one."""
        require_positive("server.mac_rate", mac_rate)
        most = np.array([whole_number("coded_samples", coded_samples, 0)])
        macs = self.workload.local_steps * self.workload.macs_per_sample
        estimate = np.array([self.deadline_s * mac_rate / macs])
        return int(largest_fitting(estimate, most, lambda batch: macs * batch / mac_rate <= self.deadline_s)[0])

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


def largest_fitting(estimate: FloatArray, most: IntArray, fits: Callable[[IntArray], BoolArray]) -> IntArray:
    """Return the largest counts from 0 to ``most`` that fit; 0 always does.

    A quotient such as ``(T - t_D - t_U) / a`` is off by one when rounding falls on the wrong side of an integer, so it
    only starts the search: neighbours are tried until ``fits(count)`` holds and ``fits(count + 1)`` does not. ``fits``
    must be non-increasing in the count, as sums and products of non-negative floats are.

    Example:
        >>> (0.5 - 0.2) / 0.1, 0.2 + 0.1 * 3 <= 0.5
        (2.9999999999999996, True)
        >>> largest_fitting(np.array([3.0 - 1e-15]), np.array([9]), lambda count: 0.2 + 0.1 * count <= 0.5)
        array([3])
    """
    count = np.clip(np.floor(estimate), 0, most).astype(np.int64)
    while (too_many := (count > 0) & ~fits(count)).any():
        count = count - too_many
    while (room := (count < most) & fits(count + 1)).any():
        count = count + room
    return count
