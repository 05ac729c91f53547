"""A scheme: a small frozen composition of choices, a row of Table I of the paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from codedfl.coding import CodedData
from codedfl.training._aggregation import Aggregation
from codedfl.training._devices import DevicePlan, DeviceWork
from codedfl.training._server import ServerPlan, ServerWork
from codedfl.training._setting import Setting
from codedfl.training._uploads import CodedUpload, UploadCost
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class SchemeState:
    """What the server keeps between rounds, all of it saved in a checkpoint.

    Args:
        round: ``k``, rounds completed.
        model: ``W_k``, the last iterate.
        weighted_sum: ``sum_{j<k} eta_j W_j`` in float64.
        step_sum: ``sum_{j<k} eta_j``.
    """

    round: int
    model: FloatArray
    weighted_sum: FloatArray
    step_sum: float

    @classmethod
    def initial(cls, model: FloatArray) -> SchemeState:
        """Return the state before the first round, at ``W_0``."""
        return cls(0, model, np.zeros(model.shape), 0.0)

    @property
    def average(self) -> FloatArray:
        """``sum_k eta_k W_k / sum_k eta_k``, the step-weighted average that SCFL returns (Sec. III-D)."""
        if self.step_sum == 0.0:
            return self.model
        averaged: FloatArray = (self.weighted_sum / self.step_sum).astype(self.model.dtype)
        return averaged

    def moved(self, update: FloatArray, step_size: float, norm_bound: float | None = None) -> SchemeState:
        """Return the state after ``W_{k+1} = W_k - eta_k g(W_k)``, projected to ``||W||_F <= norm_bound`` if there is one."""
        model = self.model - self.model.dtype.type(step_size) * update
        if norm_bound is not None:
            model *= model.dtype.type(min(1.0, norm_bound / max(float(np.linalg.norm(model)), 1e-300)))
        return SchemeState(self.round + 1, model, self.weighted_sum + step_size * self.model, self.step_sum + step_size)


@dataclass(frozen=True)
class Scheme:
    """A training scheme.

    Args:
        name: what the command line calls it.
        title: what a figure calls it.
        upload: what devices upload first; None for nothing.
        device: what a device computes in a round.
        server: what the server computes in a round; None for nothing.
        aggregation: how both are combined.
        final: which model the scheme returns, the step-weighted ``average`` or the ``last`` iterate.
        summary: one line for a person who chooses.
    """

    name: str
    title: str
    upload: CodedUpload | None
    device: DeviceWork
    server: ServerWork | None
    aggregation: Aggregation
    final: Literal["average", "last"]
    summary: str

    def prepare(self, setting: Setting) -> PreparedScheme:
        """Do everything that comes before the first round: plan the work, encode, upload."""
        device = self.device.plan(setting)
        coded, cost = self.upload.prepare(setting, device) if self.upload else ((), None)
        server = self.server.plan(setting, coded) if self.server else None
        return PreparedScheme(self, setting, device, server, coded, cost)

    def final_model(self, state: SchemeState) -> FloatArray:
        """Return the model that the scheme would hand over now."""
        return state.average if self.final == "average" else state.model


@dataclass(frozen=True)
class PreparedScheme:
    """A scheme in a setting, ready for its rounds.

    Args:
        scheme: the choices.
        setting: data, fleet, channel, code.
        device: what the devices do.
        server: what the server does.
        coded: the coded data at the server, one entry a coded batch.
        upload_cost: what the upload cost; None without one.
    """

    scheme: Scheme
    setting: Setting
    device: DevicePlan
    server: ServerPlan | None
    coded: tuple[CodedData, ...]
    upload_cost: UploadCost | None
