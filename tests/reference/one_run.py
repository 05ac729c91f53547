"""Audits with canaries, straight from the definitions: exact fractions, a linear program and a mechanism that leaks."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from scipy import optimize, stats

Vector = npt.NDArray[np.float64]


def p_value(guesses: int, correct: int, canaries: int, success: Fraction, delta: Fraction) -> Fraction:
    """``P[B >= v] + 2 m delta max_i P[v > B >= v - i] / i``, one ``i`` of 1..m at a time, in exact arithmetic."""
    mass = [math.comb(guesses, k) * success**k * (1 - success) ** (guesses - k) for k in range(guesses + 1)]
    worst = Fraction(0)
    for i in range(1, canaries + 1):
        inside = sum((mass[k] for k in range(guesses + 1) if correct > k >= correct - i), Fraction(0))
        worst = max(worst, inside / i)
    return sum(mass[correct:], Fraction(0)) + 2 * canaries * delta * worst


def leaking_tail(guesses: int, correct: int, canaries: int, epsilon: float, delta: float, leaked: int) -> float:
    """``P[V >= v]`` of a mechanism that is exactly (epsilon, delta)-private and sometimes shows coins.

    It is randomised response for every coin and, with probability ``m delta / i``, also shows ``i`` coins drawn at
    random. A coin is among them with probability delta. An auditor guesses these first.
    """
    shown = canaries * delta / leaked
    assert 0 <= shown <= 1
    assert leaked <= guesses
    success = 1 / (1 + math.exp(-epsilon))
    usual = float(stats.binom.sf(correct - 1, guesses, success))
    lucky = float(stats.binom.sf(correct - leaked - 1, guesses - leaked, success))
    return (1 - shown) * usual + shown * lucky


def largest_tail(guesses: int, correct: int, canaries: int, slopes: Vector, heights: Vector) -> float:
    """The largest ``P[V >= v]`` of laws with ``E[V; V >= c] / m <= F(E[r - V; V >= c - 1] / m)`` for all ``c``.

    ``F(b)`` is the least of the lines ``slope b + height``, so that this is a linear program.
    """
    V = np.arange(guesses + 1.0)
    scale = np.maximum(slopes, 1.0)
    rows, limits = [], []
    for c in range(1, guesses + 1):
        right = np.where(c <= V, V, 0.0) / canaries
        wrong = np.where(c - 1 <= V, guesses - V, 0.0) / canaries
        rows.append((right[None, :] - slopes[:, None] * wrong[None, :]) / scale[:, None])
        limits.append(heights / scale)
    solution = optimize.linprog(
        -(correct <= V).astype(float),
        A_ub=np.concatenate(rows),
        b_ub=np.concatenate(limits),
        A_eq=np.ones((1, guesses + 1)),
        b_eq=[1.0],
        bounds=(0, 1),
    )
    assert solution.success
    assert solution.fun is not None
    return -float(solution.fun)


def gaussian_lines(mu: float, step: float) -> tuple[Vector, Vector]:
    """Slopes and heights of tangents of ``Phi(Phi^-1(b) + mu)`` at ``b = Phi(z)``, ``z`` from -9 to 9 in steps."""
    z = np.arange(-9.0, 9.0, step)
    slopes = np.exp(-mu * z - mu * mu / 2)
    return slopes, stats.norm.cdf(z + mu) - slopes * stats.norm.cdf(z)


def private_lines(epsilon: float, delta: float) -> tuple[Vector, Vector]:
    """The two lines of (epsilon, delta): ``e^eps b + delta`` and ``1 - e^-eps (1 - delta - b)``."""
    slopes = np.exp([epsilon, -epsilon])
    return slopes, np.array([delta, 1 - slopes[1] * (1 - delta)])
