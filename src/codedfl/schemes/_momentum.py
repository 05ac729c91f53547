"""Momentum: one large-batch gradient per device and round, with heavy-ball momentum at the server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from codedfl.errors import InputError
from codedfl.schemes._options import Batch, WeightCap
from codedfl.training import Forecastable, InverseProbability, LocalSGD, PreparedScheme, Round, Scheme, SchemeState
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class MomentumState(SchemeState):
    """The state with the velocity ``v_k``, (d, o)."""

    velocity: FloatArray


@dataclass(frozen=True)
class Momentum(Scheme):
    """Server momentum: ``v_{k+1} = beta v_k + g(W_k)``, ``W_{k+1} = W_k - eta_k v_{k+1}``.

    Args:
        momentum: ``beta``, from 0 (none) to below 1.
    """

    momentum: float = 0.9

    forecast: ClassVar[Forecastable | None] = "steps"

    def __post_init__(self) -> None:
        if not 0.0 <= self.momentum < 1.0:
            raise InputError(f"momentum = {self.momentum} must be 0 or more and below 1.")

    @property
    def heavy_ball(self) -> float:
        """``beta``."""
        return self.momentum

    def describe_server(self) -> str:
        """Return the momentum."""
        return f"momentum {self.momentum:g}" if self.momentum else "nothing"

    def init(self, prepared: PreparedScheme, model: FloatArray) -> MomentumState:
        """Return the state at rest."""
        return MomentumState(**vars(super().init(prepared, model)), velocity=np.zeros_like(model))

    def step(self, state: MomentumState, round: Round) -> tuple[MomentumState, Mapping[str, float]]:
        """Return the state after a step along the velocity."""
        velocity = state.velocity.dtype.type(self.momentum) * state.velocity
        velocity += self.aggregation.combine(round, state.model)
        return replace(self.moved(state, velocity, round.step_size), velocity=velocity), {}


def momentum(
    momentum: Annotated[
        float, Field(description="beta of the heavy ball: the share of the velocity that is kept")
    ] = 0.9,
    batch: Batch = "adaptive",
    weight_cap: WeightCap = 100.0,
) -> Scheme:
    """Build gradient descent with momentum, which needs no coded data.

    Every device computes one gradient per round, on the largest batch that it has time for. What arrives is weighted by one over
    its arrival probability, so the gradient is unbiased, and the server takes heavy-ball steps. It returns the
    step-weighted average of all iterates.

    References:
        Polyak: Some methods of speeding up the convergence of iteration methods. USSR Computational Mathematics and Mathematical
        Physics, 1964.
    """
    return Momentum(
        name="momentum",
        title="Momentum",
        upload=None,
        device=LocalSGD(batch=batch, steps=1),
        server=None,
        aggregation=InverseProbability(device_weight=1.0, weight_cap=weight_cap),
        final="average",
        colour="#D55E00",
        momentum=momentum,
    )
