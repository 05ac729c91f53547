"""DP-GD: private gradient descent, with everything that a device sends covered by one (epsilon, delta)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, Self, cast

import numpy as np
from pydantic import Field

from codedfl.coding import Geometry
from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.losses import Loss
from codedfl.schemes._heavy_ball import Course, HeavyBall, HeavyBallState, noise_in_sum
from codedfl.setting import Setting
from codedfl.training import DevicePlan, PreparedScheme, PrivateGradient, PrivatePlan, Round, Scheme, Sum
from codedfl.typing import FloatArray, IntArray
from codedfl.uploads import Budget, Mean, PrivateCurvature, UploadCost, require_target


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
class PrivateDescent(HeavyBall[PrivateCurvature]):
    """Heavy-ball descent on ``f(W) + lambda / 2 ||W'||^2`` with private gradients, in the geometry of private curvature.

    The loss is that of multinomial logistic regression for classes, whose gradients are small for samples that are already right,
    and the square for a regression. Noise of standard deviation ``s`` on the sum of gradients leaves ``s ||x'|| / lambda`` in a
    prediction where the data has little curvature, so ``lambda = s ||x'|| / (kappa B_Y)`` keeps that to a share ``kappa`` of the
    labels. With curvature between ``l = lambda`` and ``h = c L + lambda``, ``c`` being that of the loss, Polyak's constants are
    optimal (`Course.polyak`). Nothing is tuned: all constants follow from public numbers and from what was released with noise.
    """

    @property
    def curvature(self) -> Mean:
        """The upload before the first round."""
        return cast(Mean, self.upload)

    def network_options(self) -> Mapping[str, Any]:
        """Return ``mean`` for a curvature left open; refuse Poisson batches, and second moments, which answer a message."""
        sampling_rate, curvature = self.curvature.sampling_rate, self.curvature.curvature
        if sampling_rate != 1:
            raise InputError(
                f"options.sampling_rate = {sampling_rate} is not possible over a network, where updates are on all rows:"
                " leave it out."
            )
        if curvature == "second-moments":
            raise InputError(
                'options.curvature = "second-moments" is not possible over a network: choose "mean" or "none".'
            )
        return {"curvature": "mean"} if curvature == "auto" else {}

    def budget(self, setting: Setting) -> Budget:
        """Return the division of the budget."""
        return self.curvature.budget(setting)

    def loss_for(self, task: Task) -> Loss:
        """Return the loss that its option names."""
        return self.curvature.loss_for(task)

    def rounds(self, setting: Setting) -> int:
        """Return ``K``, which the noise is set for."""
        return self.budget(setting).rounds

    def prepared(
        self, setting: Setting, plan: DevicePlan, held: PrivateCurvature, cost: UploadCost | None
    ) -> PreparedScheme[PrivateCurvature]:
        """Return the scheme with the noise of its updates set."""
        target, loss = require_target(setting, self.name), self.loss_for(setting.federation.task)
        plan = cast(PrivatePlan, plan).protected(
            target,
            loss.clip_share * held.row_norm * target.label_bound,
            self.budget(setting).noise_multipliers,
            held.geometry,
        )
        return super().prepared(setting, plan, held, cost)

    def course(self, prepared: PreparedScheme[PrivateCurvature]) -> Course:
        """Return ridge, step and momentum."""
        setting, plan, held = prepared.setting, cast(PrivatePlan, prepared.device), prepared.held
        target = require_target(setting, self.name)
        noise = plan.clip_norm * self.budget(setting).effective_multiplier * noise_in_sum(setting, target, plan.shares)
        loss = self.loss_for(setting.federation.task)
        ridge = noise * held.row_norm / (loss.noise_share * target.label_bound)
        return Course.polyak(
            plan, ridge, math.sqrt(loss.curvature * held.smoothness + ridge), root_low=math.sqrt(ridge)
        )

    def init(self, prepared: PreparedScheme[PrivateCurvature], model: FloatArray) -> DescentState:
        """Return the state at ``W = 0``, where residuals are the labels themselves."""
        zero, geometry = np.zeros_like(model), prepared.held.geometry
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

    def describe_server(self) -> str:
        """Return the step."""
        return "curvature step, momentum"

    def gradient_parts(self, round: Round, share: float) -> Iterator[tuple[float, FloatArray]]:
        """Yield the updates of the devices that arrived."""
        for _, update in round.updates:
            yield share, update


def dp_gd(
    sampling_rate: Annotated[
        float, Field(description="probability with which a row is in a round's batch; 1 for all rows in every round")
    ] = 1.0,
    curvature: Annotated[
        Literal["auto", "second-moments", "mean", "none"],
        Field(
            description="what devices send about their features before training, with noise: second-moments, their mean, or none;"
            " auto is second-moments where the mean would take more than 64 rounds"
        ),
    ] = "auto",
    loss: Annotated[
        Literal["auto", "square", "softmax"],
        Field(
            description="what is minimised; auto is softmax (logistic regression) for classes, square for a regression"
        ),
    ] = "auto",
    rounds: Annotated[int, Field(ge=0, description="number of rounds; 0 for as many as the noise is worth")] = 0,
) -> Scheme:
    """Build private gradient descent.

    Devices first send the mean of their features with noise and, where there is enough data for it, their second moments. In
    these coordinates they then send, once a round, a sum of gradients clipped per sample, with noise. The server adds a ridge
    that the noise asks for and takes heavy-ball steps. Nothing is tuned on the data.

    References:
        Abadi et al.: Deep Learning with Differential Privacy. CCS, 2016.
    """
    return PrivateDescent(
        name="dp-gd",
        title="DP-GD",
        upload=Mean(loss, curvature, sampling_rate, rounds),
        device=PrivateGradient(sampling_rate),
        server=None,
        aggregation=Sum(),
        final="average",
        colour="#6A3D9A",
    )
