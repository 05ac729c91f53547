"""CCFL: curvature-coded federated learning, beyond the paper."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np
from pydantic import Field

from codedfl.coding import KEPT_SHARE, Curvature, CurvatureModel, SubspaceSketch
from codedfl.errors import InputError
from codedfl.schemes._device_memory import DeviceMemory
from codedfl.schemes._options import RoundDeadline
from codedfl.setting import Setting
from codedfl.training import DevicePlan, Forecastable, InverseProbability, LocalSGD, PreparedScheme, Round, Scheme
from codedfl.typing import FloatArray, ShortRepr
from codedfl.uploads import SketchedFactor, Subspace

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


@dataclass(frozen=True)
class Anchor:
    """Where to go back to if training does not settle: later gradients at models far away do not spoil it.

    Args:
        decrement: the lowest so far.
        model: the model that had it.
        memory: what was remembered then.
    """

    decrement: float
    model: FloatArray
    memory: DeviceMemory


@dataclass(frozen=True, repr=False)
class CurvatureState(ShortRepr):
    """Everything that the server keeps between rounds.

    Args:
        round: ``k``, rounds completed.
        model: ``W_k``.
        average: the average of the iterates, weighted towards the last.
        averaged: iterates in that average.
        curvature: what the sketches tell.
        damping: ``mu``.
        memory: what is remembered of every device; without a memory per device, its residuals are the running mean of the
            gradient, (1, d, o).
        arrivals: rounds in which each device arrived, (N,).
        first_decrement: ``tr(G^T P G)`` in the first round.
        anchor: where training stood at the lowest decrement since the damping last changed.
        dampings: how often the damping was raised.
    """

    round: int
    model: FloatArray
    average: FloatArray
    averaged: int
    curvature: Curvature
    damping: float
    memory: DeviceMemory
    arrivals: FloatArray
    first_decrement: float
    anchor: Anchor
    dampings: int


@dataclass(frozen=True)
class CurvatureCoded(Scheme[SubspaceSketch]):
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

    forecast: ClassVar[Forecastable | None] = "curvature"
    formerly: ClassVar[Mapping[str, str]] = {
        **{f"curvature.{name}": name for name in ("basis", "values", "blocks", "tails")},
        **{f"memory.{name}": name for name in ("coefficients", "residuals", "rows", "windows")},
        **{f"anchor.memory.{name}": f"anchor_{name}" for name in ("coefficients", "residuals", "rows")},
        "anchor.memory.windows": "windows",
        "anchor.model": "anchor",
        "anchor.decrement": "least_decrement",
    }

    def __post_init__(self) -> None:
        if not (math.isfinite(self.damping_factor) and self.damping_factor > 0):
            raise InputError(f"damping_factor = {self.damping_factor} must be a positive number.")

    @property
    def tunes_itself(self) -> bool:
        """True: the sketch determines the step."""
        return True

    def init(self, prepared: PreparedScheme[SubspaceSketch], model: FloatArray) -> CurvatureState:
        """Return the state before the first round: curvature and prior from the sketch."""
        federation = prepared.setting.federation
        devices, (d, o) = federation.devices, prepared.model_shape
        samples = federation.samples.astype(np.float64)
        sketch = prepared.held
        suggested = CurvatureModel.of(sketch, samples)
        memory = DeviceMemory.from_prior(suggested.intercepts, sketch.rows, samples, d)
        if self.memory != "carried":
            none = np.zeros((devices if self.memory == "stale" else 1, d, o))
            memory = DeviceMemory(0 * memory.coefficients, none, np.zeros(devices), memory.windows)
        double = model.astype(np.float64)
        return CurvatureState(
            round=0,
            model=model,
            average=double,
            averaged=0,
            curvature=suggested.curvature,
            damping=self.damping_factor * suggested.damping,
            memory=memory,
            arrivals=np.zeros(devices),
            first_decrement=0.0,
            anchor=Anchor(math.inf, double, memory),
            dampings=0,
        )

    def step(self, state: CurvatureState, round: Round) -> tuple[CurvatureState, Mapping[str, float]]:
        """Return the state after ``W_{k+1} = W_k - eta P G``; back at the anchor, with more damping, if it does not settle."""
        model, never_arrived = state.model.astype(np.float64), state.arrivals == 0
        state, gradient = self._gradient(state, round, model)
        step = state.curvature.preconditioned(gradient, state.damping)
        decrement = float(np.sum(gradient * step))
        diagnostics = {"decrement": decrement, "damping": state.damping}
        first, anchor = state.first_decrement or decrement, state.anchor
        if self.memory != "carried" and np.any(state.arrivals[never_arrived] > 0) and math.isfinite(decrement):
            # Without a prior, the gradient grows whenever a device adds to it for the first time: earlier ones do not compare.
            first, anchor = max(first, decrement), replace(anchor, decrement=math.inf)
        state = replace(state, round=state.round + 1, first_decrement=first, anchor=anchor)
        if decrement > max(UNSETTLED * anchor.decrement, STILL_LARGE * first) or not math.isfinite(decrement):
            return self._damped(state), diagnostics
        if decrement < anchor.decrement:
            state = replace(state, anchor=Anchor(decrement, model, state.memory))
        return self._moved(state, model - round.step_size * step), diagnostics

    def _gradient(self, state: CurvatureState, round: Round, model: FloatArray) -> tuple[CurvatureState, FloatArray]:
        """Return the state with the round's gradients remembered, and ``G``."""
        batches = dict(round.attendance.arrivals())
        arrivals = state.arrivals.copy()
        arrivals[list(batches)] += 1
        state = replace(state, arrivals=arrivals)
        if self.memory == "none":
            mean = self._mean_gradient(state, round)
            return replace(state, memory=replace(state.memory, residuals=mean)), mean[0]
        known = state.curvature if self.memory == "carried" else state.curvature.flat
        # The loop has weighted updates for devices that were not asked; a memory of every device needs no such weight.
        arrived = ((device, update / round.attendance.weight, batches[device]) for device, update in _in_double(round))
        memory = state.memory.updated(arrived, model, known)
        return replace(state, memory=memory), memory.gradient(model, known)

    def _mean_gradient(self, state: CurvatureState, round: Round) -> FloatArray:
        """Return the running mean of ``sum_i 1_i g_i / p_i``, which acts as momentum, (1, d, o)."""
        estimate = (state.arrivals + 1.0) / (state.round + 2.0)
        seen = replace(round, arrival_probability=estimate) if self.estimate_arrivals else round
        total = self.aggregation.combine(seen, state.model.astype(np.float64))
        share = max(MOMENTUM_SHARE, 1.0 / (state.round + 1))
        before = state.memory.residuals
        mean: FloatArray = before + share * (total - before)
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
        anchor = state.anchor
        return replace(
            state,
            model=anchor.model.astype(state.model.dtype),
            average=anchor.model,
            averaged=0,
            memory=anchor.memory,
            damping=MORE_DAMPING * state.damping,
            anchor=replace(anchor, decrement=math.inf),
            dampings=state.dampings + 1,
        )

    def final_model(self, state: CurvatureState) -> FloatArray:
        """Return the average of the iterates, weighted towards the last."""
        model: FloatArray = state.average.astype(state.model.dtype)
        return model

    def remarks(self, state: CurvatureState) -> Sequence[str]:
        """Say so if the sketch was too poor for the damping that it suggested."""
        if state.dampings == 0:
            return ()
        times = "once" if state.dampings == 1 else f"{state.dampings} times"
        return (
            f"did not settle with the damping that its sketch suggested, and raised it {times}: sketching more rows"
            f" (options.{self.name}.sketch_rows) or more directions (options.{self.name}.rank) helps",
        )

    def describe_server(self) -> str:
        """Return the step, and what is remembered."""
        return "curvature step, " + ("momentum" if self.memory == "none" else "memory of every device")

    def describe_combination(self) -> str:
        """Return whether gradients come from the memory."""
        return super().describe_combination() if self.memory == "none" else "memory"

    def describe_result(self) -> str:
        """Return that it is an average."""
        return "average of recent iterates"

    def aggregation_macs(self, setting: Setting) -> float:
        """Return the server's arithmetic after the deadline: four products with the basis, and ``3 N d o`` for the memory."""
        federation, rank = setting.federation, self._rank_in(setting)
        size = federation.dimension * federation.outputs
        return float(4 * KEPT_SHARE * rank * size + 3 * federation.devices * size)

    def preparing_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002
        """Return the arithmetic of `CurvatureModel.of`."""
        federation = setting.federation
        sending = int(np.count_nonzero(setting.code.uploading))
        return CurvatureModel.server_macs(sending, federation.dimension, federation.outputs, self._rank_in(setting))

    def _rank_in(self, setting: Setting) -> int:
        return 0 if self.upload is None else self.upload.rank_in(setting.federation.dimension)


