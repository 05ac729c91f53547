"""SCFL with private updates: one (epsilon, delta) for the coded upload and all updates together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, cast

import numpy as np
from pydantic import Field

from codedfl.coding import CodedData, Geometry, coded_spectrum, second_moment_error
from codedfl.errors import InputError
from codedfl.losses import SQUARE
from codedfl.privacy import Mechanism, PrivacyTarget
from codedfl.schemes._heavy_ball import ROUNDS_PER_ROOT, Course, HeavyBall, HeavyBallState, noise_in_sum
from codedfl.schemes._options import DeviceWeight, UploadKind, coded_upload
from codedfl.setting import Setting
from codedfl.training import CodedSGD, DevicePlan, PreparedScheme, PrivateGradient, PrivatePlan, Round, Scheme, Sum
from codedfl.typing import FloatArray
from codedfl.uploads import GROWTH, MOST_ROUNDS, Coded, UploadCost, clip_norm_of, require_target


@dataclass(frozen=True)
class CodedDescent(HeavyBall[tuple[CodedData, ...]]):
    """Heavy-ball descent along ``w g + (1 - w) g_s + lambda W``: private gradients of devices, and that of the coded data.

    ``g_s = (X~^T X~ / c - sigma^2 I) W - X~^T Y~ / c`` has the make-up term, so its Hessian is indefinite under strong
    noise. Its eigenvalues are known from the upload. ``lambda = lambda_n + (1 - w) max(0, -lambda_min)`` makes the sum
    positive definite, with ``lambda_n = s B / (kappa B_Y)`` for the noise ``s`` of both gradients as in
    `PrivateDescent`. The curvature ends at ``h = w H_max + (1 - w) lambda_max + lambda``, where ``H_max`` of the data
    is taken to be ``lambda_max`` and the predicted error of the coded second moment, at most ``m B^2``. Step and
    momentum are Polyak's for ``lambda`` and ``h``, and the number of rounds follows from the predicted ratio of both.
    Nothing is tuned on the data.

    Args:
        device_weight: ``w``.
        own_rounds: ``K``; 0 for the number that the predicted conditioning asks for.
    """

    device_weight: float = 0.5
    own_rounds: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.device_weight < 1:
            raise InputError(f"device_weight = {self.device_weight} must lie between 0 and 1, both excluded.")

    @property
    def coded_upload(self) -> Coded[tuple[CodedData, ...]]:
        """The upload before the first round."""
        return cast(Coded[tuple[CodedData, ...]], self.upload)

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:
        """Refuse a setting without a target or a clip norm, and coded data that stands for some devices only."""
        require_target(setting, self.name)
        clip_norm_of(setting)
        if not setting.code.uploading.all():
            absent = int(np.count_nonzero(~setting.code.uploading))
            raise InputError(
                f"{self.title} needs the coded data of all devices, but {absent} upload(s) none: let all upload, or choose"
                " another scheme."
            )
        super().require_possible(setting, plan)
        self.effective_multiplier(setting, plan)

    def rounds(self, setting: Setting) -> int:
        """Return ``K``, from public numbers: the sizes of the data and of the code, and the target."""
        if self.own_rounds:
            return self.own_rounds
        plan = cast(PrivatePlan, self.device.plan(setting))
        federation, variance = setting.federation, float(self.coded_upload.code(setting, plan).noise_variance.sum())
        devices = 1 if self.coded_upload.can_be_summed else federation.devices
        aspect = math.sqrt(min(federation.dimension / (devices * setting.code.coded_samples), 1.0))
        negative = variance * (2 * aspect - aspect**2)  # how far the noise pushes eigenvalues below zero
        ridge = self._noise_ridge(setting, plan, federation.devices) + (1 - self.device_weight) * negative
        conditioning = federation.total_samples * clip_norm_of(setting) ** 2 / ridge
        return math.ceil(min(max(ROUNDS_PER_ROOT * math.sqrt(1 + conditioning), 4), MOST_ROUNDS))

    def effective_multiplier(self, setting: Setting, plan: DevicePlan) -> float:
        """Return the noise multiplier of a single update that would use all that the coded data leaves of the budget."""
        if setting.label_bound is None:
            raise InputError(
                f"privacy.label_bound = 0 leaves the labels that {self.name} uploads unbounded, so that no epsilon holds: give a"
                " bound on their size that is known without the data (--label-bound)."
            )
        device = int(np.flatnonzero(setting.code.uploading)[0])
        beside = tuple(release.mechanism for release in self.coded_upload.releases(setting, plan, device))
        return _alone(require_target(setting, self.name), cast(tuple[Mechanism, ...], beside))

    def _clip_norm(self, setting: Setting) -> float:
        return SQUARE.clip_share * clip_norm_of(setting) * require_target(setting, self.name).label_bound

    def _noise_ridge(self, setting: Setting, plan: DevicePlan, shares: int) -> float:
        """Return ``lambda_n``, which the noise of both gradients asks for."""
        target, code = require_target(setting, self.name), self.coded_upload.code(setting, plan)
        devices = 1 if self.coded_upload.can_be_summed else setting.federation.devices
        updates = self._clip_norm(setting) * self.effective_multiplier(setting, plan)
        updates *= noise_in_sum(setting, target, shares)
        products = float(code.noise_variance.sum()) * float(code.label_noise_variance.sum())
        coded = math.sqrt(products / (devices * code.coded_samples))  # of X~^T Y~ / c
        noise = math.hypot(self.device_weight * updates, (1 - self.device_weight) * coded)
        return noise * clip_norm_of(setting) / (SQUARE.noise_share * target.label_bound)

    def prepared(
        self, setting: Setting, plan: DevicePlan, held: tuple[CodedData, ...], cost: UploadCost | None
    ) -> PreparedScheme[tuple[CodedData, ...]]:
        """Return the scheme with the noise of its updates set, and one step of the server in each round."""
        target, rounds = require_target(setting, self.name), self.rounds(setting)
        weights = GROWTH ** (np.arange(rounds) / rounds)
        multipliers = self.effective_multiplier(setting, plan) * np.sqrt(weights.sum() / weights)
        plan = cast(PrivatePlan, plan).protected(target, self._clip_norm(setting), multipliers, Geometry())
        prepared = super().prepared(setting, plan, held, cost)
        assert self.server is not None
        # All coded rows that there is time for: momentum multiplies the noise of small batches.
        duration_s = max(plan.arrivals.duration_s, setting.deadline_s)
        one_step = replace(setting, local_steps=1, deadline_s=duration_s, server_batch=None)
        return replace(prepared, server=self.server.plan(one_step, held))

    def depends_on(self, setting: Setting) -> Setting:
        """Return the setting without the server's batch, which the length of a round decides."""
        return replace(super().depends_on(setting), server_batch=None)

    def course(self, prepared: PreparedScheme[tuple[CodedData, ...]]) -> Course:
        """Return ridge, step and momentum, from what was released."""
        setting, plan, (coded,) = prepared.setting, cast(PrivatePlan, prepared.device), prepared.held
        values, w = coded_spectrum(coded), self.device_weight
        least = float(values[0]) - coded.noise_variance
        ridge = self._noise_ridge(setting, plan, plan.shares) + (1 - w) * max(0.0, -least)
        assert prepared.server is not None
        largest = max(prepared.server.curvature() - coded.noise_variance, 0.0)
        error = second_moment_error(float(values.mean()), len(values), coded.effective_rows)
        of_data = max(float(values[-1]) - coded.noise_variance, 0.0) + error
        of_data = min(of_data, setting.federation.total_samples * clip_norm_of(setting) ** 2)
        high = math.sqrt(w * of_data + (1 - w) * largest + ridge)
        return Course.polyak(plan, ridge, high, math.sqrt(ridge))

    def init(self, prepared: PreparedScheme[tuple[CodedData, ...]], model: FloatArray) -> HeavyBallState:
        """Return the state at ``W = 0``, where residuals are the labels themselves."""
        zero = np.zeros_like(model)
        return HeavyBallState(
            0,
            zero,
            np.zeros(model.shape),
            0.0,
            velocity=zero,
            samples=prepared.setting.federation.samples,
            **vars(self.course(prepared)),
        )

    def describe_server(self) -> str:
        """Return the gradient and the step."""
        return "gradient on coded data, make-up term, momentum"

    def gradient_parts(self, round: Round, share: float) -> Iterator[tuple[float, FloatArray]]:
        """Yield the gradient on coded data, and the updates of the devices that arrived."""
        assert round.server_update is not None
        yield 1 - self.device_weight, round.server_update
        for _, update in round.updates:
            yield self.device_weight * share, update


