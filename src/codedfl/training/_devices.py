"""What a device computes in a round: the first of the choices that make a scheme."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows
from codedfl.fleet import AdaptiveBatchArrivals, Arrivals, Attendance, FixedBatchArrivals
from codedfl.training._sampling import sample_batches
from codedfl.training._setting import Setting
from codedfl.training._work import Work
from codedfl.typing import FloatArray


class DevicePlan(Protocol):
    """What the devices will do, settled before training."""

    @property
    def arrivals(self) -> Arrivals:
        """Who makes the deadline in which round."""

    @property
    def local_steps(self) -> int:
        """``tau``, gradient steps in a round."""

    @property
    def broadcasts(self) -> bool:
        """Whether every device downloads the model in every round."""

    @property
    def coded_rows(self) -> tuple[int, ...]:
        """How many rows each coded batch has, if this scheme uploads any."""

    @property
    def coded_for_all(self) -> bool:
        """Whether the (only) coded batch stands for every sample, with weight 1."""

    @property
    def work_key(self) -> Hashable:
        """Equal for plans whose arrivals and ``work`` are the same in every round, so that it is done once for all of them."""

    def uncovered(self, device: int, batch: int) -> Rows:
        """Return the samples that a coded batch stands for, with a weight for what the device itself contributes."""

    def work(self, device: int, round: int, batch_size: int) -> Work:
        """Return the steps of a device in a round."""

    def update(self, device: int, round: int, batch_size: int, model: FloatArray, step_size: float) -> FloatArray:
        """Return the accumulated gradient that the device sends."""


class DeviceWork(Protocol):
    """A rule by which devices work."""

    def plan(self, setting: Setting) -> DevicePlan:
        """Settle what the devices do in this setting."""


@dataclass(frozen=True)
class LocalSGD:
    """``tau`` steps of SGD on Bernoulli batches (Sec. III-B).

    Args:
        batch: ``adaptive`` for the largest batch ``b_k^i`` that meets the deadline in the round's channel, or a fixed size.
    """

    batch: int | Literal["adaptive"] = "adaptive"

    def __post_init__(self) -> None:
        if self.batch != "adaptive":
            require_at_least("batch", self.batch, 1)

    def plan(self, setting: Setting) -> DevicePlan:
        """Settle the batch rule and the arrival probabilities."""
        timing, samples = setting.timing(), setting.federation.samples
        if self.batch == "adaptive":
            return _LocalSGDPlan(setting, setting.asking(AdaptiveBatchArrivals(timing, samples, setting.streams)))
        sizes = np.minimum(self.batch, samples)
        return _LocalSGDPlan(setting, setting.asking(FixedBatchArrivals(timing, sizes, setting.streams)))


@dataclass(frozen=True)
class _LocalSGDPlan:
    setting: Setting
    arrivals: Arrivals
    broadcasts: bool = True
    coded_for_all: bool = True

    @property
    def local_steps(self) -> int:
        return self.setting.local_steps

    @property
    def coded_rows(self) -> tuple[int, ...]:
        return (self.setting.code.coded_samples,)

    @cached_property
    def work_key(self) -> Hashable:
        setting = self.setting
        return type(self), setting.federation, setting.streams, self.local_steps, _arrivals_key(self.arrivals)

    def uncovered(self, device: int, batch: int) -> Rows:  # noqa: ARG002 (there is one coded batch)
        return self.setting.rows(device)

    def work(self, device: int, round: int, batch_size: int) -> Work:
        rows = self.setting.rows(device)
        batches = sample_batches(
            self.setting.streams, "batch", len(rows), batch_size, self.local_steps, device=device, round=round
        )
        return Work(rows.features, rows.labels, batches, scale=len(rows) / batch_size)

    def update(self, device: int, round: int, batch_size: int, model: FloatArray, step_size: float) -> FloatArray:
        return self.work(device, round, batch_size).update(model, step_size)


def _arrivals_key(arrivals: Arrivals) -> Hashable:
    """Return the same for arrivals that are sure to be the same in every round, though they are objects of their own."""
    match arrivals:
        case AdaptiveBatchArrivals():
            return "adaptive", arrivals.timing, arrivals.samples.tobytes(), arrivals.streams
        case FixedBatchArrivals():
            return "fixed", arrivals.timing, arrivals.batch_sizes.tobytes(), arrivals.streams
        case _Nobody():
            return arrivals
        case _:
            return id(arrivals)


@dataclass(frozen=True)
class Idle:
    """Devices upload their coded data and do nothing more (DP-CFL)."""

    def plan(self, setting: Setting) -> DevicePlan:
        """Settle that nobody ever takes part in a round."""
        return _IdlePlan(setting, _Nobody(setting.federation.devices, setting.deadline_s), broadcasts=False)


@dataclass(frozen=True)
class _IdlePlan(_LocalSGDPlan):
    """The coded data stands for every sample, as in local SGD, but no device is ever asked for an update."""


@dataclass(frozen=True)
class _Nobody:
    devices: int
    duration_s: float

    @property
    def probability(self) -> FloatArray:
        return np.zeros(self.devices)

    def attend(self, round: int) -> Attendance:  # noqa: ARG002 (every round is the same)
        return Attendance(np.zeros(self.devices, np.int64), np.zeros(self.devices, np.bool_), np.zeros(self.devices))