def _in_double(round: Round) -> Iterator[tuple[int, FloatArray]]:
    return ((device, update.astype(np.float64)) for device, update in round.updates)


def ccfl(
    rank: Annotated[
        int | Literal["auto"],
        Field(
            description="directions in which a sketch shows curvature; auto is a quarter of the features, from 16 to 60"
        ),
    ] = "auto",
    sketch_rows: Annotated[int, Field(description="rows that a device sketches")] = 100,
    deadline: RoundDeadline = "auto",
    memory: Annotated[
        Literal["carried", "stale", "none"],
        Field(
            description="carried: remember every device's gradient and carry it along; stale: without carrying; none: weights 1/p"
        ),
    ] = "carried",
    sampling: Annotated[
        Literal["walk", "bernoulli"],
        Field(description="walk: go through a device's rows in turn; bernoulli: sample them anew in every round"),
    ] = "walk",
    noise: Annotated[bool, Field(description="add the setting's noise to the sketch, too")] = False,
    damping_factor: Annotated[float, Field(description="factor on the damping that the sketch suggests")] = 1.0,
    estimate_arrivals: Annotated[
        bool, Field(description="with memory none: estimate arrival probabilities from who has arrived so far")
    ] = False,
    upload: Annotated[
        Literal["subspace", "factor"],
        Field(description="subspace: a small sketch; factor: that of noisy coded rows, dear but with their privacy"),
    ] = "subspace",
) -> Scheme:
    """Build CCFL, which uses coded data as curvature and has no step size to choose.

    Before training, every device uploads a small sketch of its second moments. In every round each device computes one gradient
    on as many rows as it has time for. The server remembers the last gradients of every device, carries them to the current
    model by the device's own sketch, so that devices that are missing are represented, and takes a preconditioned step.
    The sketch shapes the path of training, not where it ends: that is the centralised optimum.

    References:
        Frangella, Rathore, Zhao, Udell: SketchySGD. SIAM Journal on Mathematics of Data Science, 2024.
        Gu, Huang, Zhang, Huang: Fast Federated Learning in the Presence of Arbitrary Device Unavailability. NeurIPS, 2021.
    """
    return CurvatureCoded(
        name="ccfl",
        title="CCFL",
        upload=Subspace(rank, sketch_rows, noise) if upload == "subspace" else SketchedFactor(rank=rank),
        device=LocalSGD(steps=1, sampling=sampling, deadline=deadline),
        server=None,
        aggregation=InverseProbability(device_weight=1.0),
        final="average",
        colour="#C1121F",
        prominent=True,
        memory=memory,
        damping_factor=damping_factor,
        estimate_arrivals=estimate_arrivals,
    )
