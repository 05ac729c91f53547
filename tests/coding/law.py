"""What the coded rows must look like: independent draws from N(0, S), judged against their own standard errors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import scipy.linalg
import scipy.stats
from scipy.spatial.distance import cdist

from codedfl.coding import CodedData, Rows
from codedfl.typing import FloatArray

SIGMAS = 4.5
"""A correct entry is further off than this with probability 7e-6."""

KS_LEVEL = 1e-3
"""False alarms of one Kolmogorov-Smirnov comparison, shared by its projections (Bonferroni)."""

ENERGY_LEVEL = 0.01
"""False alarms of one permutation test."""


def random_rows(samples: int, d: int, o: int, seed: int, *, weighted: bool = False, scale: float = 1.0) -> Rows:
    """Data with unequal columns that are correlated with each other and with the labels."""
    rng = np.random.default_rng(seed)
    X = scale * (rng.standard_normal((samples, d)) @ (np.eye(d) + 0.4) + 0.3)
    Y = X @ rng.standard_normal((d, o)) + 0.5 * scale * rng.standard_normal((samples, o))
    return Rows(X, Y, rng.uniform(0.2, 1.5, samples) if weighted else None)


def joined(coded: CodedData) -> FloatArray:
    """Return ``[X~ Y~]``."""
    return np.hstack([coded.features, coded.labels])


def triangular_factor(rows: FloatArray) -> FloatArray:
    """Return the upper triangle ``R`` with ``R^T R = Z^T Z`` and a diagonal of zero or more."""
    upper = np.atleast_2d(scipy.linalg.qr(rows, mode="r")[0])[: rows.shape[1]]
    triangle: FloatArray = upper * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
    return triangle


def covariance(devices: Sequence[Rows], noise_variance: float, label_noise_variance: float = 0.0) -> FloatArray:
    """Return ``S = sum_i [X_i Y_i]^T W_i^2 [X_i Y_i] + diag(sigma^2 I, sigma_Y^2 I)``, one sample after the other."""
    d, o = devices[0].features.shape[1], devices[0].labels.shape[1]
    S = np.diag([noise_variance] * d + [label_noise_variance] * o).astype(np.float64)
    for rows in devices:
        weights = np.ones(len(rows)) if rows.weights is None else rows.weights
        for x, y, w in zip(rows.features, rows.labels, weights, strict=True):
            z = w * np.concatenate([x, y]).astype(np.float64)
            S += np.outer(z, z)
    return S


def second_moment_error(S: FloatArray, c: int) -> FloatArray:
    """Return the standard error of each entry of ``Z^T Z / c`` for c rows from N(0, S) (Wishart)."""
    error: FloatArray = np.sqrt((S**2 + np.outer(np.diag(S), np.diag(S))) / c)
    return error


def assert_within(deviation: FloatArray, error: FloatArray) -> None:
    """Fail where a deviation is more than ``SIGMAS`` of its standard errors (or of rounding, where that is zero)."""
    rounding = 1e-12 * np.max(error)
    worst = np.max(np.abs(deviation) / (error + rounding))
    assert worst <= SIGMAS, f"off by {worst:.1f} standard errors"


def assert_rows_follow(rows: FloatArray, S: FloatArray) -> None:
    """Check the mean and every second moment of rows that should be independent draws from N(0, S)."""
    c = len(rows)
    assert_within(rows.mean(axis=0), np.sqrt(np.diag(S) / c))
    assert_within(rows.T @ rows / c - S, second_moment_error(S, c))


def assert_rows_uncorrelated(rows: FloatArray, S: FloatArray, lag: int) -> None:
    """Check that rows ``lag`` apart have no cross moment; each product has variance S_ii S_jj if they are independent."""
    pairs = len(rows) - lag
    moment = rows[:-lag].T @ rows[lag:] / pairs
    assert_within(moment, np.sqrt(np.outer(np.diag(S), np.diag(S)) / pairs))


def worst_deviation(a: FloatArray, b: FloatArray, S: FloatArray) -> float:
    """Return the largest difference of second moments of two samples, in standard errors of the difference."""
    error = np.hypot(second_moment_error(S, len(a)), second_moment_error(S, len(b)))
    return float(np.max(np.abs(a.T @ a / len(a) - b.T @ b / len(b)) / error))


def projections_differ(a: FloatArray, b: FloatArray, *, directions: int = 8, seed: int = 0) -> bool:
    """Compare two samples along random directions by Kolmogorov-Smirnov."""
    along = np.random.default_rng(seed).standard_normal((a.shape[1], directions))
    p = [scipy.stats.ks_2samp(x, y, method="asymp").pvalue for x, y in zip((a @ along).T, (b @ along).T, strict=True)]
    return bool(min(p) < KS_LEVEL / directions)


def energy_differs(a: FloatArray, b: FloatArray, *, permutations: int = 499, seed: int = 0) -> bool:
    """Compare two samples of equal size by a permutation test on the energy distance, ``-s^T D s`` with s = +-1/n."""
    assert len(a) == len(b)
    distances = cdist(np.vstack([a, b]), np.vstack([a, b]))
    signs = np.repeat([1.0, -1.0], len(a)) / len(a)
    rng = np.random.default_rng(seed)
    all_signs = np.array([signs, *(rng.permutation(signs) for _ in range(permutations))])
    energy = -np.sum((all_signs @ distances) * all_signs, axis=1)
    p = np.mean(energy >= energy[0] * (1 - 1e-12))
    return bool(p <= ENERGY_LEVEL)
