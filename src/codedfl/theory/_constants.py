"""The constants of Assumption 1 of the paper, from data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy.linalg
from scipy.optimize import minimize_scalar

from codedfl._validation import require_positive
from codedfl.coding import Gram, Rows, compute_gram
from codedfl.theory._round import require_moderate
from codedfl.typing import FloatArray

Method = Literal["exact", "cheap"]


@dataclass(frozen=True, eq=False)
class Constants:
    """The constants of the bounds: norms of the data and of the models during training.

    Args:
        radius: ``phi``; every model during training lies within ``||W||_F <= phi``.
        feature_norm: ``zeta_i^2 = alpha_i^2 = ||X_i||_F^2``, (N,).
        residual: ``kappa_i^2``, the largest ``||X_i W - Y_i||_F^2`` within the radius, (N,).
        smoothness: ``L = lambda_max(X^T X)``.
        strong_convexity: ``mu = lambda_min(X^T X)``.
        optimum_norm: ``||W*||_F``.
    """

    radius: float
    feature_norm: FloatArray
    residual: FloatArray
    smoothness: float
    strong_convexity: float
    optimum_norm: float

    @property
    def printed_strong_convexity(self) -> float:
        """``alpha = sum_i alpha_i^2 = ||X||_F^2``, which the paper takes for the strong convexity of the loss: at least ``L``."""
        return float(np.sum(self.feature_norm))


def measure_constants(
    parts: tuple[Rows, ...], radius: float, *, gram: Gram | None = None, method: Method = "exact"
) -> Constants:
    """Measure the constants of Assumption 1.

    Args:
        parts: the samples of each device.
        radius: ``phi``.
        gram: second moments of all data, if already computed.
        method: ``exact`` decomposes the Hessian of every device, about ``25 d^3`` operations each. ``cheap`` reads the
            data once: ``kappa_i <= ||X_i||_F phi + ||Y_i||_F`` and ``mu >= 0``, which still give valid bounds.

    Example:
        >>> parts = (Rows(np.diag([1.0, 2.0]), np.zeros((2, 1))),)
        >>> exact, cheap = (measure_constants(parts, 3.0, method=method) for method in ("exact", "cheap"))
        >>> exact.residual.round(6), exact.smoothness, exact.strong_convexity
        (array([36.]), 4.0, 1.0)
        >>> cheap.residual.round(6), round(cheap.smoothness, 6), cheap.strong_convexity
        (array([45.]), 4.0, 0.0)
    """
    require_positive("radius", radius)
    require_moderate("radius", radius)
    gram = gram or compute_gram(parts)
    feature_norm = np.array([_square(part.features) for part in parts])
    if method == "cheap":
        label_norm = np.array([_square(part.labels) for part in parts])
        residual = (np.sqrt(feature_norm) * radius + np.sqrt(label_norm)) ** 2
        smoothness, strong_convexity = gram.smoothness, 0.0
    else:
        residual = np.array([largest_residual(compute_gram([part]), radius) for part in parts])
        eigenvalues = scipy.linalg.eigvalsh(gram.features)
        smoothness, strong_convexity = float(eigenvalues[-1]), max(float(eigenvalues[0]), 0.0)
    return Constants(radius, feature_norm, residual, smoothness, strong_convexity, float(np.linalg.norm(gram.optimum)))


def largest_residual(gram: Gram, radius: float) -> float:
    """Return ``kappa^2 = max ||X W - Y||_F^2`` over ``||W||_F <= phi``.

    The maximum of a convex quadratic over a ball has no duality gap, so it is the minimum over ``nu > lambda_max`` of
    ``nu phi^2 + sum_k g_k / (nu - lambda_k) + ||Y||^2``, where ``lambda_k`` are the eigenvalues of ``X^T X`` and ``g_k`` the
    squared norms of the rows of ``X^T Y`` in their basis. Every ``nu`` gives an upper bound, so rounding errs on the
    safe side.
    """
    eigenvalues, vectors = scipy.linalg.eigh(gram.features)
    weights = np.sum((vectors.T @ gram.cross) ** 2, axis=1)
    top, label_norm = float(eigenvalues[-1]), float(np.trace(gram.labels))
    furthest = np.sqrt(weights.sum()) / radius
    if furthest <= 0:
        return max(top, 0.0) * radius**2 + label_norm

    def dual(log_excess: float) -> float:
        excess = np.exp(log_excess)
        return float((top + excess) * radius**2 + np.sum(weights / (excess + (top - eigenvalues))))

    # At the minimum nu - lambda_max is at most ||X^T Y|| / phi; the search covers fourteen orders of magnitude below it.
    found = minimize_scalar(dual, bounds=(np.log(furthest) - 32, np.log(furthest) + 1e-9), method="bounded")
    return min(float(found.fun), dual(float(np.log(furthest)))) + label_norm


def _square(values: FloatArray) -> float:
    return float(np.sum(np.square(values, dtype=np.float64)))
