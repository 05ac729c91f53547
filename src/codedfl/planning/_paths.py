"""The path of training: the model that a scheme returns after any number of rounds, and its score on held-out rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl.data import Task
from codedfl.parallel import one_blas_thread
from codedfl.planning._folds import Fold
from codedfl.planning._linear import Bins, LinearRounds, Moments, follow, momentum_rounds, plain_rounds
from codedfl.planning._parties import DeviceShare, ServerShare
from codedfl.planning._views import View
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Training:
    """The rounds of a scheme on one fold.

    Args:
        fold: the data.
        view: the problem as the scheme sees it.
        devices: the devices' part of a round.
        server: the server's part; None without one.
        code_noise: ``sigma^2`` in the coded data, and the variance of noise on all coded labels.
        average: whether the scheme returns the average of its iterates.
        momentum: ``beta`` of the server's heavy ball; None for plain steps.
        one_step: whether devices and server together take one step on all data (load allocation).
        parity_noise: factor on the sampling noise for the error of each mini-batch's parity data.
    """

    fold: Fold
    view: View
    devices: DeviceShare
    server: ServerShare | None
    code_noise: tuple[float, float]
    average: bool
    momentum: float | None = None
    one_step: bool = False
    parity_noise: float = 1.0

    @cached_property
    def _bins(self) -> Bins:
        return Bins.by_value(self.view.values)

    @property
    def _weight(self) -> float:
        """The sum of all mean weights: the share of the whole gradient in a mean update."""
        if self.one_step:
            return 1.0
        return self.devices.mean_weight + (self.server.weight if self.server else 0.0)

    def rounds(self, step_size: float) -> LinearRounds:
        """Return the round at a step size."""
        step = step_size * self._bins.values
        if self.momentum is not None:
            return momentum_rounds(self._weight * self._bins.values, step_size, self.momentum)
        removed = step if self.one_step else self.devices.moved(step)
        if self.server and not self.one_step:
            removed = removed + self.server.moved(step)
        return plain_rounds(1.0 - removed, -step_size, average=self.average)

    @cached_property
    def _biases(self) -> tuple[FloatArray, FloatArray]:
        """``sum_i a_i g_i`` and ``sum_i a_i H_i g_i`` at the optimum, in the view's basis, both (d, o)."""
        gradients, curved = self.fold.gradients
        weight = self.devices.weight.astype(np.float32)
        summed = (np.tensordot(weight, part, axes=1).astype(np.float64) for part in (gradients, curved))
        first, second = (self.view.turned(part) for part in summed)
        return first, second

    def limit(self, step_size: float) -> FloatArray:
        """Return where the mean model tends to, (d, o): biased towards devices that arrive, and by the drift of local steps."""
        pull, drift = self._biases
        tau = self.devices.local_steps
        bias = 0.0 * pull if self.one_step else (pull - step_size * (tau - 1) / 2 * drift) / max(self._weight, 1e-12)
        floor = max(float(np.abs(self.view.values).max()), 1e-300) * 1e-12
        values = np.where(np.abs(self.view.values) < floor, floor, self.view.values)
        found: FloatArray = (self.view.target - bias) / values[:, None]
        return found

    @cached_property
    def _arrival_noise(self) -> FloatArray:
        """Variance of the update at the optimum by who arrives, in each group, (q,)."""
        gradients, _ = self.fold.gradients
        spread = self.devices.spread
        if self.view.basis is None:
            energy = np.tensordot(spread, np.sum(np.square(gradients, dtype=np.float64), axis=2), axes=1)
        else:
            energy = np.zeros(len(self.view.values))
            with one_blas_thread():
                for weight, gradient in zip(spread, gradients, strict=True):
                    if weight > 0:
                        energy += weight * np.sum(self.view.turned(gradient.astype(np.float64)) ** 2, axis=1)
        return self._bins.sums(energy)

    def moments(self, step_size: float, stops: Sequence[int]) -> Moments:
        """Follow mean and variance of the returned model at a step size."""
        bins, curvature = self._bins, self.view.curvature
        directions = np.bincount(bins.of)
        mean_curvature = bins.sums(curvature) / directions
        limit = self.limit(step_size)
        distance = bins.sums(np.sum(limit**2, axis=1))
        rows = self.fold.gram.samples
        variance, label_variance = self.code_noise
        coded_rest = variance * float(np.sum(limit**2)) + label_variance * limit.shape[1]
        spread = float(np.sum(self.devices.spread * self.devices.shares**2))
        sampling = self.parity_noise * self.devices.batch_noise / rows
        coded = self.server.batch_noise if self.server else 0.0

        def noise(left: FloatArray, spread_out: FloatArray) -> FloatArray:
            error = left**2 * distance + spread_out
            residual = self.fold.residual + float(np.sum(mean_curvature * error))
            level = (sampling * residual + coded * (residual + coded_rest)) * mean_curvature
            level = level + coded * variance * (residual + coded_rest)
            total: FloatArray = level * directions + self._arrival_noise + spread * mean_curvature**2 * error
            return total

        return follow(self.rounds(step_size), stops, noise)

    @one_blas_thread()
    def scores(self, step_size: float, stops: Sequence[int]) -> Scores:
        """Return the score of the returned model on the held-out rows after each number of rounds."""
        moments = self.moments(step_size, stops)
        bins, limit = self._bins, self.limit(step_size)
        per_direction = moments.variance / np.bincount(bins.of) / limit.shape[1]
        usable = np.isfinite(per_direction).all(axis=1) & np.isfinite(moments.left).all(axis=1)
        left, spread = moments.left[usable][:, bins.of], np.sqrt(per_direction[usable])[:, bins.of]
        drawn = standard_normal(self.fold, limit.shape)
        models = (1.0 - left)[:, :, None] * limit + spread[:, :, None] * drawn
        values = row_values(self.fold, self.view.held, models)
        return Scores.of(values, reference_values(self.fold), usable)


