"""The path of training: the model that a scheme returns after any number of rounds, and its score on held-out rows.

Rounds are linear maps with noise. In a basis in which the mean round is diagonal, every direction ``j`` has a small state of
its own, such as the error ``x`` of the model, the velocity of a momentum and the sum of all iterates. A round maps it by a matrix
that depends on the direction's eigenvalue alone, and adds noise:

    ``z' = A_j z + B xi``, ``E xi^2 = n_j``.

Powers of ``A_j`` and the covariance that noise adds up to over many rounds follow by doubling, so that thousands of rounds
take a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl.data import Task
from codedfl.parallel import one_blas_thread
from codedfl.planning._folds import Fold, View
from codedfl.planning._parties import DeviceShare, ServerShare
from codedfl.typing import FloatArray, IntArray

BINS_PER_FACTOR_E = 25.0
"""Directions whose eigenvalues differ by less than a factor exp(1 / this) are treated alike."""


@dataclass(frozen=True, eq=False)
class LinearRounds:
    """The round of every group of directions.

    Args:
        transition: ``A``, (q, s, s); the error comes first in the state, the sum of iterates last if there is one.
        noise_input: ``B``, (q, s).
        average: whether the last entry of the state sums up the errors of all iterates.
    """

    transition: FloatArray
    noise_input: FloatArray
    average: bool

    @property
    def growth(self) -> float:
        """The largest factor by which a round multiplies an error, over all directions."""
        inner = self.transition[:, :-1, :-1] if self.average else self.transition
        return float(np.abs(np.linalg.eigvals(inner)).max())

    @cached_property
    def _powers(self) -> list[tuple[FloatArray, FloatArray]]:
        unit = self.noise_input[:, :, None] * self.noise_input[:, None, :]
        return [(self.transition, unit)]

    def over(self, rounds: int) -> tuple[FloatArray, FloatArray]:
        """Return ``A^n`` and the covariance that unit noise in each of ``n`` rounds adds up to, both (q, s, s).

        Example:
            >>> halving = LinearRounds(np.array([[[0.5]]]), np.array([[1.0]]), average=False)
            >>> power, covariance = halving.over(3)
            >>> power.item(), covariance.item()  # 1/8, and 1 + 1/4 + 1/16
            (0.125, 1.3125)
        """
        size = self.transition.shape[1]
        power = np.broadcast_to(np.eye(size), self.transition.shape)
        total = np.zeros_like(self.transition)
        bit = 0
        with np.errstate(over="ignore", invalid="ignore"):
            while rounds >> bit:
                if bit == len(self._powers):
                    step, added = self._powers[-1]
                    self._powers.append((step @ step, _moved(step, added) + added))
                if rounds >> bit & 1:
                    step, added = self._powers[bit]
                    power, total = step @ power, _moved(step, total) + added
                bit += 1
        return power, total


def _moved(step: FloatArray, covariance: FloatArray) -> FloatArray:
    moved: FloatArray = step @ covariance @ np.swapaxes(step, 1, 2)
    return moved


@dataclass(frozen=True, eq=False)
class Bins:
    """Groups of directions with nearly the same eigenvalue.

    Args:
        of: the group of each direction, (d,).
        values: the mean eigenvalue of each group, (q,).

    Example:
        >>> bins = Bins.by_value(np.array([1.0, 1.001, 2.0]))
        >>> bins.of.tolist(), bins.sums(np.array([1.0, 1.0, 5.0])).tolist()
        ([0, 0, 1], [2.0, 5.0])
    """

    of: IntArray
    values: FloatArray

    @classmethod
    def by_value(cls, values: FloatArray) -> Bins:
        """Group directions by eigenvalue; the sign counts, and everything near zero is one group."""
        floor = max(float(np.abs(values).max()), 1e-300) * 1e-9
        size = np.rint(BINS_PER_FACTOR_E * np.log(np.maximum(np.abs(values), floor) / floor)).astype(np.int64)
        _, of = np.unique(np.where(values < 0, -size, size), return_inverse=True)
        of = of.reshape(-1)
        return cls(of, np.bincount(of, values) / np.bincount(of))

    def sums(self, values: FloatArray) -> FloatArray:
        """Return the sum of values over each group, (q,)."""
        summed: FloatArray = np.bincount(self.of, values, minlength=len(self.values)).astype(np.float64)
        return summed


@dataclass(frozen=True, eq=False)
class Moments:
    """Mean and variance of the model that a scheme would return, after each of several numbers of rounds.

    Args:
        rounds: the numbers of rounds, (k,).
        left: share of the initial error that is left on average, (k, q).
        variance: the variance in each group, summed over its directions and all outputs, (k, q).
    """

    rounds: IntArray
    left: FloatArray
    variance: FloatArray


def follow(
    linear: LinearRounds, rounds: Sequence[int], noise: Callable[[FloatArray, FloatArray], FloatArray]
) -> Moments:
    """Follow mean and variance through the rounds.

    Args:
        linear: the round.
        rounds: numbers of rounds to stop at, rising, the first 0 or more.
        noise: ``n``, the noise of a round in each group, (q,), given the share of the initial error that is left in the last
            iterate and the iterate's variance; evaluated at every stop and used up to the next.
    """
    groups, size = linear.transition.shape[:2]
    mean = np.zeros((groups, size))
    mean[:, 0] = 1.0
    covariance = np.zeros((groups, size, size))
    done = 0
    left, variance = [], []
    for stop in rounds:
        with np.errstate(over="ignore", invalid="ignore"):
            if stop > done:
                power, added = linear.over(stop - done)
                level = noise(mean[:, 0], covariance[:, 0, 0])
                mean = (power @ mean[:, :, None])[:, :, 0]
                covariance = _moved(power, covariance) + level[:, None, None] * added
                done = stop
            if linear.average and done:
                left.append(mean[:, -1] / done)
                variance.append(covariance[:, -1, -1] / done**2)
            else:
                left.append(mean[:, 0])
                variance.append(covariance[:, 0, 0])
    return Moments(np.array(rounds), np.array(left), np.maximum(np.array(variance), 0.0))


def plain_rounds(factors: FloatArray, noise_gain: float, *, average: bool) -> LinearRounds:
    """Return rounds that multiply the error by a factor: ``x' = a x + g xi``, with the sum of iterates if it is needed."""
    groups = len(factors)
    if not average:
        return LinearRounds(factors[:, None, None], np.full((groups, 1), noise_gain), average=False)
    transition = np.zeros((groups, 2, 2))
    transition[:, 0, 0], transition[:, 1, 0], transition[:, 1, 1] = factors, 1.0, 1.0
    return LinearRounds(transition, np.tile([noise_gain, 0.0], (groups, 1)), average=True)


