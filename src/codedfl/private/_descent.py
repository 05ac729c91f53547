"""Private descent: preconditioned gradient descent with momentum, everything that a device sends covered by one epsilon."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self, cast

import numpy as np

from codedfl.private._budget import Budget
from codedfl.private._curvature import CurvatureUpload, PrivateCurvature
from codedfl.private._devices import PrivatePlan, noise_in_sum, require_target
from codedfl.private._heavy_ball import Course, HeavyBall, HeavyBallState
from codedfl.training import (
    DevicePlan,
    Geometry,
    PreparedScheme,
    Round,
    Setting,
    UploadCost,
    Uploaded,
)
from codedfl.typing import FloatArray, IntArray


@dataclass(frozen=True)
class DescentState(HeavyBallState):
    """The state in the coordinates ``x' = D x``.

    Args:
        inner: ``W'``, the last iterate in these coordinates, (d, o).
        directions: the directions that ``D`` shrinks, part by part, (d, r).
        factors: by how much, (r,).
        parts: number of directions of each part.
    """

    inner: FloatArray
    directions: FloatArray
    factors: FloatArray
    parts: IntArray

    @property
    def geometry(self) -> Geometry:
        """``D``."""
        cuts = np.cumsum(self.parts)[:-1]
        return Geometry(tuple(np.split(self.directions, cuts, axis=1)), tuple(np.split(self.factors, cuts)))

    @property
    def position(self) -> FloatArray:
        """``W'``."""
        return self.inner

    def at(self, position: FloatArray) -> Self:
        """Return the state with another iterate ``W'``."""
        return replace(self, inner=position, model=self.geometry.backward(position))


@dataclass(frozen=True)
class PrivateDescent(HeavyBall):
    """Heavy-ball descent on ``f(W) + lambda / 2 ||W'||^2`` with private gradients, in the geometry of private curvature.

    The loss is that of multinomial logistic regression for classes, whose gradients are small for samples that are already right,
    and the square for a regression. Noise of standard deviation ``s`` on the sum of gradients leaves ``s ||x'|| / lambda`` in a
    prediction where the data has little curvature, so ``lambda = s ||x'|| / (kappa B_Y)`` keeps that to a share ``kappa`` of the
    labels. With curvature between ``l = lambda`` and ``h = c L + lambda``, ``c`` being that of the loss, Polyak's constants are
    optimal (`Course.polyak`). Nothing is tuned: all constants follow from public numbers and from what was released with noise.
    """

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
        return Course.polyak(
            plan, ridge, math.sqrt(loss.curvature * held.smoothness + ridge), root_low=math.sqrt(ridge)
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

    def gradient_parts(self, round: Round, share: float) -> Iterator[tuple[float, FloatArray]]:
        """Yield the updates of the devices that arrived."""
        for _, update in round.updates:
            yield share, update


def _held(uploaded: Uploaded) -> PrivateCurvature:
    for held in uploaded:
        if isinstance(held, PrivateCurvature):
            return held
    raise LookupError("no private curvature was uploaded")
