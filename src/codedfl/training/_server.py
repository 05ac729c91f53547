"""What the server computes in a round: gradients on the coded data (Sec. III-C)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Protocol

from codedfl.coding import CodedData
from codedfl.training._allocated import mini_batch_of
from codedfl.training._sampling import sample_batches
from codedfl.training._setting import Setting
from codedfl.training._work import Work
from codedfl.typing import FloatArray


class ServerPlan(Protocol):
    """What the server will do, settled before training."""

    def samples_processed(self, round: int) -> float:
        """Return the (expected) number of coded samples processed in a round, over all its steps."""

    @property
    def work_key(self) -> Hashable:
        """Equal for plans whose ``work`` is the same in every round, so that it is done once for all of them."""

    @property
    def make_up(self) -> float:
        """``sigma^2`` of the make-up term, 0 for none; plans of equal ``work_key`` may differ in it."""

    def work(self, round: int) -> Work:
        """Return the steps of a round."""

    def update(self, round: int, model: FloatArray, step_size: float) -> FloatArray:
        """Return the accumulated gradient on the coded data."""


class ServerWork(Protocol):
    """A rule by which the server works."""

    def plan(self, setting: Setting, coded: tuple[CodedData, ...]) -> ServerPlan:
        """Settle what the server does in this setting."""


@dataclass(frozen=True)
class CodedSGD:
    """``tau`` steps of SGD on Bernoulli batches of the coded data, (4) in the paper.

    Args:
        make_up: whether each gradient gets the make-up term ``g_o(W) = -sigma^2 W`` that removes the bias of the noise. SCFL has
            it, DP-CFL does not.
    """

    make_up: bool = True

    def plan(self, setting: Setting, coded: tuple[CodedData, ...]) -> ServerPlan:
        """Settle the batch ``b_s``: as large as the deadline allows, unless the setting fixes it."""
        (data,) = coded
        return _CodedSGDPlan(
            setting, data, setting.server_batch_of(len(data)), data.noise_variance if self.make_up else 0.0
        )


@dataclass(frozen=True)
class _CodedSGDPlan:
    setting: Setting
    coded: CodedData
    batch: int
    make_up: float

    def samples_processed(self, round: int) -> float:  # noqa: ARG002 (every round is the same)
        return float(self.batch * self.setting.local_steps)

    @property
    def work_key(self) -> Hashable:
        return type(self), id(self.coded), self.batch, self.setting.streams, self.setting.local_steps

    def work(self, round: int) -> Work:
        streams, steps = self.setting.streams, self.setting.local_steps
        batches = sample_batches(streams, "server-batch", len(self.coded), self.batch, steps, round=round)
        return Work(self.coded.features, self.coded.labels, batches, scale=1.0 / self.batch)

    def update(self, round: int, model: FloatArray, step_size: float) -> FloatArray:
        return self.work(round).update(model, step_size, self.make_up)


@dataclass(frozen=True)
class ParityGradient:
    """One full gradient on the parity data of the round's mini-batch (CFL-FB, CodedFedL), with no make-up term.

    It is scaled by the number of mini-batches, so that it stands for all data.
    """

    def plan(self, setting: Setting, coded: tuple[CodedData, ...]) -> ServerPlan:
        """Settle which parity data there is."""
        return _ParityPlan(setting, coded)


@dataclass(frozen=True)
class _ParityPlan:
    setting: Setting
    coded: tuple[CodedData, ...]
    make_up: float = 0.0

    def _of(self, round: int) -> CodedData:
        return self.coded[mini_batch_of(round, len(self.coded), self.setting.streams)]

    def samples_processed(self, round: int) -> float:
        return float(len(self._of(round)))

    @property
    def work_key(self) -> Hashable:
        return type(self), tuple(id(parity) for parity in self.coded), self.setting.streams

    def work(self, round: int) -> Work:
        parity = self._of(round)
        return Work(parity.features, parity.labels, [None], scale=len(self.coded) / len(parity))

    def update(self, round: int, model: FloatArray, step_size: float) -> FloatArray:
        return self.work(round).update(model, step_size, self.make_up)
