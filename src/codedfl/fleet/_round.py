"""A round: what devices do in it, which of them took part, and how much of its own work the server gets done meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from codedfl._validation import require_positive
from codedfl.fleet._inputs import whole_number
from codedfl.typing import BoolArray, FloatArray, IntArray

BITS_PER_NUMBER = 32


@dataclass(frozen=True, eq=False)
class Attendance:
    """The devices that took part in one round.

    Args:
        batch_sizes: samples that each device computes on in every local step, (n,); 0 if it sits the round out.
        arrived: whose update reached the server in time, (n,).
        late_bits: bits sent by devices that missed the deadline, (n,); 0 for all others.
        devices: indices of the n devices that were asked; None for all, in order.
        weight: factor on every update that makes up for devices that were not asked, N / n.
        probability: p_i as it was estimated before this round, (N,); None for the probabilities of the arrivals themselves.
    """

    batch_sizes: IntArray
    arrived: BoolArray
    late_bits: FloatArray
    devices: IntArray | None = None
    weight: float = 1.0
    probability: FloatArray | None = None

    def arrivals(self) -> list[tuple[int, int]]:
        """Return the index and batch size of every device whose update arrived, in device order."""
        places = np.flatnonzero(self.arrived)
        devices = places if self.devices is None else self.devices[places]
        return list(zip(devices.tolist(), self.batch_sizes[places].tolist(), strict=True))


@dataclass(frozen=True)
class Workload:
    """What a device does in a round.

    Args:
        payload_bits: M, the size of what a device sends in a round: an update, and whatever else its scheme declares.
        macs_per_sample: N_MAC, multiply-accumulate operations for one sample in one local step.
        local_steps: τ.
        download_bits: the size of what it receives: a model, and whatever else its scheme declares. M unless given.

    Example:
        >>> Workload.for_linear_model(dimension=2000, outputs=10, local_steps=5)
        Workload(payload_bits=640000, macs_per_sample=40000, local_steps=5, download_bits=640000)
    """

    payload_bits: float
    macs_per_sample: float
    local_steps: int
    download_bits: float | None = None

    def __post_init__(self) -> None:
        require_positive("workload.payload_bits", self.payload_bits)
        require_positive("workload.macs_per_sample", self.macs_per_sample)
        if self.download_bits is None:
            object.__setattr__(self, "download_bits", self.payload_bits)
        require_positive("workload.download_bits", self.bits_down)
        object.__setattr__(self, "local_steps", whole_number("workload.local_steps", self.local_steps, 1))

    @property
    def bits_down(self) -> float:
        """The size of what a device receives in a round."""
        assert self.download_bits is not None
        return self.download_bits

    @classmethod
    def for_linear_model(cls, dimension: int, outputs: int, local_steps: int) -> Workload:
        """Return the work for W of d × o numbers: M = 32 d o and N_MAC = 2 d o (forward and backward)."""
        size = whole_number("dimension", dimension, 1) * whole_number("outputs", outputs, 1)
        return cls(payload_bits=BITS_PER_NUMBER * size, macs_per_sample=2 * size, local_steps=local_steps)


class ServerTiming:
    """The server's share of a round, which does not depend on how the devices are described."""

    workload: Workload
    deadline_s: float

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
