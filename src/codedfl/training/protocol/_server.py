"""The work of the server in a round: gradients on the coded data (Sec. III-C)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol

import numpy as np
from typing_extensions import TypeVar

from codedfl.coding import CodedData, batch_curvature, coded_spectrum
from codedfl.errors import InputError
from codedfl.identity import NOT_IDENTITY
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training.engine._sampling import sample_batches
from codedfl.training.engine._steps import Start, Steps
from codedfl.training.protocol._allocated import mini_batch_of
from codedfl.typing import FloatArray


class ServerPlan(Protocol):
    """The work of the server, fixed before training.

    A plan is a frozen dataclass with all that its steps depend on as fields. Runs whose plans have the same
    `codedfl.identity.identity` share their steps in lock-step, each with its own make-up term.
    """

    @property
    def make_up(self) -> float:
        """``sigma^2`` of the make-up term, 0 for none."""

    def samples_processed(self, round: int) -> float:
        """Return the (expected) number of coded samples processed in one round, over all its steps; `Ledger` charges for them."""

    def steps(self, round: int, starts: Sequence[Start]) -> Steps:
        """Return the gradient steps of one round."""

    def mean_steps(self, starts: Sequence[Start]) -> Steps | None:
        """Return the expected steps, without labels; None if rounds differ in more than their batches."""

    def curvature(self) -> float:
        """Return the largest curvature that a gradient is expected to have, from what the server holds alone."""


@dataclass(frozen=True)
class ServerRound:
    """The server's part of a round, as planning predicts it.

    Args:
        steps: gradient steps.
        multiple: factor on each gradient.
        sampling: variance of the mean of a batch of coded rows, in units of that of one row.
    """

    steps: int = 1
    multiple: float = 1.0
    sampling: float = 0.0


Held = TypeVar("Held", contravariant=True, default=Any)


class ServerWork(ABC, Generic[Held]):
    """A rule for the work of the server, on what it holds after an upload."""

    @property
    def make_up(self) -> bool:
        """Whether the bias that noise in the coded data causes is removed."""
        return False

    @abstractmethod
    def plan(self, setting: Setting, held: Held, /) -> ServerPlan:
        """Plan the work of the server in this setting."""

    def forecast(self, setting: Setting, rows: int) -> ServerRound:  # noqa: ARG002 (for subclasses)
        """Return what it does in a round, without coded data: by default one gradient on all of it.

        Args:
            setting: data, fleet, channel, code.
            rows: coded rows that it can draw batches from; 0 if what it holds has no rows.
        """
        return ServerRound()

    def describe(self) -> str:
        """Return what the server does in a round, in the words of a table: by default the name of the rule."""
        return type(self).__name__


@dataclass(frozen=True)
class CodedSGD(ServerWork[tuple[CodedData, ...]]):
    """``tau`` steps of SGD on Bernoulli batches of the coded data, (4) in the paper.

    Args:
        make_up: whether each gradient gets the make-up term ``g_o(W) = -sigma^2 W``, which removes the bias of the noise. SCFL
            has it, DP-CFL does not.
    """

    make_up: bool = True

    def plan(self, setting: Setting, coded: tuple[CodedData, ...]) -> ServerPlan:
        """Plan SGD with the batch ``b_s``: as large as the deadline allows, unless the setting fixes it.

        A factor has no rows to sample, so the server takes full-batch steps: ``s`` of the ``tau``, as many as it has time for at
        ``d^2 o`` MACs each. Each gradient is multiplied by ``tau / s``, so that their sum still estimates that of ``tau``.

        Raises:
            InputError: if the deadline leaves no time for a single full-batch step.
        """
        (data,) = coded
        if data.factor:
            return self._on_factor(setting, data)
        return _CodedSGDPlan(
            data,
            setting.server_batch_of(len(data)),
            setting.streams,
            setting.local_steps,
            data.noise_variance if self.make_up else 0.0,
        )

    def forecast(self, setting: Setting, rows: int) -> ServerRound:
        """Return ``tau`` steps on batches of rows; or as many as there is time for on a factor."""
        if not rows:
            steps = full_steps_of(setting)
            return ServerRound(steps, setting.local_steps / steps)
        return ServerRound(setting.local_steps, sampling=1.0 / setting.server_batch_of(rows) - 1.0 / rows)

    def describe(self) -> str:
        """Return whether there is a make-up term."""
        return "SGD on coded data" + ", make-up term" * self.make_up

    def _on_factor(self, setting: Setting, data: CodedData) -> ServerPlan:
        steps = full_steps_of(setting)
        multiple = setting.local_steps / steps
        return _FactorPlan(data, steps, multiple, multiple * data.noise_variance if self.make_up else 0.0)


def full_steps_of(setting: Setting) -> int:
    """Return how many full-batch steps on a factor, of ``d^2 o`` MACs, the server takes in a round: at most ``tau``.

    Raises:
        InputError: if it has no time for one.
    """
    d, o = setting.federation.dimension, setting.federation.outputs
    seconds = d * d * o / setting.server_mac_rate
    steps = min(setting.local_steps, int(setting.deadline_s / seconds + 1e-9))
    if steps < 1:
        raise InputError(
            f"training.deadline_s = {setting.deadline_s:g} is too short for the server: a full-batch step on the factor takes"
            f" {seconds:.4g} s, so raise it to at least that, or upload rows."
        )
    return steps


@dataclass(frozen=True)
class _CodedSGDPlan:
    coded: CodedData
    batch: int
    streams: Streams
    local_steps: int
    make_up: float = field(metadata=NOT_IDENTITY)

    def samples_processed(self, round: int) -> float:  # noqa: ARG002 (every round is the same)
        return float(self.batch * self.local_steps)

    def steps(self, round: int, starts: Sequence[Start]) -> Steps:
        batches = sample_batches(
            self.streams, "server-batch", len(self.coded), self.batch, self.local_steps, round=round
        )
        return Steps(self.coded.features, self.coded.labels, batches, 1.0 / self.batch, starts)

    def mean_steps(self, starts: Sequence[Start]) -> Steps:
        rows = self.coded.features
        no_labels = np.zeros((len(rows), starts[0].model.shape[1]), rows.dtype)
        return Steps(rows, no_labels, [None] * self.local_steps, 1.0 / len(rows), starts)

    def curvature(self) -> float:
        return _curvature(self.coded, self.batch)


@dataclass(frozen=True)
class _FactorPlan:
    """Full-batch steps on a factor, each gradient multiplied by ``multiple``."""

    coded: CodedData
    local_steps: int
    multiple: float
    make_up: float = field(metadata=NOT_IDENTITY)

    def samples_processed(self, round: int) -> float:  # noqa: ARG002 (every round is the same)
        """Return what ``d^2 o`` MACs per step amount to, at ``2 d o`` per sample."""
        return self.local_steps * float(self.coded.features.shape[1]) / 2

    def steps(self, round: int, starts: Sequence[Start]) -> Steps:  # noqa: ARG002 (every round is the same)
        return self._on(self.coded.labels, starts)

    def mean_steps(self, starts: Sequence[Start]) -> Steps:
        rows = self.coded.features
        return self._on(np.zeros((len(rows), starts[0].model.shape[1]), rows.dtype), starts)

    def curvature(self) -> float:
        return _curvature(self.coded, self.coded.coded_samples)

    def _on(self, labels: FloatArray, starts: Sequence[Start]) -> Steps:
        scale = self.multiple / self.coded.coded_samples
        return Steps(self.coded.features, labels, [None] * self.local_steps, scale, starts)


@dataclass(frozen=True)
class ParityGradient(ServerWork[tuple[CodedData, ...]]):
    """One full gradient on the parity data of the round's mini-batch (CFL-FB, CodedFedL), with no make-up term.

    It is scaled by the number of mini-batches, so that it stands for all data.
    """

    def plan(self, setting: Setting, coded: tuple[CodedData, ...]) -> ServerPlan:
        """Plan gradients on the parity data."""
        return _ParityPlan(coded, setting.streams)

    def describe(self) -> str:
        """Return that it is one gradient."""
        return "gradient on parity data"


@dataclass(frozen=True)
class _ParityPlan:
    coded: tuple[CodedData, ...]
    streams: Streams
    make_up: float = field(default=0.0, metadata=NOT_IDENTITY)

    def _of(self, round: int) -> CodedData:
        return self.coded[mini_batch_of(round, len(self.coded), self.streams)]

    def samples_processed(self, round: int) -> float:
        return float(len(self._of(round)))

    def steps(self, round: int, starts: Sequence[Start]) -> Steps:
        parity = self._of(round)
        return Steps(parity.features, parity.labels, [None], len(self.coded) / parity.coded_samples, starts)

    def mean_steps(self, starts: Sequence[Start]) -> None:
        """Return None: the mean differs between mini-batches."""

    def curvature(self) -> float:
        """Return the largest of all mini-batches, each of which stands for all data."""
        return len(self.coded) * max(_curvature(parity, parity.coded_samples) for parity in self.coded)


def _curvature(coded: CodedData, batch: int) -> float:
    """Return the curvature of batches of coded data; a factor has all rows in every batch."""
    return batch_curvature(coded_spectrum(coded), coded.coded_samples, batch)
