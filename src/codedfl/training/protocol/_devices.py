"""The work of a device in a round: the first of the choices that make up a scheme."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import ClassVar, Literal, Protocol

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows
from codedfl.data import Federation
from codedfl.fleet import (
    AdaptiveBatchArrivals,
    Arrivals,
    Attendance,
    FixedBatchArrivals,
    fastest_deadline,
    in_cohorts,
)
from codedfl.losses import SQUARE, Loss
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training.engine._sampling import sample_batches
from codedfl.training.engine._steps import Start, Steps
from codedfl.typing import FloatArray, IntArray


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

    def precision(self, round: int) -> float:
        """Return ``1 / z^2`` of an update in a round, ``z`` being its noise multiplier; 0 for an update in the clear."""

    @property
    def sampling_rate(self) -> float:
        """``q``, the probability with which a row is in the Poisson sample behind an update with noise; 1 for all rows."""

    @property
    def shares(self) -> int:
        """Number of devices whose noise in a sum is as much as one update needs; a sum of fewer is not opened."""


@dataclass(frozen=True)
class Task:
    """What a server tells every device in a round, besides what its scheme sends.

    Args:
        arrays: by name.
        values: numbers and words by name.
        sampled: whether each device is told how many rows to take, and how far to move on.
    """

    arrays: Mapping[str, FloatArray]
    values: Mapping[str, int | float | str]
    sampled: bool = True


class DeviceWork(ABC):
    """A rule for the work of the devices."""

    over_network: ClassVar[bool] = False
    """Whether real devices can do it."""

    idle: ClassVar[bool] = False
    """Whether devices do nothing in rounds, so that what they upload is all that they send."""

    @property
    def full_batch(self) -> bool:
        """Whether every gradient is on all rows that a device has to process."""
        return False

    @abstractmethod
    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan the work of the devices; ``arrivals`` replaces the channel model of the setting."""

    def describe(self) -> str:
        """Return what a device does in a round, in the words of a table: by default the name of the rule."""
        return type(self).__name__

    def describe_steps(self) -> str:
        """Return how many steps it takes in a round: a number, or ``tau`` for that of the setting."""
        return "tau"

    def task(self, plan: DevicePlan, round: int, step_size: float) -> Task | None:  # noqa: ARG002 (for subclasses)
        """Return what a real device is told to do in a round; None if devices do nothing."""
        return None

    def agreed(self, local_steps: int) -> Mapping[str, int | str] | None:  # noqa: ARG002
        """Return what both sides of a federation know of a task, given ``tau`` of the setting; None if devices do nothing."""
        return None

    def fixed_batch(self, samples: int) -> int | None:  # noqa: ARG002
        """Return the rows that a device with ``l_i`` rows computes on whatever its pace; None if they depend on it."""
        return None


