"""The mean and variance of one SCFL update by enumeration and Wick's theorem: every outcome, every index, no algebra.

What a device sends has finitely many outcomes (arrival, size of the batch, which samples), so they are listed. The server's
batch is listed too; given the batch, the coded rows are independent Gaussians, whose fourth moments are sums over the three
ways of pairing four factors.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from codedfl.typing import FloatArray

Outcomes = list[tuple[float, FloatArray]]


def subsets(rows: int, chance: float) -> list[tuple[float, list[int]]]:
    """Every set of rows, each drawn with the same chance, with its probability."""
    found = []
    for drawn in product([False, True], repeat=rows):
        probability = 1.0
        for one in drawn:
            probability *= chance if one else 1.0 - chance
        found.append((probability, [j for j in range(rows) if drawn[j]]))
    return found


def device_outcomes(
    X: FloatArray, Y: FloatArray, W: FloatArray, p: float, batches: Sequence[tuple[float, int]]
) -> Outcomes:
    """What one device contributes, ``1_i g_i / p_i``, with the probability of each outcome.

    Args:
        X: features.
        Y: labels.
        W: the model.
        p: arrival probability.
        batches: sizes of the batch given arrival, each with its probability.
    """
    rows = len(X)
    outcomes: Outcomes = [(1.0 - p, np.zeros_like(W))]
    for of_size, b in batches:
        for of_batch, batch in subsets(rows, b / rows):
            g = np.zeros_like(W)
            for j in batch:
                g += (rows / b) * np.outer(X[j], X[j] @ W - Y[j])
            outcomes.append((p * of_size * of_batch, g / p))
    return outcomes


def device_variance(devices: Sequence[Outcomes], weights: Sequence[float]) -> float:
    """``E || sum_i w_i 1_i g_i / p_i - mean ||^2`` over all joint outcomes of independent devices."""
    mean = np.zeros_like(devices[0][0][1])
    for outcomes, weight in zip(devices, weights, strict=True):
        for probability, value in outcomes:
            mean = mean + weight * probability * value
    variance = 0.0
    for joint in product(*devices):
        probability, total = 1.0, -mean
        for (chance, value), weight in zip(joint, weights, strict=True):
            probability *= chance
            total = total + weight * value
        variance += probability * float(np.sum(total**2))
    return variance


def row_covariance(
    parts: Sequence[tuple[FloatArray, FloatArray]], W: FloatArray, noise: float, label_noise: float
) -> FloatArray:
    """Covariance of ``(x, r)``, a coded row and its residual ``r = x W - y``, from that of ``(x, y)``."""
    d, o = W.shape
    joint = np.diag([noise] * d + [label_noise] * o)
    for X, Y in parts:
        Z = np.hstack([X, Y])
        joint = joint + Z.T @ Z
    transform = np.block([[np.eye(d), W], [np.zeros((o, d)), -np.eye(o)]])
    covariance: FloatArray = transform.T @ joint @ transform
    return covariance


def wick(M: FloatArray, a: int, b: int, c: int, d: int) -> float:
    """``E[z_a z_b z_c z_d]`` for ``z ~ N(0, M)``."""
    return float(M[a, b] * M[c, d] + M[a, c] * M[b, d] + M[a, d] * M[b, c])


def server_variance(
    parts: Sequence[tuple[FloatArray, FloatArray]],
    W: FloatArray,
    c: int,
    batch: int,
    noise: float,
    label_noise: float,
) -> float:
    """``E || 1/b sum_j s_j x_j r_j^T - sigma^2 W - grad ||^2`` over all batches and all coded rows."""
    d, o = W.shape
    M = row_covariance(parts, W, noise, label_noise)
    target = noise * W
    for X, Y in parts:
        target = target + X.T @ (X @ W - Y)
    variance = 0.0
    for probability, chosen in subsets(c, batch / c):
        for a in range(d):
            for b in range(o):
                r = d + b
                square = 0.0
                for j in chosen:
                    for k in chosen:
                        square += wick(M, a, r, a, r) if j == k else float(M[a, r] ** 2)
                linear = len(chosen) * float(M[a, r])
                K = float(target[a, b])
                variance += probability * (square / batch**2 - 2 * K * linear / batch + K**2)
    return variance


def server_drift_of_two_steps(
    parts: Sequence[tuple[FloatArray, FloatArray]], W: FloatArray, c: int, noise: float, label_noise: float, eta: float
) -> FloatArray:
    """``E[g(W) + g(W - eta g(W))]`` on the coded data, less the same on the data, entry by entry.

    Batches of the two steps are independent, so that given the coded data the mean of the two is ``2 g - eta H~ g`` with
    ``H~ = 1/c sum_j x_j x_j^T - sigma^2 I`` and ``g = 1/c sum_j x_j r_j^T - sigma^2 W``.
    """
    d, o = W.shape
    M = row_covariance(parts, W, noise, label_noise)
    H, gradient = np.zeros((d, d)), np.zeros((d, o))
    for X, Y in parts:
        H += X.T @ X
        gradient += X.T @ (X @ W - Y)
    drift = np.zeros((d, o))
    for a in range(d):
        for b in range(o):
            second = 0.0
            for e in range(d):
                make_up, r = noise * (a == e), d + b
                for j in range(c):
                    for k in range(c):
                        both = wick(M, a, e, e, r) if j == k else float(M[a, e] * M[e, r])
                        second += both / c**2
                second += -make_up * float(M[e, r]) - float(M[a, e]) * noise * W[e, b] + make_up * noise * W[e, b]
            drift[a, b] = -eta * (second - float(H[a] @ gradient[:, b]))
    return drift
