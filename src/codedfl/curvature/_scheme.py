"""Training with curvature: the server's step, and what it remembers between rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl.curvature._memory import DeviceMemory
from codedfl.curvature._model import KEPT_SHARE, CurvatureModel
from codedfl.curvature._upload import FactorUpload, SubspaceUpload
from codedfl.errors import InputError
from codedfl.training import PreparedScheme, Round, Scheme, Setting
from codedfl.typing import FloatArray

RECENT = 4.0
"""Iterate ``k`` weighs ``k^RECENT`` in the average: the last fifth of the rounds makes up two thirds of it."""

MORE_DAMPING = 4.0
"""Factor on the damping when training does not settle."""

UNSETTLED = 8.0
"""Training does not settle if the decrement exceeds this many times the lowest so far..."""

STILL_LARGE = 0.1
"""...and this share of the first."""

MOMENTUM_SHARE = 0.1
"""Without a memory per device, the weight of a new gradient in the running mean of all: momentum 0.9."""


@dataclass(frozen=True, repr=False)
class CurvatureState(ShortRepr):
    """Everything that the server keeps between rounds.

    Args:
        round: ``k``, rounds completed.
        model: ``W_k``.
        average: the average of the iterates, weighted towards the last.
        averaged: iterates in that average.
        basis: ``U``, (d, k).
        values: eigenvalues of the sketched ``H`` on the basis, (k,).
        blocks: ``C_i``, (N, k, k).
        tails: ``t_i``, (N,).
        damping: ``mu``.
        coefficients: of `DeviceMemory`.
        residuals: of `DeviceMemory`; without a memory per device, the running mean of the gradient, (1, d, o).
        rows: of `DeviceMemory`.
        windows: of `DeviceMemory`.
        arrivals: rounds in which each device arrived, (N,).
        first_decrement: ``tr(G^T P G)`` in the first round.
        least_decrement: the lowest since the damping last changed.
        anchor: the model at the lowest decrement.
        anchor_coefficients: the memory at that time, which later gradients at models far away do not spoil.
        anchor_residuals: the same.
        anchor_rows: the same.
        dampings: how often the damping was raised.
    """

    round: int
    model: FloatArray
    average: FloatArray
    averaged: int
    basis: FloatArray
    values: FloatArray
    blocks: FloatArray
    tails: FloatArray
    damping: float
    coefficients: FloatArray
    residuals: FloatArray
    rows: FloatArray
    windows: FloatArray
    arrivals: FloatArray
    first_decrement: float
    least_decrement: float
    anchor: FloatArray
    anchor_coefficients: FloatArray
    anchor_residuals: FloatArray
    anchor_rows: FloatArray
    dampings: int

    @property
    def memory(self) -> DeviceMemory:
        """What is remembered of every device."""
        return DeviceMemory(self.coefficients, self.residuals, self.rows, self.windows)

    def preconditioned(self, gradient: FloatArray) -> FloatArray:
        """Return ``P G``: ``P = (lambda_j + mu)^-1`` on the basis, ``(t + mu)^-1`` elsewhere, with ``t = sum_i t_i``."""
        elsewhere = self.damping + float(self.tails.sum())
        inside = self.basis.T @ gradient
        factors = 1.0 / (self.values + self.damping) - 1.0 / elsewhere
        step: FloatArray = gradient / elsewhere + self.basis @ (factors[:, None] * inside)
        return step


@dataclass(frozen=True)
class CurvatureCoded(Scheme):
    """Preconditioned steps on a gradient that the server assembles from its memory of every device.

    In round ``k``, with ``G = sum_i h_i(W_k)`` of `DeviceMemory`: ``W_{k+1} = W_k - P G``.

    Args:
        memory: ``carried`` for the memory above; ``stale`` without carrying gradients to the current model (MIFA); ``none`` for
            weights 1/p on what arrives, and momentum.
        damping_factor: factor on the damping ``mu`` that the sketch suggests.
        estimate_arrivals: with ``none``, whether ``p_i`` is estimated from who has arrived so far: ``(n_i + 1) / (k + 2)``.
    """

    memory: Literal["carried", "stale", "none"] = "carried"
    damping_factor: float = 1.0
    estimate_arrivals: bool = False

    def __post_init__(self) -> None:
        if not (math.isfinite(self.damping_factor) and self.damping_factor > 0):
            raise InputError(f"damping_factor = {self.damping_factor} must be a positive number.")

    @property
    def tunes_itself(self) -> bool:
        """True: the sketch determines the step."""
        return True

    def init(self, prepared: PreparedScheme, model: FloatArray) -> CurvatureState:
        """Return the state before the first round: curvature and prior from the sketch."""
        federation = prepared.setting.federation
        devices, (d, o) = federation.devices, prepared.model_shape
        samples = federation.samples.astype(np.float64)
        sketch = prepared.sketch
        curvature = CurvatureModel.of(sketch, samples)
        memory = DeviceMemory.from_prior(curvature.intercepts, sketch.rows, samples, d)
        if self.memory != "carried":
            none = np.zeros((devices if self.memory == "stale" else 1, d, o))
            memory = DeviceMemory(0 * memory.coefficients, none, np.zeros(devices), memory.windows)
        return CurvatureState(
            round=0,
            model=model,
            average=model.astype(np.float64),
            averaged=0,
            basis=curvature.basis,
            values=curvature.values,
            blocks=curvature.blocks,
            tails=curvature.tails,
            damping=self.damping_factor * curvature.damping,
            coefficients=memory.coefficients,
            residuals=memory.residuals,
            rows=memory.rows,
            windows=memory.windows,
            arrivals=np.zeros(devices),
            first_decrement=0.0,
            least_decrement=math.inf,
            anchor=model.astype(np.float64),
            anchor_coefficients=memory.coefficients,
            anchor_residuals=memory.residuals,
            anchor_rows=memory.rows,
            dampings=0,
        )

    def apply(self, state: CurvatureState, round: Round) -> tuple[CurvatureState, Mapping[str, float]]:
        """Return the state after ``W_{k+1} = W_k - eta P G``; back at the anchor, with more damping, if it does not settle."""
        model, never_arrived = state.model.astype(np.float64), state.arrivals == 0
        state, gradient = self._gradient(state, round, model)
        step = state.preconditioned(gradient)
        decrement = float(np.sum(gradient * step))
        diagnostics = {"decrement": decrement, "damping": state.damping}
        first, least = state.first_decrement or decrement, state.least_decrement
        if self.memory != "carried" and np.any(state.arrivals[never_arrived] > 0) and math.isfinite(decrement):
            # Without a prior, the gradient grows whenever a device adds to it for the first time: earlier ones do not compare.
            first, least = max(first, decrement), math.inf
        state = replace(state, round=state.round + 1, first_decrement=first, least_decrement=least)
        if decrement > max(UNSETTLED * state.least_decrement, STILL_LARGE * first) or not math.isfinite(decrement):
            return self._damped(state), diagnostics
        if decrement < state.least_decrement:
            state = replace(
                state,
                least_decrement=decrement,
                anchor=model,
                anchor_coefficients=state.coefficients,
                anchor_residuals=state.residuals,
                anchor_rows=state.rows,
            )
        return self._moved(state, model - round.step_size * step), diagnostics

    def _gradient(self, state: CurvatureState, round: Round, model: FloatArray) -> tuple[CurvatureState, FloatArray]:
        """Return the state with the round's gradients remembered, and ``G``."""
        batches = dict(round.attendance.arrivals())
        arrivals = state.arrivals.copy()
        arrivals[list(batches)] += 1
        state = replace(state, arrivals=arrivals)
        if self.memory == "none":
            mean = self._mean_gradient(state, round)
            return replace(state, residuals=mean), mean[0]
        carried = self.memory == "carried"
        blocks, tails = (state.blocks, state.tails) if carried else (0 * state.blocks, 0 * state.tails)
        in_basis = state.basis.T @ model
        # The loop has weighted updates for devices that were not asked; a memory of every device needs no such weight.
        arrived = ((device, update / round.attendance.weight, batches[device]) for device, update in _in_double(round))
        memory = state.memory.updated(arrived, model, in_basis, blocks, tails)
        gradient = memory.gradient(model, in_basis, state.basis, blocks, tails)
        return replace(state, coefficients=memory.coefficients, residuals=memory.residuals, rows=memory.rows), gradient

    def _mean_gradient(self, state: CurvatureState, round: Round) -> FloatArray:
        """Return the running mean of ``sum_i 1_i g_i / p_i``, which acts as momentum, (1, d, o)."""
        estimate = (state.arrivals + 1.0) / (state.round + 2.0)
        seen = replace(round, arrival_probability=estimate) if self.estimate_arrivals else round
        total = self.aggregation.combine(seen, state.model.astype(np.float64))
        share = max(MOMENTUM_SHARE, 1.0 / (state.round + 1))
        mean: FloatArray = state.residuals + share * (total - state.residuals)
        return mean

    def _moved(self, state: CurvatureState, model: FloatArray) -> CurvatureState:
        weight = (RECENT + 1.0) / (state.averaged + RECENT + 1.0)
        return replace(
            state,
            model=model.astype(state.model.dtype),
            average=state.average + weight * (model - state.average),
            averaged=state.averaged + 1,
        )

    def _damped(self, state: CurvatureState) -> CurvatureState:
        return replace(
            state,
            model=state.anchor.astype(state.model.dtype),
            average=state.anchor,
            averaged=0,
            coefficients=state.anchor_coefficients,
            residuals=state.anchor_residuals,
            rows=state.anchor_rows,
            damping=MORE_DAMPING * state.damping,
            least_decrement=math.inf,
            dampings=state.dampings + 1,
        )

    def final_model(self, state: CurvatureState) -> FloatArray:
        """Return the average of the iterates, weighted towards the last."""
        model: FloatArray = state.average.astype(state.model.dtype)
        return model

    def aggregation_macs(self, setting: Setting) -> float:
        """Return the server's arithmetic after the deadline: four products with the basis, and ``3 N d o`` for the memory."""
        federation = setting.federation
        rank = self.upload.rank_in(setting) if isinstance(self.upload, SubspaceUpload | FactorUpload) else 0
        size = federation.dimension * federation.outputs
        return float(4 * KEPT_SHARE * rank * size + 3 * federation.devices * size)


def _in_double(round: Round) -> Iterator[tuple[int, FloatArray]]:
    return ((device, update.astype(np.float64)) for device, update in round.updates)