@dataclass(frozen=True)
class LocalSGD(DeviceWork):
    """``tau`` steps of SGD on Bernoulli batches (Sec. III-B).

    Args:
        batch: ``adaptive`` for the largest batch ``b_k^i`` that meets the deadline in the round's channel (the usual batch of a
            measured fleet), or a fixed size.
        steps: local steps in a round; None for the ``tau`` of the setting. Fewer steps leave time for larger batches.
        sampling: ``bernoulli`` draws the rows of a batch independently; ``walk`` goes through a random order of its rows,
            so that successive rounds have few rows in common.
        deadline: ``fixed`` to use the round's ``T``, ``auto`` for `codedfl.fleet.fastest_deadline`.

    Example:
        >>> from codedfl.experiment import build_experiment, load_config
        >>> setting = build_experiment(load_config()).setting
        >>> LocalSGD().plan(setting).local_steps, LocalSGD(steps=1).plan(setting).local_steps
        (5, 1)
    """

    batch: int | Literal["adaptive"] = "adaptive"
    steps: int | None = None
    sampling: Literal["bernoulli", "walk"] = "bernoulli"
    deadline: Literal["fixed", "auto"] = "fixed"

    over_network: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.batch != "adaptive":
            require_at_least("batch", self.batch, 1)
        if self.steps is not None:
            require_at_least("steps", self.steps, 1)

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan local SGD with its batch rule and arrivals."""
        steps = self.steps or setting.local_steps
        arrivals = arrivals or self._on_channel(setting)
        if self.sampling == "walk":
            strides = walking_strides(arrivals)
            return WalkPlan(setting.federation, setting.streams, steps, arrivals, loss=setting.loss, strides=strides)
        return LocalSGDPlan(setting.federation, setting.streams, steps, arrivals, loss=setting.loss)

    def task(self, plan: DevicePlan, round: int, step_size: float) -> Task:  # noqa: ARG002 (every round is the same)
        """Return the number of steps, their size, and how rows are sampled."""
        values = {"local_steps": plan.local_steps, "step_size": float(step_size), "sampling": self.sampling}
        return Task({}, values)

    def agreed(self, local_steps: int) -> Mapping[str, int | str]:
        """Return the number of steps, and how rows are sampled."""
        return {"local_steps": self.steps or local_steps, "sampling": self.sampling}

    def fixed_batch(self, samples: int) -> int | None:
        """Return the batch, at most all rows; None if it is adaptive."""
        return None if self.batch == "adaptive" else min(self.batch, samples)

    def describe(self) -> str:
        """Return the size of the batches, and what is adapted to the channel."""
        if self.batch != "adaptive":
            return f"mini-batch SGD, batch {self.batch}"
        if self.steps != 1:
            return "mini-batch SGD, adaptive batch"
        if self.deadline == "auto":
            return "one gradient, adaptive batch and deadline"
        return "mini-batch gradient, adaptive batch"

    def describe_steps(self) -> str:
        """Return the number of local steps."""
        return "tau" if self.steps is None else str(self.steps)

    def _on_channel(self, setting: Setting) -> Arrivals:
        timing, samples = setting.timing(self.steps), setting.federation.samples
        if self.deadline == "auto":
            timing = replace(timing, deadline_s=fastest_deadline(timing, samples))
        if self.batch != "adaptive":
            sizes = np.minimum(self.batch, samples)
        elif not timing.radio:  # there is no channel to adapt to
            sizes = timing.fleet.usual_batch(samples)
        else:
            return in_cohorts(AdaptiveBatchArrivals(timing, samples, setting.streams), setting.cohort)
        return in_cohorts(FixedBatchArrivals(timing, sizes, setting.streams), setting.cohort)


@dataclass(frozen=True)
class LocalSGDPlan:
    """Local SGD in a setting; the coded data stands for every sample."""

    federation: Federation
    streams: Streams
    local_steps: int
    arrivals: Arrivals
    broadcasts: bool = True
    coded_for_all: bool = True
    loss: Loss = SQUARE

    def coded_rows(self, coded_samples: int) -> tuple[int, ...]:
        """Return one batch of ``c`` rows."""
        return (coded_samples,)

    def uncovered(self, device: int, batch: int) -> Rows:  # noqa: ARG002 (there is one coded batch)
        """Return all samples of the device."""
        return Rows(*self.federation.device(device))

    def steps(self, device: int, round: int, batch_size: int, starts: Sequence[Start]) -> Steps:
        """Return ``tau`` steps on Bernoulli batches, scaled by ``l_i / b``."""
        return bernoulli_steps(
            Rows(*self.federation.device(device)),
            self.streams,
            batch_size,
            self.local_steps,
            starts,
            device=device,
            round=round,
            loss=self.loss,
        )

    def mean_steps(self, device: int, starts: Sequence[Start]) -> Steps:
        """Return ``tau`` steps on all rows."""
        features, _ = self.federation.device(device)
        no_labels = np.zeros((len(features), starts[0].model.shape[1]), features.dtype)
        return Steps(features, no_labels, [None] * self.local_steps, 1.0, starts)

    def precision(self, round: int) -> float:  # noqa: ARG002 (every round is the same)
        """Return 0: updates are sent in the clear."""
        return 0.0

    @property
    def sampling_rate(self) -> float:
        """1: there is no noise that sampling would amplify."""
        return 1.0

    @property
    def shares(self) -> int:
        """1: there is no noise to share."""
        return 1


@dataclass(frozen=True)
class WalkPlan(LocalSGDPlan):
    """Local SGD that goes through a random order of each device's rows.

    The order and the first row are random, so every row is in a batch with probability ``b / l``, and gradients are unbiased.
    Where a device is in its walk depends on the round alone: nothing needs to be remembered, and a resumed run walks on.

    Args:
        strides: rows that each device moves on by in a round, (N,).
    """

    strides: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))

    def steps(self, device: int, round: int, batch_size: int, starts: Sequence[Start]) -> Steps:
        """Return ``tau`` steps on successive parts of the walk, scaled by ``l_i / b``."""
        return walking_steps(
            Rows(*self.federation.device(device)),
            self.streams,
            batch_size,
            self.local_steps,
            starts,
            device=device,
            round=round,
            stride=int(self.strides[device]),
            loss=self.loss,
        )


def bernoulli_steps(
    rows: Rows,
    streams: Streams,
    batch_size: int,
    local_steps: int,
    starts: Sequence[Start],
    *,
    device: int,
    round: int,
    loss: Loss = SQUARE,
) -> Steps:
    """Return ``tau`` steps of one device on Bernoulli batches of its rows, scaled by ``l_i / b``, (3) in the paper.

    The simulator and a real device both call it.

    Args:
        rows: the samples of the device.
        streams: the source of the batches: purpose ``batch``, by device and round.
        batch_size: ``b``, at most all rows.
        local_steps: ``tau``.
        starts: the models to start from.
        device: index of the device.
        round: ``k``.
        loss: what is minimised.
    """
    samples = len(rows.features)
    batch_size = min(batch_size, samples)  # a trace may come from a run in which the device had more rows
    batches = sample_batches(streams, "batch", samples, batch_size, local_steps, device=device, round=round)
    return Steps(rows.features, rows.labels, batches, samples / batch_size, starts, loss)


def walking_steps(
    rows: Rows,
    streams: Streams,
    batch_size: int,
    local_steps: int,
    starts: Sequence[Start],
    *,
    device: int,
    round: int,
    stride: int,
    loss: Loss = SQUARE,
) -> Steps:
    """Return ``tau`` steps of one device on successive parts of its walk, scaled by ``l_i / b``.

    The arguments are those of `bernoulli_steps`, and ``stride``, the rows that the device moves on by in a round.
    """
    samples = len(rows.features)
    batch_size = min(batch_size, samples)
    if batch_size == samples:
        return Steps(rows.features, rows.labels, [None] * local_steps, 1.0, starts, loss)
    order, first = walking_order(streams, device, samples)
    begin = (first + round * local_steps * stride) % samples  # of any size in a request from a network
    batches = [order[(begin + step * batch_size + np.arange(batch_size)) % samples] for step in range(local_steps)]
    return Steps(rows.features, rows.labels, batches, samples / batch_size, starts, loss)


@lru_cache(maxsize=1024)
def walking_order(streams: Streams, device: int, samples: int) -> tuple[IntArray, int]:
    """Return the order in which a device goes through its rows, and where it starts."""
    rng = streams.at("walk", device=device)
    return rng.permutation(samples), int(rng.integers(samples))


def walking_strides(arrivals: Arrivals, rounds: int = 32) -> IntArray:
    """Return the mean batch of each device over its first rounds, 1 or more: as far as it gets in a round, (N,)."""
    total, arrived = np.zeros((2, len(arrivals.probability)))
    for round in range(min(rounds, getattr(arrivals, "rounds", rounds))):  # a trace may be shorter
        attendance = arrivals.attend(round)
        for device, batch in attendance.arrivals():
            total[device] += batch
            arrived[device] += 1
    return np.maximum(np.rint(total / np.maximum(arrived, 1)), 1).astype(np.int64)


@dataclass(frozen=True)
class Idle(DeviceWork):
    """Devices upload their coded data and do nothing more (DP-CFL)."""

    over_network: ClassVar[bool] = True
    idle: ClassVar[bool] = True

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Plan rounds without devices; only the clock of ``arrivals`` is used."""
        duration_s = arrivals.duration_s if arrivals else setting.deadline_s
        nobody = _Nobody(setting.federation.devices, duration_s)
        return LocalSGDPlan(setting.federation, setting.streams, setting.local_steps, nobody, broadcasts=False)

    def describe(self) -> str:
        """Return that devices do nothing."""
        return "nothing"

    def describe_steps(self) -> str:
        """Return ``tau``, the steps of the server."""
        return "tau"


@dataclass(frozen=True)
class _Nobody:
    devices: int
    duration_s: float

    @property
    def probability(self) -> FloatArray:
        return np.zeros(self.devices)

    def attend(self, round: int) -> Attendance:  # noqa: ARG002 (every round is the same)
        return Attendance(np.zeros(self.devices, np.int64), np.zeros(self.devices, np.bool_), np.zeros(self.devices))
