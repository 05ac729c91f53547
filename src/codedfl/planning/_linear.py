"""Rounds as linear maps with noise: the mean and the variance of the model after any number of rounds.

In a basis in which the mean round is diagonal, every direction ``j`` has a small state of its own, such as the error ``x`` of
the model, the velocity of a momentum and the sum of all iterates. A round maps it by a matrix that depends on the direction's
eigenvalue alone, and adds noise:

    ``z' = A_j z + B xi``, ``E xi^2 = n_j``.

Powers of ``A_j`` and the covariance that noise adds up to over many rounds follow by doubling, so that thousands of rounds
take a few matrix products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
