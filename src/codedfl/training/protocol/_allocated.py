"""Gradients over an allocated load: the work of devices in CFL-FB and CodedFedL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Rows
from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.fleet import Arrivals, Attendance, FixedBatchArrivals, allocate, in_cohorts, optimal_loads
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training.engine._steps import Start, Steps
from codedfl.training.protocol._devices import DevicePlan, DeviceWork
from codedfl.typing import FloatArray, IntArray


def mini_batch_of(round: int, mini_batches: int, streams: Streams) -> int:
    """Return the index of a round's mini-batch, the same for all devices and the server."""
    return int(streams.at("mini-batch", round=round).integers(mini_batches))


@dataclass(frozen=True)
class AllocatedGradient(DeviceWork):
    """One full gradient per round over the points that the load allocation gives to the device.

    Every device's data is split once into ``mini_batches`` parts. Of each part the device processes the same ``l_i*``
    points, the number that maximises its expected return before the deadline; the coded data covers the rest. The
    gradient of a mini-batch is scaled by the number of mini-batches, so that it stands for all data.

    Args:
        mini_batches: 1 for CFL-FB (full batch), more for CodedFedL.
        deadline: ``fixed`` to use the round's ``T``; ``free`` for the shortest deadline at which the expected return of
            devices and server together reaches the size of a mini-batch.
    """

    mini_batches: int = 1
    deadline: Literal["fixed", "free"] = "fixed"

    def __post_init__(self) -> None:
        require_at_least("mini_batches", self.mini_batches, 1)

    def describe(self) -> str:
        """Return the size of the batches."""
        return f"{'full' if self.full_batch else 'mini'}-batch gradient, allocated load"

    @property
    def full_batch(self) -> bool:
        """Whether there is a single mini-batch."""
        return self.mini_batches == 1

    def describe_steps(self) -> str:
        """Return 1."""
        return "1"

    def plan(self, setting: Setting, arrivals: Arrivals | None = None) -> DevicePlan:
        """Solve the load allocation and split the data."""
        if not setting.code.uploading.all():
            raise InputError(
                "CFL-FB and CodedFedL need parity data of every device, but some take no part in the upload: leave these"
                " schemes out."
            )
        if not setting.loss.quadratic:
            raise InputError(
                f"load allocation adds up gradients of least squares on devices and on parity data, but the loss is"
                f" {setting.loss.name}: let devices do LocalSGD."
            )
        batches = min(self.mini_batches, setting.code.coded_samples)
        cuts = tuple(
            tuple(np.array_split(setting.streams.at("allocation", device=i).permutation(samples), batches))
            for i, samples in enumerate(setting.federation.samples)
        )
        sizes = np.array([[len(part) for part in parts] for parts in cuts])
        coded = setting.code.coded_samples // batches + (np.arange(batches) < setting.code.coded_samples % batches)
        timing = setting.timing(local_steps=1)
        allocation = allocate(
            timing,
            sizes.max(axis=1),
            server_mac_rate=setting.server_mac_rate,
            coded_samples=int(coded.max()),
            deadline=self.deadline,
        )
        timing = replace(timing, deadline_s=allocation.deadline_s)
        per_batch = tuple(
            FixedBatchArrivals(timing, optimal_loads(timing, sizes[:, j]), setting.streams) for j in range(batches)
        )
        # Rows that the server has no time for are not encoded: they would cost upload and privacy for nothing.
        coded_rows = tuple(int(rows) for rows in np.minimum(coded, max(allocation.server_load, 1)))
        on_channel = _MiniBatchArrivals(per_batch, setting.streams, setting.cohort)
        return _AllocatedPlan(setting.federation, setting.streams, cuts, per_batch, coded_rows, arrivals or on_channel)


@dataclass(frozen=True)
class _MiniBatchArrivals:
    per_batch: tuple[FixedBatchArrivals, ...]
    streams: Streams
    cohort: int | None

    @property
    def duration_s(self) -> float:
        return self.per_batch[0].duration_s

    @cached_property
    def probability(self) -> FloatArray:
        """Arrival probability, averaged over the mini-batches."""
        mean: FloatArray = np.mean([arrivals.probability for arrivals in self.per_batch], axis=0)
        return mean

    def attend(self, round: int) -> Attendance:
        everyone = self.per_batch[mini_batch_of(round, len(self.per_batch), self.streams)]
        return in_cohorts(everyone, self.cohort).attend(round)


@dataclass(frozen=True)
class _AllocatedPlan:
    federation: Federation
    streams: Streams
    cuts: tuple[tuple[IntArray, ...], ...]
    per_batch: tuple[FixedBatchArrivals, ...]
    parity_rows: tuple[int, ...]
    arrivals: Arrivals
    local_steps: int = 1
    broadcasts: bool = True
    coded_for_all: bool = False

    def coded_rows(self, coded_samples: int) -> tuple[int, ...]:  # noqa: ARG002 (the allocation determines it)
        return self.parity_rows

    def uncovered(self, device: int, batch: int) -> Rows:
        """Weight a point by ``sqrt(1 - P(T_i <= t*))`` if the device processes it, else by 1: over ``G``, the sum is unbiased."""
        part, loads = self.cuts[device][batch], self.per_batch[batch]
        weights = np.ones(len(part))
        weights[: loads.batch_sizes[device]] = np.sqrt(1.0 - loads.probability[device])
        return Rows(*self.federation.device(device), weights, chosen=part)

    def mean_steps(self, device: int, starts: Sequence[Start]) -> None:
        """Return None: the mean differs between mini-batches."""

    def precision(self, round: int) -> float:  # noqa: ARG002 (every round is the same)
        """Return 0: gradients are sent in the clear."""
        return 0.0

    @property
    def sampling_rate(self) -> float:
        return 1.0

    @property
    def shares(self) -> int:
        return 1

    def steps(self, device: int, round: int, batch_size: int, starts: Sequence[Start]) -> Steps:
        mini_batches = len(self.parity_rows)
        batch = mini_batch_of(round, mini_batches, self.streams)
        processed = self.cuts[device][batch][:batch_size]
        return Steps(*self.federation.device(device), [processed], mini_batches, starts)
