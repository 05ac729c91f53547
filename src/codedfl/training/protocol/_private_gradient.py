"""The work of a device whose updates are private: one clipped gradient with noise per round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from codedfl.coding import Geometry
from codedfl.errors import InputError
from codedfl.fleet import Arrivals, FixedBatchArrivals, in_cohorts, patient_deadline
from codedfl.privacy import PrivacyTarget, least_arrivals
from codedfl.setting import Setting
from codedfl.training.engine._private_sum import PrivateSum
from codedfl.training.engine._steps import Start, Steps
from codedfl.training.protocol._devices import DevicePlan, DeviceWork, LocalSGDPlan, Task
from codedfl.typing import FloatArray, IntArray


@dataclass(frozen=True)
class PrivateGradient(DeviceWork):
    """One gradient per round, clipped per sample and with noise, on all rows or on a Poisson sample of them.

    The plan that this makes has no noise yet: the scheme sets it, with `PrivatePlan.protected`, once it knows its clip norm.

    Args:
        sampling_rate: ``q``, the probability with which a row is in a round's batch; 1 for all rows.
    """

    sampling_rate: float = 1.0

    over_network: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not 0 < self.sampling_rate <= 1:
            raise InputError(f"sampling_rate = {self.sampling_rate} must be above 0 and at most 1.")

    def describe(self) -> str:
        """Return the size of the batches."""
        return f"{'full' if self.full_batch else 'mini'}-batch gradient, clipped + noise"

    @property
    def full_batch(self) -> bool:
        """Whether rows are not sampled."""
        return self.sampling_rate == 1

    def describe_steps(self) -> str:
        """Return 1."""
        return "1"

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> PrivatePlan:
        """Plan rounds that are long enough for nearly all devices; see `patient_deadline`."""
        if arrivals is None:
            samples = setting.federation.samples
            sizes = np.where(samples > 0, np.maximum(np.rint(self.sampling_rate * samples), 1), 0).astype(np.int64)
            timing = setting.timing(1)
            timing = replace(timing, deadline_s=patient_deadline(timing, sizes))
            arrivals = in_cohorts(FixedBatchArrivals(timing, sizes, setting.streams), setting.cohort)
        return PrivatePlan(
            setting.federation,
            setting.streams,
            1,
            arrivals,
            loss=setting.loss,
            sampling_rate=self.sampling_rate,
            asked=setting.cohort or setting.federation.devices,
        )

    def task(self, plan: DevicePlan, round: int, step_size: float) -> Task:  # noqa: ARG002 (the server takes the step)
        """Return the clip norm, the noise of the round and the geometry for both."""
        private = cast(PrivatePlan, plan)
        values = {"clip_norm": float(private.clip_norm), "noise_multiplier": float(private.noise_multipliers[round])}
        return Task(private.geometry.arrays(private.federation.dimension), values, sampled=False)

    def agreed(self, local_steps: int) -> Mapping[str, int | str]:  # noqa: ARG002 (one gradient)
        """Return nothing: how much noise there is, the server says, and what it may add up to, the device decides."""
        return {}

    def fixed_batch(self, samples: int) -> int:
        """Return all rows."""
        return samples


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
    """

    sampling_rate: float = 1.0
    asked: int = 1
    clip_norm: float = 1.0
    noise_multipliers: FloatArray = field(default_factory=lambda: np.zeros(0))
    shares: int = 1
    geometry: Geometry = field(default_factory=Geometry)

    def protected(
        self,
        target: PrivacyTarget,
        clip_norm: float,
        noise_multipliers: FloatArray,
        geometry: Geometry | None = None,
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
        )
        return Steps(features, labels, batches, 1.0 / self.sampling_rate, starts, self.loss, private)
