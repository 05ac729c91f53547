"""One round of several runs at once: who attends and which rows are sampled is settled once for all that share it.

Runs that differ in noise, coded data, step size or what the server does have the same batches on the devices, and those on the
same coded data have the same batches at the server. `codedfl.training._work` takes such steps with all of their models.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from codedfl.fleet import Attendance
from codedfl.parallel import Workers
from codedfl.training._aggregation import DeviceUpdate
from codedfl.training._scheme import PreparedScheme
from codedfl.training._work import Models, Party, take_steps
from codedfl.typing import FloatArray

DeviceUpdates = tuple[int, list[FloatArray]]
"""The number of a device and what it sends in each run."""

HELD_BYTES = 2**29
"""Device updates that are held in memory at the same time; a group of runs that would need more is cut."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands before a round.

    Args:
        prepared: the scheme in its setting.
        model: ``W_k``.
        step_size: ``eta_k``.
    """

    prepared: PreparedScheme
    model: FloatArray
    step_size: float


@dataclass(frozen=True)
class Move:
    """What a round brings to a run.

    Args:
        attendance: who took part.
        update: ``g(W_k)``.
    """

    attendance: Attendance
    update: FloatArray


def advance(round: int, runs: Sequence[Standing]) -> list[Move]:
    """Compute one round of several runs.

    The devices whose updates arrive and the server take their steps, in parallel, and the aggregation of each run combines what
    is its own in the order of the devices. Updates that do not arrive are charged but need no computing. For a run that shares
    work the outcome is that of the run alone up to rounding, since products of wider matrices may add up the same terms in
    another order.

    Args:
        round: ``k``.
        runs: where they stand; the work is spread over the workers of the first.

    Returns:
        For each run who attended, and the global update.
    """
    workers = runs[0].prepared.setting.workers
    serving = [place for place, run in enumerate(runs) if run.prepared.server]
    server_groups = [_Group(places, runs) for places in _alike(serving, lambda place: _server_key(runs[place]))]
    device_groups = [
        part
        for places in _alike(range(len(runs)), lambda place: runs[place].prepared.device.work_key)
        for part in _attending(places, runs, round)
    ]
    arrivals = [attendance.arrivals() for _, attendance in device_groups]
    parties = chain(
        (group.server_party(round) for group in server_groups),
        *(group.device_parties(round, own) for (group, _), own in zip(device_groups, arrivals, strict=True)),
    )
    updates = take_steps(parties, workers)
    server_updates: dict[int, FloatArray] = {}
    for group in server_groups:
        server_updates.update(zip(group.places, next(updates), strict=True))
    moves: dict[int, Move] = {}
    for (group, attendance), own in zip(device_groups, arrivals, strict=True):
        devices = (device for device, _ in own)  # first in the zip, which therefore takes no update of the next group
        device_updates = _weighted(zip(devices, updates, strict=False), attendance.weight)
        combined = group.combined(device_updates, [server_updates.get(place) for place in group.places], workers)
        moves.update((place, Move(attendance, update)) for place, update in zip(group.places, combined, strict=True))
        for _ in device_updates:  # those that an aggregation chose to ignore
            pass
    return [moves[place] for place in range(len(runs))]


def _alike(places: Iterable[int], key: Callable[[int], Hashable]) -> list[list[int]]:
    """Put the places of runs with equal keys together."""
    groups: dict[Hashable, list[int]] = {}
    for place in places:
        groups.setdefault(key(place), []).append(place)
    return list(groups.values())


def _weighted(device_updates: Iterable[DeviceUpdates], weight: float) -> Iterator[DeviceUpdates]:
    """Multiply updates by what they count for, in place."""
    for device, updates in device_updates:
        if weight != 1.0:
            for update in updates:
                update *= update.dtype.type(weight)
        yield device, updates


def _server_key(run: Standing) -> Hashable:
    return run.prepared.server.work_key if run.prepared.server else None


def _attending(places: list[int], runs: Sequence[Standing], round: int) -> list[tuple[_Group, Attendance]]:
    """Ask who attends, and cut a group if the updates of all those devices for all its runs would be too much to hold."""
    first = runs[places[0]]
    attendance = first.prepared.device.arrivals.attend(round)
    held_for_one = max(int(attendance.arrived.sum()), 1) * first.model.nbytes
    size = max(HELD_BYTES // held_for_one, 1)
    return [(_Group(places[start : start + size], runs), attendance) for start in range(0, len(places), size)]


class _Group:
    """Runs that share work.

    Args:
        places: which of all runs they are.
        everyone: all runs.
    """

    def __init__(self, places: list[int], everyone: Sequence[Standing]) -> None:
        self.places, self.runs = places, [everyone[place] for place in places]
        self.first = self.runs[0].prepared

    def _models(self, make_ups: Sequence[float]) -> Models:
        return Models([run.model for run in self.runs], [run.step_size for run in self.runs], make_ups)

    def server_party(self, round: int) -> Party:
        plans = [run.prepared.server for run in self.runs if run.prepared.server]
        return plans[0].work(round), self._models([plan.make_up for plan in plans])

    def device_parties(self, round: int, arrivals: Iterable[tuple[int, int]]) -> Iterator[Party]:
        """Yield what the devices of these numbers and batch sizes have to do."""
        models = self._models([0.0] * len(self.runs))
        for device, batch_size in arrivals:
            yield self.first.device.work(device, round, batch_size), models

    def combined(
        self,
        device_updates: Iterable[DeviceUpdates],
        server_updates: Sequence[FloatArray | None],
        workers: Workers,
    ) -> Iterator[FloatArray]:
        """Let each run combine what is its own: one run takes the updates as they come, several need them all at hand."""
        if len(self.runs) > 1:
            device_updates = list(device_updates)

        def combine(r: int) -> FloatArray:
            own = ((device, updates[r]) for device, updates in device_updates)
            with np.errstate(over="ignore", invalid="ignore"):  # a diverging run overflows until the loop notices
                return _combined(self.runs[r], own, server_updates[r])

        return workers.map(combine, range(len(self.runs))) if len(self.runs) > 1 else iter([combine(0)])


def _combined(run: Standing, device_updates: Iterable[DeviceUpdate], server_update: FloatArray | None) -> FloatArray:
    return run.prepared.scheme.aggregation.combine(
        device_updates,
        server_update,
        run.prepared.device.arrivals.probability,
        run.prepared.setting.code.uploading,
        run.model,
    )
