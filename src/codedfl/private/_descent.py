"""Private descent: preconditioned gradient descent with momentum, everything that a device sends covered by one epsilon."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from codedfl.private._budget import GROWTH, Budget
from codedfl.private._curvature import CurvatureUpload, PrivateCurvature
from codedfl.private._devices import PrivatePlan, noise_in_sum, require_target, scale_of_round
from codedfl.training import (
    DevicePlan,
    Geometry,
    PreparedScheme,
    Round,
    Scheme,
    SchemeState,
    Setting,
    UploadCost,
    Uploaded,
)
from codedfl.typing import FloatArray, IntArray

TAIL = 0.2
"""Share of the rounds at the end whose iterates are averaged."""


@dataclass(frozen=True)
class Course:
    """The constants of a descent.

    Args:
        ridge: ``lambda``.
        step: ``eta``.
        momentum: ``beta``.
        shares: least number of arrivals; a round with fewer is not opened.
        average_from: round from which on iterates are averaged.
        growth: factor by which the weight of an iterate grows from one round to the next.
    """

    ridge: float
    step: float
    momentum: float
    shares: int
    average_from: int
    growth: float


@dataclass(frozen=True)
class DescentState(SchemeState):
    """The state in the coordinates ``x' = D x``, with the constants of the descent.

    Args:
        inner: ``W'``, the last iterate in these coordinates, (d, o).
        velocity: that of the heavy ball, (d, o).
        directions: the directions that ``D`` shrinks, part by part, (d, r).
        factors: by how much, (r,).
        parts: number of directions of each part.
        samples: ``l_i``, (N,).
        ridge: ``lambda``.
        step: ``eta``.
        momentum: ``beta``.
        shares: least number of arrivals; a round with fewer is not opened.
        average_from: round from which on iterates are averaged.
        growth: factor by which the weight of an iterate grows from one round to the next.
    """

    inner: FloatArray
    velocity: FloatArray
    directions: FloatArray
    factors: FloatArray
    parts: IntArray
    samples: IntArray
    ridge: float
    step: float
    momentum: float
    shares: int
    average_from: int
    growth: float

    @property
    def geometry(self) -> Geometry:
        """``D``."""
        cuts = np.cumsum(self.parts)[:-1]
        return Geometry(tuple(np.split(self.directions, cuts, axis=1)), tuple(np.split(self.factors, cuts)))


@dataclass(frozen=True)
class PrivateDescent(Scheme):
    """Heavy-ball descent on ``f(W) + lambda / 2 ||W'||^2`` with private gradients, in the geometry of private curvature.

    The loss is that of multinomial logistic regression for classes, whose gradients are small for samples that are already right,
    and the square for a regression. Noise of standard deviation ``s`` on the sum of gradients leaves ``s ||x'|| / lambda`` in a
    prediction where the data has little curvature, so ``lambda = s ||x'|| / (kappa B_Y)`` keeps that to a share ``kappa`` of the
    labels. With curvature between ``l = lambda`` and ``h = c L + lambda``, ``c`` being that of the loss, Polyak's constants are
    optimal: ``eta = 4 / (sqrt(h) + sqrt(l))^2`` and ``beta = ((sqrt(h) - sqrt(l)) / (sqrt(h) + sqrt(l)))^2``.
    Nothing is tuned: all constants follow from public numbers and from what was released with noise.

    If the server sees sums only, a round with fewer arrivals than there are shares of noise is not opened.
    """

    @property
    def private(self) -> bool:
        """True."""
        return True

    @property
    def tunes_itself(self) -> bool:
        """True: the step size follows from the noise and the curvature."""
        return True

    @property
    def curvature(self) -> CurvatureUpload:
        """The upload before the first round."""
        return cast(CurvatureUpload, self.upload)

    def budget(self, setting: Setting) -> Budget:
        """Return the division of the budget."""
        return self.curvature.budget(setting)

    def rounds(self, setting: Setting) -> int:
        """Return ``K``, which the noise is set for."""
        return self.budget(setting).rounds

    def prepared(
        self, setting: Setting, plan: DevicePlan, uploaded: Uploaded, cost: UploadCost | None
    ) -> PreparedScheme:
        """Return the scheme with the noise of its updates set."""
        target, held = require_target(setting, self.name), _held(uploaded)
        loss = self.curvature.loss_in(setting)
        plan = cast(PrivatePlan, plan).protected(
            target,
            loss.clip_share * held.row_norm * target.label_bound,
            self.budget(setting).noise_multipliers,
            held.geometry,
            softmax=loss.softmax,
        )
        return super().prepared(setting, plan, uploaded, cost)

    def course(self, prepared: PreparedScheme) -> Course:
        """Return ridge, step and momentum."""
        setting, plan, held = prepared.setting, cast(PrivatePlan, prepared.device), _held(prepared.uploaded)
        target = require_target(setting, self.name)
        noise = plan.clip_norm * self.budget(setting).effective_multiplier * noise_in_sum(setting, target, plan.shares)
        loss = self.curvature.loss_in(setting)
        ridge = noise * held.row_norm / (loss.noise_share * target.label_bound)
        high, low = math.sqrt(loss.curvature * held.smoothness + ridge), math.sqrt(ridge)
        rounds = len(plan.noise_multipliers)
        return Course(
            ridge=ridge,
            step=4 / (high + low) ** 2,
            momentum=((high - low) / (high + low)) ** 2,
            shares=plan.shares,
            average_from=math.floor((1 - TAIL) * rounds),
            growth=GROWTH ** (1 / rounds) if plan.sampling_rate == 1 else 1.0,
        )

    def init(self, prepared: PreparedScheme, model: FloatArray) -> DescentState:
        """Return the state at ``W = 0``, where residuals are the labels themselves."""
        zero, geometry = np.zeros_like(model), _held(prepared.uploaded).geometry
        empty = np.zeros((len(model), 0), model.dtype)
        return DescentState(
            0,
            zero,
            np.zeros(model.shape),
            0.0,
            inner=zero,
            velocity=zero,
            directions=np.hstack([empty, *geometry.directions]),
            factors=np.concatenate([np.zeros(0), *geometry.factors]),
            parts=np.array([part.shape[1] for part in geometry.directions], np.int64),
            samples=prepared.setting.federation.samples,
            **vars(self.course(prepared)),
        )

    def apply(self, state: DescentState, round: Round) -> tuple[DescentState, Mapping[str, float]]:
        """Return the state after a step along the velocity, ``v' = beta v + g + lambda W'``, ``W' -= eta v'``."""
        share = scale_of_round(round, state.samples, state.shares)
        if share is None:
            return replace(state, round=state.round + 1), {}
        number = state.inner.dtype.type
        velocity = number(state.momentum) * state.velocity + number(state.ridge) * state.inner
        for _, update in round.updates:
            velocity += number(share) * update
        inner = state.inner - number(state.step * round.step_size) * velocity
        model = state.geometry.backward(inner)
        weight = state.growth**round.number if round.number >= state.average_from else 0.0
        return replace(
            state,
            round=state.round + 1,
            model=model,
            inner=inner,
            velocity=velocity,
            weighted_sum=state.weighted_sum + weight * model,
            step_sum=state.step_sum + weight,
        ), {}

    def final_model(self, state: Any) -> FloatArray:
        """Return the average of the last iterates, weighted by the precision of their gradients."""
        model: FloatArray = state.average if state.step_sum > 0 else state.model
        return model


def _held(uploaded: Uploaded) -> PrivateCurvature:
    for held in uploaded:
        if isinstance(held, PrivateCurvature):
            return held
    raise LookupError("no private curvature was uploaded")
