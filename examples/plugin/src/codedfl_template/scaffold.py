"""SCAFFOLD (Karimireddy et al., ICML 2020): a scheme whose devices remember something, and whose messages hold two arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from codedfl.training import (
    InverseProbability,
    Local,
    LocalSGD,
    Payload,
    PreparedScheme,
    Round,
    Scheme,
    SchemeState,
    Shape,
)
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class ScaffoldState(SchemeState):
    """The state with the mean ``c`` of the control variates of all devices, (d, o)."""

    variate: FloatArray


@dataclass(frozen=True)
class Scaffold(Scheme):
    """Local steps along ``g_i(W) - c_i + c``, with ``c_i`` the device's own mean gradient when it last took part."""

    def travels_down(self, shape: Shape) -> Mapping[str, Shape]:
        """Return the model and ``c``."""
        return {"model": shape, "variate": shape}

    def travels_up(self, shape: Shape) -> Mapping[str, Shape]:
        """Return the update and the change of ``c_i``."""
        return {"update": shape, "variate": shape}

    def init(self, prepared: PreparedScheme, model: FloatArray) -> ScaffoldState:
        """Return the state with ``c = 0``."""
        return ScaffoldState(**vars(super().init(prepared, model)), variate=np.zeros_like(model))

    def broadcast(self, state: ScaffoldState) -> Payload:
        """Return the model and ``c``."""
        return {"model": state.model, "variate": state.variate}

    def first_memory(self, shape: Shape, dtype: np.dtype[Any]) -> FloatArray:
        """Return ``c_i = 0``."""
        return np.zeros(shape, dtype)

    def update(self, memory: FloatArray, sent: Payload, local: Local) -> tuple[FloatArray, Payload]:
        """Return ``c_i + (mean of the steps) - c``, the mean gradient on the way, and how much it has changed."""
        total = local.descend(sent["model"], shift=sent["variate"] - memory)
        own = memory - sent["variate"] + total / total.dtype.type(local.steps)
        return own, {"update": total, "variate": own - memory}

    def step(self, state: ScaffoldState, round: Round) -> tuple[ScaffoldState, Mapping[str, float]]:
        """Return the state after ``W <- W - eta sum_i g_i / p_i`` and ``c <- c + sum_i (change of c_i) / N``."""
        received = list(round.payloads)
        moved = super().step(state, replace(round, payloads=received))[0]
        devices = state.variate.dtype.type(len(round.arrival_probability))
        changes = sum((payload["variate"] / devices for _, payload in received), np.zeros_like(state.variate))
        return replace(moved, variate=state.variate + changes), {}


def scaffold() -> Scheme:
    """FedAvg with control variates, which take the drift of local steps away."""
    weights = InverseProbability(device_weight=1.0)
    return Scaffold("scaffold", "SCAFFOLD", None, LocalSGD(), None, weights, final="last", colour="#1B7837")
