"""One round of several runs at once: shared batches are sampled and gathered once.

Runs that differ in noise, coded data, step size or server work have the same batches on the devices. Runs on the same
coded data have the same batches at the server. Their models take such steps side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TypeVar

import numpy as np

from codedfl.fleet import Attendance
from codedfl.training._aggregation import DeviceUpdate, Round
from codedfl.training._gradients import accumulate_gradients
from codedfl.training._run import Run
from codedfl.training._steps import Start, Steps
from codedfl.typing import FloatArray

Result = TypeVar("Result")
Group = list[Run]
"""Runs that share their steps."""

HELD_BYTES = 2**29
"""Device updates held in memory at the same time; a group of runs that would need more is split."""


def advance(number: int, runs: Sequence[Run], finish: Callable[[Run, Round], Result]) -> list[Result]:
    """Compute one round of several runs.

    The server and the devices whose updates arrive take their steps in parallel; each run then receives its own `Round`, with
    the updates in the order of the devices. Updates that do not arrive are charged but not computed. A run that shares
    steps has the same outcome as alone, up to rounding: numpy may add the terms of a wider product in another order.

    Args:
        number: ``k``.
        runs: all at the start of that round; the work is spread over the workers of the first.
        finish: called with each run and its round, possibly in a worker's thread.

    Returns:
        The result of ``finish`` for each run.
    """
    workers = runs[0].prepared.setting.workers
    server_groups = _alike([run for run in runs if run.prepared.server], lambda run: run.server_identity)
    device_groups = [
        part for group in _alike(runs, lambda run: run.device_identity) for part in _attending(group, number)
    ]
    gradients = accumulate_gradients(
        chain(
            (_server_steps(group, number) for group in server_groups),
            *(_device_steps(group, attendance, number) for group, attendance in device_groups),
        ),
        workers,
    )
    server_updates: dict[Run, FloatArray] = {}
    for group in server_groups:
        server_updates.update(zip(group, next(gradients), strict=True))
    results: dict[Run, Result] = {}
    for group, attendance in device_groups:
        updates = _weighted(_of_devices(attendance, gradients), attendance.weight)
        # A single run reads the updates while they are computed; several need all of them in memory.
        at_hand = updates if len(group) == 1 else list(updates)

        def finished(
            place: int,
            group: Group = group,
            attendance: Attendance = attendance,
            at_hand: Iterable[tuple[int, Sequence[FloatArray]]] = at_hand,
        ) -> Result:
            run = group[place]
            own: Iterator[DeviceUpdate] = ((device, gradients[place]) for device, gradients in at_hand)
            # A diverging run overflows until the loop notices; numpy keeps its warnings per thread.
            with np.errstate(over="ignore", invalid="ignore"):
                return finish(run, _round_of(run, number, attendance, own, server_updates.get(run)))

        places = range(len(group))
        results.update(
            zip(group, map(finished, places) if len(group) == 1 else workers.map(finished, places), strict=True)
        )
        for _ in updates:  # updates that a scheme chose not to read
            pass
    return [results[run] for run in runs]


def _alike(runs: Iterable[Run], key: Callable[[Run], str]) -> list[Group]:
    """Group runs with equal keys."""
    groups: dict[str, Group] = {}
    for run in runs:
        groups.setdefault(key(run), []).append(run)
    return list(groups.values())


def _attending(group: Group, number: int) -> list[tuple[Group, Attendance]]:
    """Return the attendance of a group, split if its updates would take too much memory."""
    attendance = group[0].prepared.device.arrivals.attend(number)
    held_per_run = max(int(attendance.arrived.sum()), 1) * group[0].model.nbytes
    size = max(HELD_BYTES // held_per_run, 1)
    return [(group[start : start + size], attendance) for start in range(0, len(group), size)]


def _server_steps(group: Group, number: int) -> Steps:
    plans = [run.prepared.server for run in group]
    starts = [Start(run.model, run.step_size, plan.make_up) for run, plan in zip(group, plans, strict=True) if plan]
    assert plans[0] is not None
    return plans[0].steps(number, starts)


def _device_steps(group: Group, attendance: Attendance, number: int) -> Iterator[Steps]:
    plan = group[0].prepared.device
    starts = [Start(run.model, run.step_size) for run in group]
    for device, batch_size in attendance.arrivals():
        yield plan.steps(device, number, batch_size, starts)


def _of_devices(
    attendance: Attendance, gradients: Iterator[Sequence[FloatArray]]
) -> Iterator[tuple[int, Sequence[FloatArray]]]:
    """Pair every device that arrived with its gradients, one per run, without consuming gradients of the next group."""
    for device, _ in attendance.arrivals():
        yield device, next(gradients)


def _weighted(
    updates: Iterable[tuple[int, Sequence[FloatArray]]], weight: float
) -> Iterator[tuple[int, Sequence[FloatArray]]]:
    """Scale updates in place by the weight of a device that stands for others."""
    for device, gradients in updates:
        if weight != 1.0:
            for gradient in gradients:
                gradient *= gradient.dtype.type(weight)
        yield device, gradients


def _round_of(
    run: Run, number: int, attendance: Attendance, updates: Iterator[DeviceUpdate], server_update: FloatArray | None
) -> Round:
    prepared = run.prepared
    estimate = attendance.probability
    return Round(
        number=number,
        step_size=run.step_size,
        attendance=attendance,
        arrival_probability=prepared.device.arrivals.probability if estimate is None else estimate,
        covered=prepared.setting.code.uploading,
        updates=updates,
        server_update=server_update,
    )
