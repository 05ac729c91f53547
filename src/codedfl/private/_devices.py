"""The work of a device whose updates are private: one clipped gradient with noise per round."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from scipy import optimize

from codedfl.errors import InputError
from codedfl.fleet import Arrivals, FixedBatchArrivals, Timing
from codedfl.training import (
    Geometry,
    LocalSGDPlan,
    PrivacyTarget,
    PrivateSum,
    Round,
    Setting,
    Start,
    Steps,
    asking,
    least_arrivals,
)
from codedfl.typing import FloatArray, IntArray

LATE = 0.02
"""Share of the updates that may be late. Every update costs privacy, so rounds are long enough for nearly all of them."""


def require_target(setting: Setting, scheme: str) -> PrivacyTarget:
    """Return the privacy target of a setting, or refuse a setting without one."""
    if setting.privacy is None:
        raise InputError(
            f"privacy.epsilon = 0 leaves the noise of {scheme} open: set the epsilon that the run is to keep (--epsilon)."
        )
    return setting.privacy


@dataclass(frozen=True)
class PrivateGradient:
    """One gradient per round, clipped per sample and with noise, on all rows or on a Poisson sample of them.

    The plan that this makes has no noise yet: the scheme sets it, with `PrivatePlan.protected`, once it knows its clip norm.

    Args:
        sampling_rate: ``q``, the probability with which a row is in a round's batch; 1 for all rows.
    """

    sampling_rate: float = 1.0

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise InputError(f"sampling_rate = {self.sampling_rate} must be above 0 and at most 1.")

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> PrivatePlan:
        """Plan rounds that are long enough for nearly all devices; see `patient_deadline`."""
        if arrivals is None:
            samples = setting.federation.samples
            sizes = np.where(samples > 0, np.maximum(np.rint(self.sampling_rate * samples), 1), 0).astype(np.int64)
            timing = setting.timing(1)
            timing = replace(timing, deadline_s=patient_deadline(timing, sizes))
            arrivals = asking(FixedBatchArrivals(timing, sizes, setting.streams), setting.cohort)
        return PrivatePlan(
            setting.federation,
            setting.streams,
            1,
            arrivals,
            sampling_rate=self.sampling_rate,
            asked=setting.cohort or setting.federation.devices,
        )


@dataclass(frozen=True)
class PrivatePlan(LocalSGDPlan):
    """Private gradients in a setting.

    Args:
        sampling_rate: ``q``.
        asked: devices asked per round.
        clip_norm: ``C``.
        noise_multipliers: ``z_k`` of each round: the noise in what the server sees, over ``C``, (K,).
        shares: number of devices that the noise of a sum is shared by; 1 if the server sees every update.
        geometry: the coordinates in which devices clip and add noise.
        softmax: whether residuals are those of a softmax.
    """

    sampling_rate: float = 1.0
    asked: int = 1
    clip_norm: float = 1.0
    noise_multipliers: FloatArray = field(default_factory=lambda: np.zeros(0))
    shares: int = 1
    geometry: Geometry = field(default_factory=Geometry)
    softmax: bool = False

    def protected(
        self,
        target: PrivacyTarget,
        clip_norm: float,
        noise_multipliers: FloatArray,
        geometry: Geometry | None = None,
        *,
        softmax: bool = False,
    ) -> PrivatePlan:
        """Return the plan with its noise set."""
        # Of a cohort, the devices that arrive least often may be the ones that are asked.
        shares = least_arrivals(np.sort(self.arrivals.probability)[: self.asked]) if target.sums_only else 1
        return replace(
            self,
            clip_norm=clip_norm,
            noise_multipliers=noise_multipliers,
            shares=shares,
            geometry=geometry or Geometry(),
            softmax=softmax,
        )

    def precision(self, round: int) -> float:
        """Return ``1 / z_k^2``."""
        return float(self.noise_multipliers[round]) ** -2

    @cached_property
    def norms(self) -> FloatArray:
        """``||D x||`` of every row of the federation, (m,)."""
        return self.geometry.norms(self.federation.features)

    def steps(self, device: int, round: int, batch_size: int, starts: Sequence[Start]) -> Steps:  # noqa: ARG002
        """Return one private step; the rows of a batch are drawn with the sampling rate, whatever the channel."""
        features, labels = self.federation.device(device)
        first, last = self.federation.offsets[device], self.federation.offsets[device + 1]
        batches: list[IntArray | None] = [None]
        if self.sampling_rate < 1:
            # The size of the batch is not fixed: every row is drawn independently, as the accounting assumes.
            uniform = self.streams.at("poisson", device=device, round=round).random(len(features))
            batches = [np.flatnonzero(uniform < self.sampling_rate)]
        private = PrivateSum(
            self.clip_norm,
            self.norms[first:last],
            self.clip_norm * float(self.noise_multipliers[round]) / math.sqrt(self.shares),
            self.streams,
            device,
            round,
            self.geometry,
            self.softmax,
        )
        return Steps(features, labels, batches, 1.0 / self.sampling_rate, starts, private)


def noise_in_sum(setting: Setting, target: PrivacyTarget, shares: int) -> float:
    """Return the noise of an update of all ``N`` devices, in units of that of one mechanism.

    ``n`` of them are asked, and their sum is scaled by ``N / n``: ``N / sqrt(n)``, or ``N / sqrt(n m)`` if ``m`` devices share
    the noise of a sum.
    """
    devices = int(np.count_nonzero(setting.federation.samples))
    asked = min(setting.cohort or devices, devices)
    return devices / math.sqrt(asked * (shares if target.sums_only else 1))


def scale_of_round(round: Round, samples: IntArray, shares: int) -> float | None:
    """Return the factor that makes the sum of what arrived stand for all rows; None if the round is not opened.

    Rows of late devices are taken to be like the others, which who arrives says nothing about: whoever sees sums only cannot
    weight single devices.

    Args:
        round: the round.
        samples: ``l_i``, (N,).
        shares: least number of arrivals: a sum of fewer would lack noise.
    """
    arrived = [device for device, _ in round.attendance.arrivals()]
    rows = int(samples[arrived].sum())
    if len(arrived) < shares or rows == 0:
        return None
    return float(samples.sum()) / (rows * round.attendance.weight)


def patient_deadline(timing: Timing, batch_sizes: IntArray) -> float:
    """Return the least deadline at which a share `LATE` of the updates or fewer are late on average.

    If more than that never arrive however long a round lasts, it is the deadline beyond which nobody else arrives.

    Args:
        timing: fleet, channel and workload.
        batch_sizes: rows that each device computes on, (N,); 0 for a device without any.

    Example:
        >>> from codedfl.fleet import Channel, Fleet, RoundTiming, Workload
        >>> fleet = Fleet(("a", "b"), np.array([1.2e6, 1.5e6]), np.array([15.0, 25.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
        >>> round(patient_deadline(timing, np.array([3000, 3000])), 1)
        121.9
    """
    taking_part = batch_sizes > 0
    if not taking_part.any():
        return timing.deadline_s

    def excess(log_deadline: float) -> float:
        patient = replace(timing, deadline_s=math.exp(log_deadline))
        return float(np.mean(1 - patient.arrival_probability(batch_sizes)[taking_part])) - LATE

    longest_s = timing.longest_s(batch_sizes)
    if math.isfinite(longest_s) and excess(math.log(longest_s)) > 0:
        return longest_s
    low = high = math.log(timing.shortest_s(batch_sizes))
    while excess(high) > 0:
        high += 1.0
    if high == low:
        return math.exp(high)
    enough = float(optimize.brentq(excess, low, high, xtol=1e-9)) + 1e-9
    while excess(enough) > 0:  # recorded answers come in steps
        enough += 1e-9
    return math.exp(enough)
