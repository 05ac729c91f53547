"""IHM: iterative Hessian mixing, a few Newton steps with private sketches and private gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Annotated, cast

import numpy as np
import scipy.linalg
from pydantic import Field

from codedfl.coding import CodedData, Geometry, second_moment_error
from codedfl.losses import SQUARE
from codedfl.parallel import one_blas_thread
from codedfl.privacy import Mechanism, PrivacyTarget
from codedfl.schemes._heavy_ball import PrivateScheme, noise_in_sum, scale_of_round
from codedfl.setting import Setting
from codedfl.training import DevicePlan, PreparedScheme, PrivateGradient, PrivatePlan, Round, Scheme, SchemeState, Sum
from codedfl.typing import FloatArray, IntArray
from codedfl.uploads import Sketches, Terms, UploadCost, clip_norm_of, require_target


@dataclass(frozen=True)
class MixingState(SchemeState):
    """The last iterate, and what the remaining steps need.

    Args:
        inverses: ``(H_t + (lambda + rho_t) I)^-1`` of every round, (T, d, d).
        samples: ``l_i``, (N,).
        ridge: ``lambda``.
        shares: least number of arrivals; a round with fewer is not opened.
    """

    inverses: FloatArray
    samples: IntArray
    ridge: float
    shares: int


@dataclass(frozen=True)
class HessianMixing(PrivateScheme[tuple[CodedData, ...]]):
    """``W <- W - (H_t + (lambda + rho_t) I)^-1 (g_t + lambda W)``, with a fresh private sketch ``H_t`` in every round.

    ``g_t`` is a sum of gradients, clipped per sample to ``C = 0.75 B B_Y``, with noise of standard deviation ``s``. As
    in `PrivateDescent`, ``lambda = s B / (kappa B_Y)`` keeps what the noise leaves in a prediction to a share ``kappa``
    of the labels.

    ``H_t`` is the second moment of the sketch, less the mean of its noise, with negative eigenvalues set to zero. Let
    ``e_t`` be the operator norm of its error. ``H_t >= H - e_t`` and ``H_t >= 0`` give ``H_t >= (H - e_t) / 2``, so
    ``rho_t = max(0, e_t - lambda) / 2`` makes the matrix at least ``(H + lambda) / 2``, and a step never overshoots by
    more than it had to go. ``e_t`` is predicted (`codedfl.coding.second_moment_error`). Nothing is tuned on the data.
    """

    @property
    def sketch(self) -> Sketches:
        """The upload before the first round."""
        return cast(Sketches, self.upload)

    def rounds(self, setting: Setting) -> int:  # noqa: ARG002 (as many as there are sketches)
        """Return ``T``."""
        return self.sketch.sketches

    def noise_multiplier(self, setting: Setting) -> float:
        """Return that of each gradient: all gradients together use what the sketches leave of the budget."""
        target = require_target(setting, self.name)
        return _multiplier(target, self.sketch.mechanism_in(setting), self.sketch.sketches)

    def prepared(
        self, setting: Setting, plan: DevicePlan, held: tuple[CodedData, ...], cost: UploadCost | None
    ) -> PreparedScheme[tuple[CodedData, ...]]:
        """Return the scheme with the noise of its updates set."""
        target = require_target(setting, self.name)
        multipliers = np.full(self.sketch.sketches, self.noise_multiplier(setting))
        clip_norm = SQUARE.clip_share * clip_norm_of(setting) * target.label_bound
        plan = cast(PrivatePlan, plan).protected(target, clip_norm, multipliers, Geometry())
        return super().prepared(setting, plan, held, cost)

    def preparing_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002
        """Return second moments of the rows held, an eigendecomposition and a product (``5.5 d^3``), for each sketch."""
        d = float(setting.federation.dimension)
        rows = setting.code.coded_samples if self.sketch.sends_rows(Terms.of(setting)) else d
        return self.sketch.sketches * (rows * d * (d + 1) / 2 + 5.5 * d**3)

    def aggregation_macs(self, setting: Setting) -> float:
        """Return ``d^2 o``, the product with the inverse."""
        return float(setting.federation.dimension) ** 2 * setting.federation.outputs

    def ridge(self, prepared: PreparedScheme[tuple[CodedData, ...]]) -> float:
        """Return ``lambda``."""
        setting, plan = prepared.setting, cast(PrivatePlan, prepared.device)
        target = require_target(setting, self.name)
        noise = plan.clip_norm * self.noise_multiplier(setting) * noise_in_sum(setting, target, plan.shares)
        return noise * clip_norm_of(setting) / (SQUARE.noise_share * target.label_bound)

    def describe_server(self) -> str:
        """Return the step."""
        return "Newton step"

    def init(self, prepared: PreparedScheme[tuple[CodedData, ...]], model: FloatArray) -> MixingState:
        """Return the state at ``W = 0``, where residuals are the labels themselves."""
        ridge = self.ridge(prepared)
        return MixingState(
            0,
            np.zeros_like(model),
            np.zeros(model.shape),
            0.0,
            inverses=_inverses(prepared.held, ridge, _all_over_sketched(prepared.setting)).astype(model.dtype),
            samples=prepared.setting.federation.samples,
            ridge=ridge,
            shares=cast(PrivatePlan, prepared.device).shares,
        )

    def step(self, state: MixingState, round: Round) -> tuple[MixingState, Mapping[str, float]]:
        """Return the state after a step; a round without enough arrivals changes nothing."""
        share = scale_of_round(round, state.samples, state.shares)
        if share is None:
            return replace(state, round=state.round + 1), {}
        number = state.model.dtype.type
        gradient = number(state.ridge) * state.model
        for _, update in round.updates:
            gradient += number(share) * update
        step = state.inverses[round.number] @ gradient
        return replace(state, round=state.round + 1, model=state.model - number(round.step_size) * step), {}


def _all_over_sketched(setting: Setting) -> float:
    """Return all samples over those of devices that sent sketches, which those of the others are taken to be like."""
    samples = setting.federation.samples
    return float(samples.sum()) / float(samples[setting.code.uploading].sum())


@one_blas_thread()
def _inverses(sketches: Sequence[CodedData], ridge: float, scale: float) -> FloatArray:
    """Return the inverse for each sketch, of second moments that are scaled, (T, d, d)."""
    inverses = []
    for sketch in sketches:
        values, vectors = scipy.linalg.eigh(sketch.moments())
        error = scale * second_moment_error(max(float(values.mean()), 0.0), len(values), sketch.effective_rows)
        damped = scale * np.maximum(values - sketch.noise_variance, 0.0) + ridge + max(0.0, error - ridge) / 2
        inverses.append((vectors / damped) @ vectors.T)
    return np.stack(inverses)


@lru_cache(maxsize=256)
def _multiplier(target: PrivacyTarget, beside: Mechanism, updates: int) -> float:
    return target.noise_multiplier(updates=updates, besides=(beside,))


def ihm(
    rounds: Annotated[
        int, Field(ge=1, le=100, description="number of rounds, each with a sketch of its own and one gradient")
    ] = 3,
    budget_share: Annotated[
        float, Field(description="share of epsilon and delta for the sketches; gradients use what is left")
    ] = 0.3,
) -> Scheme:
    """Build iterative Hessian mixing.

    Before training, every device uploads one Gaussian sketch of its clipped features with noise for each round. In
    every round devices send a sum of gradients that are clipped per sample, with noise, and the server takes a Newton
    step whose Hessian comes from the sketch of that round. The ridge follows from the noise; nothing is tuned on the
    data.

    References:
        Lev, Shenfeld, Srinivasan, Ligett, Wilson: Near-Optimal Private Linear Regression via Iterative Hessian Mixing.
        arXiv:2601.07545, 2026.
    """
    return HessianMixing(
        name="ihm",
        title="IHM",
        upload=Sketches(rounds, budget_share),
        device=PrivateGradient(),
        server=None,
        aggregation=Sum(),
        final="last",
        colour="#B15928",
    )
