"""The rounds of a real federation: ask, compute on coded data meanwhile, combine what arrived, write it down."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from codedfl.errors import InputError
from codedfl.federation._arrivals import NetworkArrivals, Pace
from codedfl.federation._checks import ReceivedUpdate, bounded, checked_update, typical_norm
from codedfl.federation._context import ServerPart, Standing
from codedfl.federation._joining import Roster
from codedfl.federation._store import Checkpoint
from codedfl.federation._vault import NEVER
from codedfl.federation.transport import Packet, Reply, Value
from codedfl.parallel import one_blas_thread
from codedfl.training import (
    Evaluator,
    LearningRate,
    PreparedScheme,
    Round,
    Start,
    State,
    accumulate_gradients,
    initial_memory,
    initial_state,
    next_state,
    record_arrays,
    record_from,
    returned_model,
    sent_to_devices,
)
from codedfl.typing import FloatArray
from codedfl.uploads import LARGEST_ENTRY

MOST_ROUNDS_BETWEEN = 4
"""A device whose private updates keep coming late is asked again after so many rounds at the latest."""


@dataclass
class Rounds(ServerPart):
    """Trains a prepared scheme with devices that answer over a network.

    What is computed is `accumulate_gradients` and `Scheme.step`, as in the simulator; who arrives is decided by the clock.

    Args:
        context: the server.
        roster: the devices.
        prepared: the scheme in the server's setting, with what was uploaded.
        learning_rate: ``eta_k``.
        arrivals: the rounds so far.
        pause: seconds between looks for devices when none is reachable.
    """

    roster: Roster
    prepared: PreparedScheme
    learning_rate: LearningRate
    arrivals: NetworkArrivals
    pause: float = 1.0

    def __post_init__(self) -> None:
        start = np.zeros(self.prepared.model_shape, np.float32)
        self.state: State = initial_state(self.prepared, start)
        self.pace = Pace.unknown(len(self.roster.names))
        self.norms: dict[str, float] = {}
        self.curve: list[dict[str, Any]] = []
        self.strides = self.sizes_to_ask()
        shape = self.prepared.model_shape
        self.travels_up = self.prepared.scheme.travels_up(shape)
        remembers = initial_memory(self.prepared.scheme, shape, np.dtype(np.float32)) is not None
        self.counted = [NEVER] * len(self.roster.names) if remembers else []
        self.trained_s = 0.0

    @property
    def total(self) -> int:
        """Number of rounds: that of the federation, unless the scheme has its own."""
        scheme = self.prepared.scheme
        if scheme.one_shot:
            return 0
        return scheme.rounds(self.prepared.setting) or self.config.training.rounds

    @property
    def devices_work(self) -> bool:
        """Whether devices do anything in a round."""
        return self.prepared.device.broadcasts

    @property
    def local_steps(self) -> int:
        """``tau``."""
        return self.prepared.device.local_steps

    def sizes_to_ask(self) -> list[int]:
        """Return the rows to ask of each device now."""
        work, training = self.prepared.scheme.device, self.config.training
        return [
            self.pace.request(i, samples, self.local_steps, training.deadline_s, training.first_batch)
            if (fixed := work.fixed_batch(samples)) is None
            else fixed
            for i, samples in enumerate(self.roster.samples)
        ]

    def run(self) -> None:
        """Train all rounds that are left, with a checkpoint after each."""
        total = self.total
        if not self.curve:
            self.evaluate()
        while self.state.round < total:
            began = time.monotonic()
            arrived = self.train_one()
            self.trained_s += time.monotonic() - began
            if self.state.round % self.config.training.evaluate_every == 0 or self.state.round == total:
                self.evaluate()
            self.save()
            score = self.curve[-1]["score"]
            names = [self.roster.names[i] for i in arrived]
            self.journal.note(
                "round",
                round=self.state.round,
                rounds=total,
                arrived=names,
                seconds=round(time.monotonic() - began, 3),
                score=score,
            )
            self.journal.status(phase="training", round=self.state.round, rounds=total, score=score, arrived=names)

    @one_blas_thread()
    def train_one(self) -> list[int]:
        """Train one round, and return who arrived."""
        k = self.state.round
        step_size = self.learning_rate.at(k)
        asked = self._awaited_requests(step_size)
        packets = {self.roster.names[i]: packet for i, (_, packet) in asked.items()}
        replies = self.hub.ask("train", packets, self.config.training.deadline_s) if packets else iter(())
        server_update = self._server_update(k, step_size)
        received = self._bounded(dict(self._received(replies, {i: rows for i, (rows, _) in asked.items()}, k)), k)
        attendance = self.arrivals.record(
            {i: rows for i, (rows, _) in asked.items()}, {i: update.batch_size for i, update in received.items()}
        )
        assert attendance.probability is not None
        payloads = [(i, received[i].arrays) for i in sorted(received)]
        with np.errstate(over="ignore", invalid="ignore"):
            state, _ = next_state(
                self.prepared.scheme,
                self.state,
                Round(
                    number=k,
                    step_size=step_size,
                    attendance=attendance,
                    arrival_probability=attendance.probability,
                    covered=self.prepared.covered,
                    payloads=payloads,
                    server_update=server_update,
                ),
            )
        self.state = self._projected(state)
        self._require_finite(k)
        for i in received if self.counted else ():
            self.counted[i] = k
        return sorted(received)

    def _awaited_requests(self, step_size: float) -> dict[int, tuple[int, Packet]]:
        """Return the requests of a round; as long as nobody is reachable, wait until the round would be over."""
        everybody_left = all(self.standing.is_excluded(name) for name in self.roster.names)
        attempts = math.ceil(self.config.training.deadline_s / self.pause)
        for _ in range(attempts if self.devices_work and not everybody_left else 0):
            if asked := self._requests(step_size):
                return asked
            self.context.sleep(
                self.pause
            )  # otherwise rounds would pass before devices are back, after a restart of the server
        return self._requests(step_size)

    def _requests(self, step_size: float) -> dict[int, tuple[int, Packet]]:
        """Return what each device that is reachable is asked for: rows, and the message."""
        scheme = self.prepared.scheme
        task = scheme.device.task(self.prepared.device, self.state.round, step_size)
        if task is None:
            return {}
        online, sizes = self.hub.online(), self.sizes_to_ask()
        arrays = {**sent_to_devices(scheme, self.state), **task.arrays}
        values: dict[str, Value] = {
            "federation": self.config.name,
            "prescription": self.roster.prescription,
            "round": self.state.round,
            **task.values,
        }

        def own(i: int) -> dict[str, Value]:
            sampled: dict[str, Value] = {"batch_size": sizes[i], "stride": self.strides[i]} if task.sampled else {}
            return sampled | ({"counted": self.counted[i]} if self.counted else {})

        return {
            i: (sizes[i], Packet(arrays, values | own(i)))
            for i, name in enumerate(self.roster.names)
            if name in online and not self.standing.is_excluded(name) and self._is_due(i)
        }

    def _is_due(self, device: int) -> bool:
        """Return whether to ask a device in this round.

        An update costs privacy also if it comes late and helps nobody. While others are asked for fewer rows after a miss,
        private devices, whose updates are on all rows, are asked in fewer rounds.
        """
        if not self.prepared.scheme.private:
            return True
        every: int = min(2 ** self.arrivals.missed_in_a_row(device), MOST_ROUNDS_BETWEEN)
        return self.state.round % every == 0

    def _server_update(self, k: int, step_size: float) -> FloatArray | None:
        """Return the server's own update on the coded data; None without any."""
        plan = self.prepared.server
        if plan is None:
            return None
        steps = plan.steps(k, [Start(self.state.model, step_size, plan.make_up)])
        ((update,),) = accumulate_gradients([steps], self.prepared.setting.workers)
        return update

    def _received(
        self, replies: Iterator[Reply], asked: dict[int, int], k: int
    ) -> Iterator[tuple[int, ReceivedUpdate]]:
        """Check what arrives, and yield it by device."""
        silent = set(asked)
        for reply in replies:
            i = self.roster.index(reply.device)
            silent.discard(i)
            check = partial(
                checked_update, device=reply.device, round=k, travels=self.travels_up, largest_batch=asked[i]
            )
            update = self.checked(reply, "update", check, round=k)
            if update is None:
                continue
            self.pace = self.pace.answered(i, update.batch_size, self.local_steps, update.compute_s, reply.elapsed_s)
            yield i, update
        for i in silent:
            self.pace = self.pace.missed(i)
            self.standing.late(self.roster.names[i])
            self.journal.note("late", device=self.roster.names[i], round=k)

    def _bounded(self, received: dict[int, ReceivedUpdate], k: int) -> dict[int, ReceivedUpdate]:
        """Apply the norm bound, if there is one, by what the others sent in this round or last."""
        factor = self.config.training.norm_bound
        if factor == 0:
            return received
        per_sample = {i: _norm(got.arrays["update"]) / self.roster.samples[i] for i, got in received.items()}
        known = self.norms | {self.roster.names[i]: norm for i, norm in per_sample.items()}
        for i, got in received.items():
            device, samples = self.roster.names[i], self.roster.samples[i]
            typical = typical_norm(known, excluding=device)
            update, scaled = bounded(got.arrays["update"], None if typical is None else typical * samples, factor)
            if scaled:
                self.journal.note("bounded", device=device, round=k)
            received[i] = replace(got, arrays={**got.arrays, "update": update})
            self.norms[device] = _norm(update) / samples
        return received

    def _projected(self, state: Any) -> Any:
        """Return the state with the model within ``training.model_norm_bound``, if there is one."""
        bound = self.config.training.model_norm_bound
        if bound == 0:
            return state
        norm = max(float(np.linalg.norm(state.model)), 1e-300)
        return replace(state, model=state.model * state.model.dtype.type(min(1.0, bound / norm)))

    def _require_finite(self, k: int) -> None:
        """Refuse to go on with an absurd model, before updates of honest devices are refused for their size.

        The last checkpoint is that of the round before.
        """
        if not (np.abs(self.state.model) <= LARGEST_ENTRY).all():
            raise InputError(
                f"training diverged in round {k} with training.learning_rate = {self.config.training.learning_rate:g}: lower it"
                " in the server's federation.toml, or set training.model_norm_bound, and begin again."
            )

    @property
    def model(self) -> FloatArray:
        """The model that the scheme would return now."""
        return returned_model(self.prepared.scheme, self.state)

    def evaluate(self) -> None:
        """Add a point to the learning curve."""
        test = self.prepared.setting.federation.test_features
        score = Evaluator(self.prepared.setting).scores(self.model)[0] if len(test) else None
        arrived = float(self.arrivals.arrays()["arrived"].sum()) / max(self.arrivals.rounds, 1)
        self.curve.append(
            {
                "round": self.state.round,
                "seconds": round(self.trained_s, 3),
                "score": score,
                "mean_arrivals": arrived,
            }
        )

    def save(self) -> None:
        """Write a checkpoint."""
        arrays = {
            **record_arrays("state", self.state),
            **record_arrays("pace", self.pace),
            **{f"arrivals.{name}": array for name, array in self.arrivals.arrays().items()},
        }
        values = {
            "prescription": self.roster.prescription,
            "standing": self.standing.to_dict(),
            "norms": self.norms,
            "curve": self.curve,
            "strides": self.strides,
            "trained_s": self.trained_s,
            **({"counted": self.counted} if self.counted else {}),
        }
        self.store.save(self.state.round, arrays, values)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint."""
        arrays, values = checkpoint.arrays, checkpoint.values
        self.state = record_from("state", arrays, self.state, self.prepared.scheme.formerly)
        self.pace = record_from("pace", arrays, self.pace)
        self.arrivals.restore(arrays["arrivals.batch_sizes"], arrays["arrivals.arrived"])
        self.context.standing = Standing.from_dict(values["standing"], self.config.training.most_refusals)
        self.norms, self.curve = dict(values["norms"]), list(values["curve"])
        self.strides, self.trained_s = list(values["strides"]), float(values["trained_s"])
        self.counted = list(values.get("counted", self.counted))


def _norm(update: FloatArray) -> float:
    """Return the Frobenius norm; squares of numbers that pass all checks may overflow in single precision."""
    return float(np.linalg.norm(update.astype(np.float64)))
