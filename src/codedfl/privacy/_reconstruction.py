"""What an attacker who knows some rows of a dataset learns about the others from its coded version (Fig. r1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from codedfl.errors import InputError
from codedfl.privacy._inputs import require_count, require_matrix, require_number, require_same_columns
from codedfl.typing import FloatArray

RIDGE = 1e-9
"""Smallest eigenvalue of ``Sigma_K``, relative to the total energy: less noise cannot be distinguished from rounding."""

TRACY_WIDOM_99 = 2.0234
"""The 99% quantile of the Tracy-Widom law (beta = 1), which the largest eigenvalue of pure noise follows."""


@dataclass(frozen=True, eq=False)
class Reconstruction:
    """What coded data and known rows reveal about the unknown rows ``X_U``, without any oracle.

    The coded data depend on ``X_U`` only through its Gram matrix, so an attacker can at best find a factor ``A`` of it:
    ``X_U ~ R A`` with a rotation ``R`` (R^T R = I) that has to come from elsewhere.

    Args:
        factor: ``A``, (r, d) with ``A^T A ~ X_U^T X_U`` and r at most the number of unknown rows; the strongest first.
        strengths: Estimates of ``z^T Sigma_K^-1 z`` of the directions found, (r,); if a single row ``x`` is unknown, of
            ``x^T Sigma_K^-1 x``.
        threshold: ``sqrt(p / c)``, the strength below which a direction cannot be distinguished from chance.
        ridge: What was added to the diagonal of ``Sigma_K`` to make it invertible; 0 if noise or data suffice.
        unknown_count: Number of rows of ``X_U``.
        known_mean: Mean of the known rows, (d,).
    """

    factor: FloatArray
    strengths: FloatArray
    threshold: float
    ridge: float
    unknown_count: int
    known_mean: FloatArray

    @property
    def gram(self) -> FloatArray:
        """``A^T A``, the estimate of ``X_U^T X_U``, (d, d)."""
        return self.factor.T @ self.factor

    def rotate_to(self, target: FloatArray) -> FloatArray:
        """Return the rows ``R A + (I - R R^T) 1 m^T``, rotated as close to the target rows as possible (Procrustes).

        ``R = argmin ||T - R A||_F`` over ``R^T R = I``. With the truth as target this is an oracle, and an upper limit of
        what leaks; an attacker has to use similar rows instead. If fewer directions than rows were found (r below
        ``unknown_count``), the mean ``m`` of the known rows fills in the rest; if nothing was found, the rows are the baseline
        itself.

        Args:
            target: (unknown_count, d).
        """
        require_matrix("target", target)
        require_same_columns("target", target, "the reconstruction", self.factor)
        if len(target) != self.unknown_count:
            raise InputError(
                f"target has {len(target)} rows but {self.unknown_count} are unknown: give one row for each."
            )
        rotation = procrustes(self.factor, target)
        unexplained = 1 - rotation @ rotation.sum(axis=0)
        return rotation @ self.factor + np.outer(unexplained, self.known_mean)


def reconstruct(
    coded_features: FloatArray, known: FloatArray, unknown_count: int, noise_variance: float
) -> Reconstruction:
    """Estimate the Gram matrix of the unknown rows from the coded data and the known rows.

    Rows of ``X~`` are independent ``N(0, Sigma_K + X_U^T X_U)``, ``Sigma_K = X_K^T X_K + sigma^2 I``. So the whitened second
    moment ``Sigma_K^-1/2 (X~^T X~ / c) Sigma_K^-1/2`` is the identity, up to sampling error, plus a term of rank at most
    the number of unknown rows. This is a spiked covariance, in which a direction of strength ``s`` (eigenvalue 1 + s of
    the expectation) is visible, with ``g = p / c`` and p dimensions of noise, if and only if ``s > sqrt(g)``:

    - Chance alone gives eigenvalues up to the Marchenko-Pastur edge ``(1 + sqrt(g))^2``, and slightly beyond it (the
      Tracy-Widom law). The estimate keeps the eigenpairs above the level that chance alone exceeds in 1% of cases, at most
      ``unknown_count`` of them; more would be noise, which an oracle's rotation then overfits.
    - A kept eigenvalue is too large, ``lambda = (1 + s)(1 + g / s)``, and the squared cosine between its eigenvector and the
      true one is only ``(1 - g / s^2) / (1 + g / s)``. The factor is weighted by ``s`` times that, which minimises the squared
      error of the (whitened) Gram matrix. Both corrections vanish as c grows.

    Without noise, and with fewer known rows than columns or with columns of zeros, ``Sigma_K`` is singular. A ridge of
    ``RIDGE`` times the energy of known and coded rows then makes it invertible. Only unknown rows have a part in the
    directions that the ridge adds, so these are found with any c, and the noise has ``p = rank(X_K)`` dimensions, not d.

    Args:
        coded_features: ``X~``, (c, d).
        known: ``X_K``, (k, d).
        unknown_count: Number of rows of ``X_U``.
        noise_variance: ``sigma^2``, known to the server.

    Returns:
        The factor of the Gram matrix and the strengths of its directions.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> X, G = rng.standard_normal((50, 8)), rng.standard_normal((10_000, 50))
        >>> found = reconstruct(G @ X, known=X[1:], unknown_count=1, noise_variance=0.0)
        >>> found.factor.shape, bool(found.strengths[0] > found.threshold)
        ((1, 8), True)

    References:
        Donoho, Gavish, Johnstone, "Optimal shrinkage of eigenvalues in the spiked covariance model", Annals of Statistics 2018.
    """
    _check(coded_features, known, unknown_count, noise_variance)
    (c, d), rows, coded = coded_features.shape, known.astype(np.float64), coded_features.astype(np.float64, copy=False)
    moment, covariance = coded.T @ coded / c, rows.T @ rows
    floor = RIDGE * (np.trace(moment) + np.trace(covariance))
    ridge, dimensions = 0.0, d
    if noise_variance < floor:
        values = scipy.linalg.eigvalsh(covariance)
        dimensions = int(np.sum(values > floor))
        ridge = floor if dimensions < d else 0.0
    covariance[np.diag_indices(d)] += noise_variance + ridge
    root = scipy.linalg.cholesky(covariance, lower=True)
    half = scipy.linalg.solve_triangular(root, moment, lower=True)
    whitened = scipy.linalg.solve_triangular(root, half.T, lower=True)
    noise = dimensions / c
    values, vectors = scipy.linalg.eigh(whitened, driver="evr", subset_by_value=(_noise_edge(c, dimensions), np.inf))
    kept = slice(None, -min(unknown_count, d) - 1, -1)
    strengths = _strengths(values[kept], noise)
    weights = strengths * (1 - noise / strengths**2) / (1 + noise / strengths)
    factor = np.sqrt(np.maximum(weights, 0.0))[:, None] * (root @ vectors[:, kept]).T
    return Reconstruction(factor, strengths, float(np.sqrt(noise)), ridge, unknown_count, rows.mean(axis=0))


def procrustes(factor: FloatArray, target: FloatArray) -> FloatArray:
    """Return the rotation ``R`` (n, r), ``R^T R = I``, that minimises ``||T - R A||_F``: ``U V^T`` of the SVD of ``T A^T``.

    Args:
        factor: ``A``, (r, d).
        target: ``T``, (n, d), n at least r.

    Example:
        >>> procrustes(np.array([[2.0, 0.0]]), target=np.array([[0.0, 1.0], [-3.0, 0.0]])).tolist()
        [[0.0], [-1.0]]
    """
    left, _, right = scipy.linalg.svd(target.astype(np.float64) @ factor.astype(np.float64).T, full_matrices=False)
    rotation: FloatArray = left @ right
    return rotation


def _noise_edge(c: int, dimensions: int) -> float:
    """Return the 99% quantile of the largest eigenvalue of pure noise (Johnstone, Annals of Statistics 2001)."""
    if dimensions == 0:
        return 1.0
    roots = np.sqrt(c) + np.sqrt(dimensions)
    spread = roots / c * (1 / np.sqrt(c) + 1 / np.sqrt(dimensions)) ** (1 / 3)
    return float(roots**2 / c + TRACY_WIDOM_99 * spread)


def _strengths(eigenvalues: FloatArray, noise: float) -> FloatArray:
    """Solve ``lambda = (1 + s)(1 + g / s)`` for the larger ``s``."""
    excess = eigenvalues - 1 - noise
    strengths: FloatArray = (excess + np.sqrt(np.maximum(excess**2 - 4 * noise, 0.0))) / 2
    return strengths


def _check(coded_features: FloatArray, known: FloatArray, unknown_count: int, noise_variance: float) -> None:
    require_matrix("coded_features", coded_features)
    require_matrix("known", known)
    require_same_columns("coded_features", coded_features, "known", known)
    require_count("unknown_count", unknown_count)
    require_number("noise_variance", noise_variance)
    if float(np.abs(coded_features).max()) < 1e-100:
        raise InputError("coded_features = 0 in every entry, to within 1e-100: there is nothing to reconstruct.")
