"""The work of a device in a round: the first of the choices that make up a scheme."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows
from codedfl.data import Federation
from codedfl.fleet import AdaptiveBatchArrivals, Arrivals, Attendance, FixedBatchArrivals
from codedfl.streams import Streams
from codedfl.training._sampling import sample_batches
from codedfl.training._setting import Setting, asking
from codedfl.training._steps import Start, Steps
from codedfl.typing import FloatArray


class DevicePlan(Protocol):
    """The work of the devices, fixed before training.

    A plan is a frozen dataclass with all that its steps depend on as fields. Runs whose plans have the same
    `codedfl.identity.identity` share their steps in lock-step.
    """

    @property
    def arrivals(self) -> Arrivals:
        """Which devices meet the deadline in each round."""

    @property
    def local_steps(self) -> int:
        """``tau``, gradient steps per round."""

    @property
    def broadcasts(self) -> bool:
        """Whether every device downloads the model in every round."""

    @property
    def coded_for_all(self) -> bool:
        """Whether the (only) coded batch stands for every sample, with weight 1."""

    def coded_rows(self, coded_samples: int) -> tuple[int, ...]:
        """Return the number of rows of each coded batch, given ``c``."""

    def uncovered(self, device: int, batch: int) -> Rows:
        """Return the samples that a coded batch stands for, weighted by the share that the device itself fails to contribute."""

    def steps(self, device: int, round: int, batch_size: int, starts: Sequence[Start]) -> Steps:
        """Return the gradient steps of a device in one round."""

    def mean_steps(self, device: int, starts: Sequence[Start]) -> Steps | None:
        """Return the expected steps of a device, without labels; None if rounds differ in more than their batches."""


class DeviceWork(Protocol):
    """A rule for the work of the devices."""

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan the work of the devices; ``arrivals`` replaces the channel model of the setting."""


@dataclass(frozen=True)
class LocalSGD:
    """``tau`` steps of SGD on Bernoulli batches (Sec. III-B).

    Args:
        batch: ``adaptive`` for the largest batch ``b_k^i`` that meets the deadline in the round's channel, or a fixed size.
        steps: local steps in a round; None for the ``tau`` of the setting. Fewer steps leave time for larger batches.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> setting = build_experiment(load_config()).setting
        >>> LocalSGD().plan(setting).local_steps, LocalSGD(steps=1).plan(setting).local_steps
        (5, 1)
    """

    batch: int | Literal["adaptive"] = "adaptive"
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.batch != "adaptive":
            require_at_least("batch", self.batch, 1)
        if self.steps is not None:
            require_at_least("steps", self.steps, 1)

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan local SGD with its batch rule and arrivals."""
        steps = self.steps or setting.local_steps
        return LocalSGDPlan(setting.federation, setting.streams, steps, arrivals or self._on_channel(setting))

    def _on_channel(self, setting: Setting) -> Arrivals:
        timing, samples = setting.timing(self.steps), setting.federation.samples
        if self.batch == "adaptive":
            return asking(AdaptiveBatchArrivals(timing, samples, setting.streams), setting.cohort)
        sizes = np.minimum(self.batch, samples)
        return asking(FixedBatchArrivals(timing, sizes, setting.streams), setting.cohort)


@dataclass(frozen=True)
class LocalSGDPlan:
    """Local SGD in a setting; the coded data stands for every sample."""

    federation: Federation
    streams: Streams
    local_steps: int
    arrivals: Arrivals
    broadcasts: bool = True
    coded_for_all: bool = True

    def coded_rows(self, coded_samples: int) -> tuple[int, ...]:
        """Return one batch of ``c`` rows."""
        return (coded_samples,)

    def uncovered(self, device: int, batch: int) -> Rows:  # noqa: ARG002 (there is one coded batch)
        """Return all samples of the device."""
        return Rows(*self.federation.device(device))

    def steps(self, device: int, round: int, batch_size: int, starts: Sequence[Start]) -> Steps:
        """Return ``tau`` steps on Bernoulli batches, scaled by ``l_i / b``."""
        features, labels = self.federation.device(device)
        batch_size = min(batch_size, len(features))  # a trace may come from a run in which the device had more rows
        batches = sample_batches(
            self.streams, "batch", len(features), batch_size, self.local_steps, device=device, round=round
        )
        return Steps(features, labels, batches, len(features) / batch_size, starts)

    def mean_steps(self, device: int, starts: Sequence[Start]) -> Steps:
        """Return ``tau`` steps on all rows."""
        features, _ = self.federation.device(device)
        no_labels = np.zeros((len(features), starts[0].model.shape[1]), features.dtype)
        return Steps(features, no_labels, [None] * self.local_steps, 1.0, starts)


@dataclass(frozen=True)
class Idle:
    """Devices upload their coded data and do nothing more (DP-CFL)."""

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan rounds without devices; only the clock of ``arrivals`` is used."""
        duration_s = arrivals.duration_s if arrivals else setting.deadline_s
        nobody = _Nobody(setting.federation.devices, duration_s)
        return LocalSGDPlan(setting.federation, setting.streams, setting.local_steps, nobody, broadcasts=False)


@dataclass(frozen=True)
class _Nobody:
    devices: int
    duration_s: float

    @property
    def probability(self) -> FloatArray:
        return np.zeros(self.devices)

    def attend(self, round: int) -> Attendance:  # noqa: ARG002 (every round is the same)
        return Attendance(np.zeros(self.devices, np.int64), np.zeros(self.devices, np.bool_), np.zeros(self.devices))
