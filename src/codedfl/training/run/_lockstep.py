"""One round of several runs at once: shared batches are sampled and gathered once.

Runs that differ in noise, coded data, step size or server work have the same batches on the devices. Runs on the same
coded data have the same batches at the server. Their models take such steps side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeVar

import numpy as np

from codedfl.fleet import Attendance
from codedfl.training.engine._gradients import accumulate_gradients
from codedfl.training.engine._steps import Start, Steps
from codedfl.training.protocol._aggregation import Payload, Round
from codedfl.training.protocol._interface import device_update, sent_to_devices
from codedfl.training.protocol._local import Local
from codedfl.training.run._run import Run
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
    own = [run for run in runs if run.prepared.scheme.has_own_update]
    shared = [run for run in runs if not run.prepared.scheme.has_own_update]
    workers = runs[0].prepared.setting.workers
    server_groups = _alike([run for run in runs if run.prepared.server], lambda run: run.server_identity)
    device_groups = [
        part for group in _alike(shared, lambda run: run.device_identity) for part in _attending(group, number)
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
        messages = _messages(attendance, gradients)
        # A single run reads the messages while they are computed; several need all of them in memory.
        at_hand = messages if len(group) == 1 else list(messages)

        def finished(
            place: int,
            group: Group = group,
            attendance: Attendance = attendance,
            at_hand: Iterable[tuple[int, Sequence[Payload]]] = at_hand,
        ) -> Result:
            run = group[place]
            payloads = ((device, of_runs[place]) for device, of_runs in at_hand)
            # A diverging run overflows until the loop notices; numpy keeps its warnings per thread.
            with np.errstate(over="ignore", invalid="ignore"):
                return finish(run, _round_of(run, number, attendance, payloads, server_updates.get(run)))

        places = range(len(group))
        results.update(
            zip(group, map(finished, places) if len(group) == 1 else workers.map(finished, places), strict=True)
        )
        for _ in messages:  # those that a scheme chose not to read
            pass
    for run in own:
        attendance = run.prepared.device.arrivals.attend(number)
        payloads = _own_payloads(run, attendance, number)
        with np.errstate(over="ignore", invalid="ignore"):
            results[run] = finish(run, _round_of(run, number, attendance, payloads, server_updates.get(run)))
        for _ in payloads:
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


def _messages(
    attendance: Attendance, gradients: Iterator[Sequence[FloatArray]]
) -> Iterator[tuple[int, Sequence[Payload]]]:
    """Yield what each device that arrived sends in every run; of a cohort, its update counts for those that were not asked."""
    for device, _ in attendance.arrivals():
        updates = next(gradients)
        if attendance.weight != 1.0:
            for update in updates:
                update *= update.dtype.type(attendance.weight)
        yield device, [{"update": update} for update in updates]


def _own_payloads(run: Run, attendance: Attendance, number: int) -> Iterator[tuple[int, Payload]]:
    """Let every device that arrives run its own half of the scheme, and yield what it sends."""
    scheme, plan, progress = run.prepared.scheme, run.prepared.device, run.progress
    setting, sent, rate = run.prepared.setting, sent_to_devices(scheme, progress.state), run.step_size
    samples, memories, shape = setting.federation.samples, progress.devices, run.prepared.model_shape

    def update(arrived: tuple[int, int]) -> tuple[int, Any, Payload]:
        device, batch = arrived
        local = Local(lambda starts: plan.steps(device, number, batch, starts), plan.local_steps, rate, samples[device])
        with np.errstate(over="ignore", invalid="ignore"):
            memory, payload = device_update(scheme, memories[device] if memories else None, sent, local, shape)
        return device, memory, payload

    after = dict(enumerate(memories))
    for device, memory, payload in setting.workers.map(update, attendance.arrivals()):
        after[device] = memory
        weighted = payload["update"] * payload["update"].dtype.type(attendance.weight)
        yield device, {**payload, "update": weighted}
    if memories:
        progress.devices = tuple(after.values())


def _round_of(
    run: Run,
    number: int,
    attendance: Attendance,
    payloads: Iterator[tuple[int, Payload]],
    server_update: FloatArray | None,
) -> Round:
    prepared = run.prepared
    estimate = attendance.probability
    return Round(
        number=number,
        step_size=run.step_size,
        attendance=attendance,
        arrival_probability=prepared.device.arrivals.probability if estimate is None else estimate,
        covered=prepared.covered,
        payloads=payloads,
        server_update=server_update,
    )