def momentum_rounds(curvature: FloatArray, step_size: float, momentum: float) -> LinearRounds:
    """Return heavy-ball rounds, averaged: ``v' = beta v + h x + xi``, ``x' = x - eta v'``, ``s' = s + x``."""
    groups = len(curvature)
    transition = np.zeros((groups, 3, 3))
    transition[:, 0, 0], transition[:, 0, 1] = 1.0 - step_size * curvature, -step_size * momentum
    transition[:, 1, 0], transition[:, 1, 1] = curvature, momentum
    transition[:, 2, 0], transition[:, 2, 2] = 1.0, 1.0
    return LinearRounds(transition, np.tile([-step_size, 1.0, 0.0], (groups, 1)), average=True)


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
        limit: FloatArray = (self.view.target - bias) / values[:, None]
        return limit

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
        values = row_values(self.fold, self.view.held_out, models)
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


def row_values(fold: Fold, held_out: FloatArray, models: FloatArray) -> FloatArray:
    """Return what every held-out row contributes to the score of each model, (k, h): the score is the mean.

    Args:
        fold: the data.
        held_out: held-out rows in some basis, (h, d).
        models: models in that basis, (k, d, o).
    """
    labels, task = fold.data.test_labels, fold.data.task
    values = np.empty((len(models), len(held_out)), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(models), 16):
            part = models[start : start + 16]
            stacked = np.ascontiguousarray(part.transpose(1, 0, 2).reshape(held_out.shape[1], -1), held_out.dtype)
            predictions = (held_out @ stacked).reshape(len(held_out), len(part), -1)
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
    values: FloatArray = fold.once("reference", lambda: row_values(fold, fold.held_out, fold.optimum[None])[0])
    return values


def standard_normal(fold: Fold, shape: tuple[int, ...]) -> FloatArray:
    """Return the noise that stands for that of training on a fold, the same for all schemes and times."""
    return np.random.Generator(np.random.Philox(fold.index)).standard_normal(shape)
