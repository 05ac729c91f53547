"""Problem (P1) of Sec. V with every constraint written out, and Problem (P2) by plain pooling."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, brentq, minimize

Vector = npt.NDArray[np.floating[Any]]
Scalar = Callable[[float], float]


def q(noise_variance: float, h2: float, c: float) -> float:
    return 0.5 * math.log2(1 + c / (h2 + noise_variance))


def q_inverse(bits: float, h2: float, c: float) -> float:
    return c / (2 ** (2 * bits) - 1) - h2


def q_inverse_slope(bits: float, c: float) -> float:
    return -c * 2 * math.log(2) * 2 ** (2 * bits) / (2 ** (2 * bits) - 1) ** 2


def solve_p1(
    mu: Vector, h2: Vector, least_noise: Vector, c: float, weight: float, gamma: Scalar, gamma_slope: Scalar
) -> tuple[float, Vector, Vector]:
    """Return the server's utility, budgets and rewards, by SLSQP in all ``eps_i`` and ``r_i``, for ``mu`` in any order."""
    n = len(mu)
    caps = np.array([q(v, h, c) for v, h in zip(least_noise, h2, strict=True)])
    rows = []
    for i in range(n):
        rationality = np.zeros(2 * n)
        rationality[i], rationality[n + i] = -mu[i], 1.0
        rows.append(rationality)  # r_i - mu_i eps_i >= 0
        for j in range(n):
            if i != j:
                compatibility = rationality.copy()
                compatibility[j] += mu[i]
                compatibility[n + j] -= 1.0
                rows.append(compatibility)  # r_i - mu_i eps_i >= r_j - mu_i eps_j

    def utility(x: Vector) -> float:
        return sum(gamma(q_inverse(float(x[i]), h2[i], c)) for i in range(n)) - weight * float(x[n:].sum())

    def scaled_loss(x: Vector, scale: float) -> float:
        return -utility(x) / scale

    def scaled_slope(x: Vector, scale: float) -> Vector:
        own = [-gamma_slope(q_inverse(x[i], h2[i], c)) * q_inverse_slope(x[i], c) for i in range(n)]
        return np.array([*own, *([weight] * n)]) / scale

    flat = float(caps.min()) / 2
    best = np.concatenate([np.full(n, flat), np.full(n, mu.max() * flat)])
    for _ in range(6):  # started again from where it stopped, with the objective near 1
        found = minimize(
            scaled_loss,
            best,
            args=(abs(utility(best)),),
            jac=scaled_slope,
            method="SLSQP",
            bounds=Bounds(np.full(2 * n, 1e-3 * flat), np.concatenate([caps, np.full(n, np.inf)])),
            constraints=LinearConstraint(np.array(rows), 0.0, np.inf),
            options={"ftol": 1e-15, "maxiter": 500},
        )
        x = np.asarray(found.x)
        if (np.array(rows) @ x).min() > -1e-8 and utility(x) >= utility(best):
            best = x
    return utility(best), best[:n], best[n:]


def solve_p2(
    w: Vector, h2: Vector, least_noise: Vector, c: float, weight: float, gamma_slope: Scalar
) -> tuple[Vector, int]:
    """Return the budgets for devices sorted by sensitivity, by pooling one block at a time, and the number of merges."""
    caps = [q(v, h, c) for v, h in zip(least_noise, h2, strict=True)]

    def maximiser(block: list[int]) -> float:
        cap = min(caps[i] for i in block)

        def slope(bits: float) -> float:
            gains = sum(gamma_slope(q_inverse(bits, h2[i], c)) * q_inverse_slope(bits, c) for i in block)
            return gains - weight * float(w[block].sum())

        return cap if slope(cap) >= 0 else float(brentq(slope, 1e-9 * cap, cap, xtol=1e-15, rtol=1e-14))

    blocks: list[tuple[list[int], float]] = []
    merges = 0
    for device in range(len(w)):
        block = [device]
        best = maximiser(block)
        while blocks and blocks[-1][1] < best:
            block = blocks.pop()[0] + block
            best = maximiser(block)
            merges += 1
        blocks.append((block, best))
    return np.array([best for block, best in blocks for _ in block]), merges
