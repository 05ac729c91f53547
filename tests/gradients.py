"""Gradient steps of one party with one model, as most tests want them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedfl.training import DevicePlan, ServerPlan, Start, Steps, accumulate_gradients
from codedfl.training.engine import _gradients as gradients
from codedfl.training.engine import _kernel as kernel
from codedfl.training.engine._sampling import Batch
from codedfl.typing import FloatArray


def steps_of(
    X: FloatArray,
    Y: FloatArray,
    W: FloatArray,
    batches: Sequence[Batch],
    *,
    scale: float = 1.0,
    step_size: float = 0.0,
    make_up: float = 0.0,
) -> Steps:
    return Steps(X, Y, batches, scale, [Start(W, step_size, make_up)])


def gradient(X: FloatArray, Y: FloatArray, W: FloatArray, batches: Sequence[Batch], **how: float) -> FloatArray:
    """The accumulated gradient, by the kernel where it suits."""
    [[total]] = accumulate_gradients([steps_of(X, Y, W, batches, **how)])
    return total


def device_update(
    plan: DevicePlan, device: int, round: int, batch_size: int, W: FloatArray, step_size: float
) -> FloatArray:
    [[total]] = accumulate_gradients([plan.steps(device, round, batch_size, [Start(W, step_size)])])
    return total


def server_update(plan: ServerPlan, round: int, W: FloatArray, step_size: float) -> FloatArray:
    [[total]] = accumulate_gradients([plan.steps(round, [Start(W, step_size, plan.make_up)])])
    return total


def gradient_by_numpy(
    X: FloatArray, Y: FloatArray, W: FloatArray, batches: Sequence[Batch], **how: float
) -> FloatArray:
    [total] = gradients._with_numpy(steps_of(X, Y, W, batches, **how))
    return total


def kernel_suits(X: FloatArray, Y: FloatArray, W: FloatArray) -> bool:
    return kernel.suits(steps_of(X, Y, W, [np.array([0])]))
