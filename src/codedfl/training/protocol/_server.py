"""The work of the server in a round: gradients on the coded data (Sec. III-C)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from typing_extensions import TypeVar

from codedfl.coding import CodedData
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


Held = TypeVar("Held", contravariant=True, default=Any)


class ServerWork(Protocol[Held]):
    """A rule for the work of the server, on what it holds after an upload."""

    def plan(self, setting: Setting, held: Held, /) -> ServerPlan:
        """Plan the work of the server in this setting."""

    def describe(self) -> str:
        """Return what the server does in a round, in the words of a table."""


@dataclass(frozen=True)
class CodedSGD:
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

    def _on(self, labels: FloatArray, starts: Sequence[Start]) -> Steps:
        scale = self.multiple / self.coded.coded_samples
        return Steps(self.coded.features, labels, [None] * self.local_steps, scale, starts)


@dataclass(frozen=True)
class ParityGradient:
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
