"""Private descent with dense matrices, sample by sample: slow and obviously right.

All noise comes in from outside, as standard normal draws.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codedfl.typing import FloatArray, IntArray


def shrinking(directions: Sequence[FloatArray], factors: Sequence[FloatArray]) -> FloatArray:
    """``D = ... (I - V_2 diag(1 - c_2) V_2^T) (I - V_1 diag(1 - c_1) V_1^T)``, d x d."""
    D = np.eye(len(directions[0]))
    for V, c in zip(directions, factors, strict=True):
        D = (np.eye(len(V)) - V @ np.diag(1 - c) @ V.T) @ D
    return D


def residual(x: FloatArray, y: FloatArray, W: FloatArray, *, softmax: bool) -> FloatArray:
    """``W^T x - y``, or ``softmax(W^T x) - y``."""
    output = W.T @ x
    if softmax:
        exponentials = np.exp(output - output.max())
        output = exponentials / exponentials.sum()
    return np.asarray(output - y)


def clipped_sum(X: FloatArray, Y: FloatArray, W: FloatArray, C: float, D: FloatArray, *, softmax: bool) -> FloatArray:
    """The sum of ``D x r^T``, each of which is scaled down to the norm ``C`` if it exceeds that."""
    total = np.zeros_like(W)
    for x, y in zip(X, Y, strict=True):
        gradient = D @ np.outer(x, residual(x, y, W, softmax=softmax))
        norm = np.linalg.norm(gradient)
        total += gradient if norm <= C else gradient * (C / norm)
    return total


@dataclass(frozen=True)
class Curvature:
    """What the server knows: ``D``, a bound on the curvature, and the typical norm of a row of ``X D^T``."""

    D: FloatArray
    smoothness: float
    row_norm: float


def with_mean(X: FloatArray, B: float, s: float, draws: FloatArray, factor: float) -> Curvature:
    """Shrink the direction of ``sum x + s N(0, 1)``, of rows clipped to the norm ``B``, by a factor."""
    total = s * draws
    for x in X:
        total = total + x * min(1.0, B / np.linalg.norm(x))
    v = total / np.linalg.norm(total)
    D = np.eye(len(v)) - (1 - factor) * np.outer(v, v)
    mean_squared = max(float(total @ total) - len(v) * s**2, 0.0) / len(X) ** 2
    row_norm = math.sqrt(max(B**2 - (1 - factor**2) * mean_squared, B**2 / 4))
    return Curvature(D, len(X) * row_norm**2, row_norm)


def with_moments(X: FloatArray, before: Curvature, s: float, draws: FloatArray) -> Curvature:
    """Shrink the directions whose eigenvalues stand out of the noise, so that no curvature is left above it."""
    B = before.row_norm
    moments = s * (draws + draws.T) / 2
    for x in X:
        mapped = before.D @ x
        mapped = mapped * min(1.0, B / np.linalg.norm(mapped))
        moments = moments + np.outer(mapped, mapped)
    tau = math.sqrt(2 * len(moments)) * s
    values, vectors = np.linalg.eigh(moments)
    D, left = np.eye(len(moments)), float(np.trace(moments))
    for value, v in zip(values, vectors.T, strict=True):
        if value > tau:
            e = (value + math.sqrt(value**2 - tau**2)) / 2
            D = D - (1 - math.sqrt(tau / (e + tau))) * np.outer(v, v)
            left -= e - e * tau / (e + tau)
    row_norm = math.sqrt(min(max(left / len(X), 0.1 * B**2), B**2))
    return Curvature(D @ before.D, tau, row_norm)


@dataclass(frozen=True)
class Constants:
    """Ridge, step and momentum of the heavy ball, and how iterates are averaged."""

    ridge: float
    step: float
    momentum: float
    average_from: int
    growth: float


def polyak(curvature: float, ridge: float, rounds: int) -> tuple[float, float]:
    """Step and momentum for a quadratic with eigenvalues between the ridge and the curvature plus the ridge.

    The condition number is at most (rounds / 1.4)^2, which is what a heavy ball resolves in so many rounds.
    """
    condition = max(min((curvature + ridge) / ridge, (rounds / 1.4) ** 2), 1.0)
    momentum = ((math.sqrt(condition) - 1) / (math.sqrt(condition) + 1)) ** 2
    return (1 + math.sqrt(momentum)) ** 2 / (curvature + ridge), momentum


@dataclass(frozen=True)
class Asked:
    """One round: the devices that arrived, the rows that each one drew, its noise, and the weight of their updates."""

    arrived: list[int]
    rows: list[IntArray]
    noise: list[FloatArray]
    weight: float = 1.0


def descend(
    X: list[FloatArray],
    Y: list[FloatArray],
    D: FloatArray,
    C: float,
    constants: Constants,
    rounds: Sequence[Asked],
    *,
    softmax: bool,
    sampling_rate: float = 1.0,
    least: int = 1,
) -> tuple[list[FloatArray], FloatArray]:
    """Return the model after every round, and the average of the last ones."""
    d, o = X[0].shape[1], Y[0].shape[1]
    W, V = np.zeros((d, o)), np.zeros((d, o))
    total = sum(len(x) for x in X)
    models: list[FloatArray] = []
    weighted, weights = np.zeros((d, o)), 0.0
    for k, asked in enumerate(rounds):
        heard = sum(len(X[i]) for i in asked.arrived)
        if len(asked.arrived) >= least and heard > 0:
            gradient = constants.ridge * W
            for i, rows, noise in zip(asked.arrived, asked.rows, asked.noise, strict=True):
                released = clipped_sum(X[i][rows], Y[i][rows], D.T @ W, C, D, softmax=softmax) + noise
                gradient = gradient + total / heard * released / sampling_rate
            V = constants.momentum * V + gradient
            W = W - constants.step * V
            if k >= constants.average_from:
                weighted = weighted + constants.growth**k * (D.T @ W)
                weights += constants.growth**k
        models.append(D.T @ W)
    return models, weighted / weights if weights > 0 else models[-1]