@lru_cache(maxsize=256)
def _alone(target: PrivacyTarget, beside: tuple[Mechanism, ...]) -> float:
    return target.noise_multiplier(besides=beside)


def scfl_private(
    budget_share: Annotated[
        float,
        Field(gt=0, lt=1, description="share of epsilon and delta for the coded upload; updates use what is left"),
    ] = 0.5,
    device_weight: DeviceWeight = 0.5,
    upload: UploadKind = "rows",
    rounds: Annotated[
        int, Field(ge=0, description="number of rounds; 0 for as many as the predicted conditioning asks for")
    ] = 0,
) -> Scheme:
    """Build SCFL with private updates.

    Devices upload noisy coded data as in SCFL, with a share of the budget. In every round they send one sum of
    gradients, clipped per sample and with noise, and the server computes a gradient on the coded data with the make-up
    term. Both are combined as in SCFL, with a ridge that makes up for the negative eigenvalues of the coded Hessian.
    Nothing is tuned on the data.

    References:
        Sun, Shao, Mao, Li, Zhang: Stochastic Coded Federated Learning: Theoretical Analysis and Incentive Mechanism
        Design. 2023.
    """
    return CodedDescent(
        name="scfl-private",
        title="SCFL, private",
        upload=coded_upload(upload, budget_share),
        device=PrivateGradient(),
        server=CodedSGD(make_up=True),
        aggregation=Sum(),
        final="average",
        colour="#88CCEE",
        device_weight=device_weight,
        own_rounds=rounds,
    )
