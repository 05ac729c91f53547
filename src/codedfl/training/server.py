"""What the server computes in a round: gradients on the coded data (Sec. III-C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from codedfl.arrays import FloatArray
from codedfl.coding import CodedData
from codedfl.training.allocated import mini_batch_of
from codedfl.training.sampling import bernoulli_batches
from codedfl.training.setting import Setting
from codedfl.training.steps import accumulate_gradients


class ServerPlan(Protocol):
    """What the server will do, settled before training."""

    def samples_processed(self, round: int) -> float:
        """Return the (expected) number of coded samples processed in a round, over all its steps."""

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

    def update(self, round: int, model: FloatArray, step_size: float) -> FloatArray:
        rng = self.setting.streams.at("server-batch", round=round)
        return accumulate_gradients(
            self.coded.features,
            self.coded.labels,
            model,
            bernoulli_batches(rng, len(self.coded), self.batch, self.setting.local_steps),
            scale=1.0 / self.batch,
            step_size=step_size,
            make_up=self.make_up,
        )


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

    def _of(self, round: int) -> CodedData:
        return self.coded[mini_batch_of(round, len(self.coded), self.setting.streams)]

    def samples_processed(self, round: int) -> float:
        return float(len(self._of(round)))

    def update(self, round: int, model: FloatArray, step_size: float) -> FloatArray:
        parity = self._of(round)
        scale = len(self.coded) / len(parity)
        return accumulate_gradients(parity.features, parity.labels, model, [None], scale=scale, step_size=step_size)
