"""Coded uploads as Gaussian laws, straight from the definitions and without any simplification."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def renyi_of_zero_mean_gaussians(A: Matrix, B: Matrix, a: float) -> float:
    """``D_a(N(0, A) || N(0, B)) = ln( |(1-a) A + a B| / (|A|^(1-a) |B|^a) ) / (2 (1-a))``."""
    mixed = (1 - a) * A + a * B
    if np.linalg.eigvalsh(mixed)[0] <= 0:
        return math.inf
    log_dets = [float(np.linalg.slogdet(M)[1]) for M in (mixed, A, B)]
    return (log_dets[0] - (1 - a) * log_dets[1] - a * log_dets[2]) / (2 * (1 - a))


def privacy_losses(A: Matrix, B: Matrix, c: int, releases: int, rng: np.random.Generator) -> Matrix:
    """``ln p / q`` of releases of ``c`` rows drawn from ``p = N(0, A)`` against ``q = N(0, B)``."""
    rows = rng.standard_normal((releases, c, len(A))) @ np.linalg.cholesky(A).T
    difference = np.linalg.inv(B) - np.linalg.inv(A)
    quadratic = np.einsum("rck,km,rcm->r", rows, difference, rows)
    log_dets = [float(np.linalg.slogdet(M)[1]) for M in (A, B)]
    losses: Matrix = 0.5 * quadratic - 0.5 * c * (log_dets[0] - log_dets[1])
    return losses


def printed_interference(X: Matrix) -> float:
    """``h^2`` of Theorem 2, one column at a time."""
    smallest = math.inf
    for column in X.T:
        squares = [float(x) ** 2 for x in column]
        smallest = min(smallest, sum(squares) - max(squares))
    return smallest


def hidden_power(X: Matrix, noise_variance: float) -> float:
    """The least ``1 / [(X_-j^T X_-j + sigma^2 I)^-1]_kk`` over entries, one sample at a time."""
    smallest = math.inf
    for j in range(len(X)):
        others = np.delete(X, j, axis=0)
        precision = np.linalg.inv(others.T @ others + noise_variance * np.eye(X.shape[1]))
        for k in range(X.shape[1]):
            smallest = min(smallest, 1 / float(precision[k, k]))
    return smallest
