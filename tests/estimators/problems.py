"""Data for the estimators, and what least squares makes of it in double precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

from codedfl.typing import FloatArray

QUICK: dict[str, Any] = {"rounds": 10, "devices": 4, "random_state": 0}
"""Parameters of a fit of some ten milliseconds."""

EVERYONE_ARRIVES = {"straggler_ratio": 0.0, "bandwidth_hz": 1e9, "download_rate_bps": 1e9, "mac_rate": 1e9}
"""A fleet without stragglers."""

UNIT_ROUNDOFF = 2.0**-24
"""That of single precision."""


def correlated(rows: int, columns: int, seed: int = 0) -> FloatArray:
    """Return columns of very different means and scales that depend on each other."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(rows, columns)) @ (np.eye(columns) + 0.3 * rng.normal(size=(columns, columns)))
    return np.asarray(10.0 ** rng.uniform(-3, 3, columns) * (mixed + rng.uniform(-5, 5, columns)))


def least_squares(X: FloatArray, targets: FloatArray) -> FloatArray:
    """Return the fitted values of centralised least squares, (m, o)."""
    predicted: FloatArray = LinearRegression().fit(X, targets).predict(X)
    return predicted


def single_precision_bound(X: FloatArray, targets: FloatArray) -> float:
    r"""Return how far single precision can move the fitted values of least squares, in Frobenius norm, to first order.

    The columns ``A`` of the model are standardised inputs over their largest entries, and ones. With ``u`` the unit roundoff they
    are perturbed by ``E``, ``|E| <= 2 u |A|`` (rounding and division), targets by ``f``, ``|f| <= u |Y|``, and the
    solution ``W`` by ``u |W|``. From the normal equations, with the residual ``R``,
    ``A dW = P (f - E W) + A (A^T A)^-1 E^T R``, so that
    ``||A dW|| <= ||f|| + ||E|| ||W|| + ||E|| ||R|| / sigma_min(A)``.
    """
    Z = StandardScaler().fit_transform(X)
    A = np.column_stack([Z / np.abs(Z).max(axis=0), np.ones(len(Z))])
    Y = targets - targets.mean(axis=0)
    W, _, _, singular_values = np.linalg.lstsq(A, Y, rcond=None)
    norm, residual = np.linalg.norm, Y - A @ W
    moved = 2 * UNIT_ROUNDOFF * norm(A)
    bound = UNIT_ROUNDOFF * norm(Y) + moved * (norm(W) + norm(residual) / singular_values[-1])
    return float(bound + UNIT_ROUNDOFF * norm(A) * norm(W))