@dataclass(frozen=True, eq=False)
class Scores:
    """How far below the optimum models score on held-out rows.

    Args:
        below: score of the optimum less that of each model, infinite for one that has diverged, (k,).
        variance: of the mean difference, over the draw of the rows, times the number of rows, (k,).
        rows: held-out rows.
    """

    below: FloatArray
    variance: FloatArray
    rows: int

    @classmethod
    def of(cls, values: FloatArray, reference: FloatArray, usable: FloatArray) -> Scores:
        """Compare the values of each row, (k, h), with those of the optimum, (h,)."""
        below, variance = np.full(len(usable), np.inf), np.full(len(usable), np.inf)
        difference = reference - values
        below[usable], variance[usable] = difference.mean(axis=1), difference.var(axis=1)
        return cls(below, variance, len(reference))


def row_values(fold: Fold, held: FloatArray, models: FloatArray) -> FloatArray:
    """Return what every held-out row contributes to the score of each model, (k, h): the score is the mean.

    Args:
        fold: the data.
        held: held-out rows in some basis, (h, d).
        models: models in that basis, (k, d, o).
    """
    labels, task = fold.data.test_labels, fold.data.task
    values = np.empty((len(models), len(held)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(models), 16):
            part = models[start : start + 16]
            stacked = np.ascontiguousarray(part.transpose(1, 0, 2).reshape(held.shape[1], -1), held.dtype)
            predictions = (held @ stacked).reshape(len(held), len(part), -1)
            values[start : start + len(part)] = contributions(task, labels[:, None, :], predictions).T
    return values


def contributions(task: Task, labels: FloatArray, predictions: FloatArray) -> FloatArray:
    """Return hits (classification) or one less the squared error over the variance (regression): their mean is the score."""
    if task == "classification":
        hits: FloatArray = (predictions.argmax(axis=-1) == labels.argmax(axis=-1)).astype(np.float32)
        return hits
    variance = np.maximum(labels.var(axis=0), 1e-30)
    return np.asarray(np.mean(1.0 - (predictions - labels) ** 2 / variance, axis=-1))


def reference_values(fold: Fold) -> FloatArray:
    """Return what every held-out row contributes to the score of the optimum of the rows that are left, (h,)."""
    values: FloatArray = fold.once("reference", lambda: row_values(fold, fold.held, fold.optimum[None])[0])
    return values


def standard_normal(fold: Fold, shape: tuple[int, ...]) -> FloatArray:
    """Return the noise that stands for that of training on a fold, the same for all schemes and times."""
    return np.random.Generator(np.random.Philox(fold.index)).standard_normal(shape)
