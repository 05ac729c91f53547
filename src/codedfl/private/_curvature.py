"""Private curvature: the mean and the second moments of the features, with noise, before the first round."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from codedfl.coding import Rows, compute_gram
from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.private._budget import Budget, Curvature, divide
from codedfl.private._devices import require_target
from codedfl.private._loss import Loss, LossName, loss_of
from codedfl.training import (
    LARGEST_GRAM,
    Code,
    DevicePlan,
    Geometry,
    Held,
    Release,
    Setting,
    UploadCost,
    without_code,
)
from codedfl.typing import FloatArray

MOST_DIRECTIONS = 64
"""Largest number of directions that the server tells devices to shrink, besides the mean."""

MEAN_FACTOR = 0.3
"""Factor by which the direction of the mean shrinks."""


@dataclass(frozen=True, eq=False)
class PrivateCurvature(Held):
    """What the server knows about the features.

    Args:
        geometry: ``D``, the coordinates for clipping and noise.
        smoothness: a bound ``L`` on the curvature of the loss in these coordinates.
        row_norm: the typical ``||D x||``.
    """

    geometry: Geometry
    smoothness: float
    row_norm: float

    @classmethod
    def unknown(cls, samples: int, bound: float) -> PrivateCurvature:
        """Return what is known of rows of norm ``B`` that nobody told anything about."""
        return cls(Geometry(), samples * bound**2, bound)

    @classmethod
    def from_mean(
        cls, total: FloatArray, deviation: float, summed: int, samples: int, bound: float, dtype: np.dtype[Any]
    ) -> PrivateCurvature:
        """Return what the sum of the features says, with its direction shrunk to `MEAN_FACTOR`.

        Args:
            total: ``sum x + noise``, (d,).
            deviation: standard deviation of that noise.
            summed: rows in the sum.
            samples: rows of all devices.
            bound: ``B``, to which rows were clipped.
            dtype: that of the direction.

        Example:
            >>> total = np.array([100.0, 0.0])
            >>> held = PrivateCurvature.from_mean(total, 0.0, summed=100, samples=200, bound=1.0, dtype=total.dtype)
            >>> round(held.row_norm, 3), round(held.smoothness, 3)
            (0.5, 50.0)
        """
        length = float(np.linalg.norm(total))
        if length == 0:
            return cls.unknown(samples, bound)
        direction = (total / length)[:, None].astype(dtype)
        squared = max(length**2 - len(total) * deviation**2, 0.0) / summed**2
        row_norm = math.sqrt(max(bound**2 - (1 - MEAN_FACTOR**2) * squared, 0.25 * bound**2))
        return cls(Geometry((direction,), (np.array([MEAN_FACTOR]),)), samples * row_norm**2, row_norm)


@dataclass(frozen=True)
class CurvatureUpload:
    """Noisy sums of features and of their second moments, by the Gaussian mechanism.

    First ``sum x + noise``: its direction shrinks to `MEAN_FACTOR`. Then ``sum x' x'^T + noise`` of the shrunk rows, clipped
    to their typical norm ``B'``: one sample changes it by at most ``B'^2``. Symmetrised noise of standard deviation ``s`` has the
    operator norm ``tau = sqrt(2 d) s``, so eigenvalues above it are real. Those directions shrink by ``sqrt(tau / (e + tau))``,
    and no curvature is left above ``tau``.

    Args:
        loss: what is minimised.
        curvature: what to send; see `codedfl.private.divide`.
        sampling_rate: that of the updates, which share the budget.
        rounds: those of the updates; 0 for the number that `codedfl.private.divide` chooses.
    """

    loss: LossName = "auto"
    curvature: Curvature = "auto"
    sampling_rate: float = 1.0
    rounds: int = 0

    @property
    def noise(self) -> bool:
        """True: it is private."""
        return True

    def budget(self, setting: Setting) -> Budget:
        """Return the division of the budget."""
        target, loss = require_target(setting, "private descent"), self.loss_in(setting)
        return divide(setting, target, loss, self.curvature, self.sampling_rate, self.rounds)

    def loss_in(self, setting: Setting) -> Loss:
        """Return the loss that is minimised in a setting."""
        return self.loss_for(setting.federation.task)

    def loss_for(self, task: Task) -> Loss:
        """Return the loss that is minimised for a task, or refuse a softmax of a regression."""
        if self.loss == "softmax" and task == "regression":
            raise InputError(
                'options.dp-gd.loss = "softmax" is for classes, but the task is a regression: use "square".'
            )
        return loss_of(self.loss, task)

    @one_blas_thread()
    def prepare(self, setting: Setting, plan: DevicePlan) -> tuple[tuple[PrivateCurvature], UploadCost]:
        """Return the curvature that the server holds, and the cost."""
        budget, bound = self.budget(setting), clip_norm_of(setting)
        samples, dimension = setting.federation.total_samples, setting.federation.dimension
        held = PrivateCurvature.unknown(samples, bound)
        if math.isfinite(budget.mean_multiplier):
            deviation = budget.mean_multiplier * noise_of_upload(setting) * bound
            noise = setting.streams.at("private-mean").standard_normal(dimension)
            total = clipped_total(setting.federation.features, bound) + deviation * noise
            held = PrivateCurvature.from_mean(
                total, deviation, samples, samples, bound, setting.federation.features.dtype
            )
        if math.isfinite(budget.moments_multiplier) and dimension > 1:
            held = _with_moments(setting, held, budget.moments_multiplier * noise_of_upload(setting))
        return (held,), self.cost(setting, plan)

    def cost(self, setting: Setting, plan: DevicePlan) -> UploadCost:  # noqa: ARG002
        """Charge ``d`` and ``d (d + 1) / 2`` numbers, ``l`` times as many MACs, the eigenvectors, and their download."""
        budget, federation = self.budget(setting), setting.federation
        d, devices = federation.dimension, float(federation.devices)
        moments = math.isfinite(budget.moments_multiplier)
        numbers = d * math.isfinite(budget.mean_multiplier) + moments * d * (d + 1) / 2
        directions = math.isfinite(budget.mean_multiplier) + moments * min(MOST_DIRECTIONS, d)
        cost = UploadCost.charged(
            setting,
            np.full(federation.devices, numbers),
            federation.samples * (numbers + 2.0 * d * directions),
            devices * numbers + moments * 20.0 * MOST_DIRECTIONS * float(d) ** 2,
        )
        return replace(cost, upload_s=cost.upload_s + setting.timing().receiving_s(32 * d * directions))

    def require_possible(self, setting: Setting, plan: DevicePlan) -> None:  # noqa: ARG002
        """Refuse a setting without a target or a clip norm, and second moments that are too large to hold."""
        budget = self.budget(setting)
        clip_norm_of(setting)
        if budget.curvature == "second-moments" and setting.federation.dimension > LARGEST_GRAM:
            raise InputError(
                f"features.dimension = {setting.federation.dimension} is too large to hold second moments (at most "
                f'{LARGEST_GRAM}): use fewer features, or curvature = "mean".'
            )

    def depends_on(self, code: Code) -> Code:
        """Return a blank code with the clip norm: nothing is coded."""
        return replace(without_code(code), clip_norm=code.clip_norm)

    def releases(self, setting: Setting, plan: DevicePlan, device: int) -> tuple[Release, ...]:  # noqa: ARG002
        """Return the mechanisms of what a device sends."""
        return tuple(Release(name, mechanism) for name, mechanism in self.budget(setting).uploads)


def clip_norm_of(setting: Setting) -> float:
    """Return ``B``, or refuse a setting without it."""
    if setting.code.clip_norm is None:
        raise InputError('coding.clip_norm = 0 bounds no sample: set a norm, or "auto".')
    return setting.code.clip_norm


def noise_of_upload(setting: Setting) -> float:
    """Return the noise of a sum over all devices in units of that of one mechanism: everybody uploads, so nothing is missing."""
    target = require_target(setting, "private descent")
    return 1.0 if target.sums_only else math.sqrt(np.count_nonzero(setting.federation.samples))


def clipped_total(features: FloatArray, bound: float) -> FloatArray:
    """Return ``sum x min(1, B / ||x||)``, (d,): one sample changes it by at most ``B``.

    Example:
        >>> clipped_total(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        array([0.6, 1.3])
    """
    weights = bound / np.maximum(Geometry().norms(features), bound)
    total: FloatArray = weights.astype(features.dtype) @ features
    return total


def _with_moments(setting: Setting, held: PrivateCurvature, multiplier: float) -> PrivateCurvature:
    """Return the curvature with the directions of the leading eigenvectors shrunk as well."""
    federation, bound = setting.federation, held.row_norm
    norms = held.geometry.norms(federation.features)
    weights = bound / np.maximum(norms, bound)
    gram = compute_gram([Rows(federation.features, federation.labels, weights)], setting.workers).features
    moments = held.geometry.forward(held.geometry.forward(gram).T)
    deviation = multiplier * bound**2
    draws = setting.streams.at("private-moments").standard_normal(moments.shape)
    moments = moments + deviation * (draws + draws.T) / 2
    edge = math.sqrt(2 * len(moments)) * deviation
    values, vectors = _leading(moments)
    real = values > edge
    values, vectors = values[real], vectors[:, real]
    # Noise pushes an eigenvalue e out to e + edge^2 / (4 e).
    values = (values + np.sqrt(values**2 - edge**2)) / 2
    shrunk = edge / (values + edge)
    energy = (float(np.trace(moments)) - float(np.sum((1 - shrunk) * values))) / federation.total_samples
    row_norm = math.sqrt(min(max(energy, 0.1 * bound**2), bound**2))
    geometry = Geometry(
        (*held.geometry.directions, vectors.astype(federation.features.dtype)),
        (*held.geometry.factors, np.sqrt(shrunk)),
    )
    return PrivateCurvature(geometry, edge, row_norm)


def _leading(matrix: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the largest eigenvalues, at most `MOST_DIRECTIONS`, and their vectors."""
    size = len(matrix)
    if size <= 4 * MOST_DIRECTIONS:
        values, vectors = scipy.linalg.eigh(matrix)
        return values[-MOST_DIRECTIONS:], vectors[:, -MOST_DIRECTIONS:]
    start = np.ones(size)  # a fixed start makes the result reproducible
    values, vectors = scipy.sparse.linalg.eigsh(matrix, k=MOST_DIRECTIONS, which="LA", v0=start)
    return values, vectors
