"""Reconstruction of coded data by an attacker who knows some of the rows, and how accurate it is (Fig. r1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.optimize import linear_sum_assignment

from codedfl.coding import Rows, encode
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy._inputs import require_count, require_matrix, require_number, require_same_columns
from codedfl.typing import FloatArray, IntArray

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
    _check_reconstruction(coded_features, known, unknown_count, noise_variance)
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


def _check_reconstruction(
    coded_features: FloatArray, known: FloatArray, unknown_count: int, noise_variance: float
) -> None:
    require_matrix("coded_features", coded_features)
    require_matrix("known", known)
    require_same_columns("coded_features", coded_features, "known", known)
    require_count("unknown_count", unknown_count)
    require_number("noise_variance", noise_variance)
    if float(np.abs(coded_features).max()) < 1e-100:
        raise InputError("coded_features = 0 in every entry, to within 1e-100: there is nothing to reconstruct.")


@dataclass(frozen=True)
class AttackResult:
    """Relative errors ``||X_U - matched||_F / ||X_U||_F`` of one attack; a lower error means more leakage.

    Every guess is matched to the truth in the same way (`matched_error`). Rotation and matching use information that an
    attacker does not have, so each attack comes with a control, in which rows resampled from ``X_K`` replace what was
    found in the coded data. Coded data leak to the extent that an attack is below both its control and the baseline.

    Args:
        oracle_error: Rotated by an oracle that knows the truth: an upper limit of what leaks.
        feasible_error: Rotated towards rows resampled from ``X_K``, as an attacker can do.
        baseline_error: The mean of ``X_K`` as the guess for every row.
        oracle_control_error: The resampled rows, rotated by the oracle. If many rows are unknown, this is far below the
            baseline and sometimes below ``oracle_error``: then the oracle reveals more than the coded data do.
        feasible_control_error: The resampled rows, not rotated.
        known: Number of rows of ``X_K``.
        unknown: Number of rows of ``X_U``.
    """

    oracle_error: float
    feasible_error: float
    baseline_error: float
    oracle_control_error: float
    feasible_control_error: float
    known: int
    unknown: int


def attack_error(
    features: FloatArray, known_ratio: float, coded_samples: int, noise_variance: float, rng: np.random.Generator
) -> AttackResult:
    """Encode a dataset, reveal some of its rows to an attacker, and measure how well the others are reconstructed.

    Rows of zeros leave no trace in coded data and are left out. With the same generator state, the known rows and the
    projection are the same at any noise, and the known rows are nested as the ratio grows.

    Args:
        features: ``X``, (l, d): the rows of one device if the server sees its upload, of all devices if it sees only the sum.
        known_ratio: Share of rows that the attacker knows, above 0 and below 1; at least one row is known and one is not.
        coded_samples: ``c``.
        noise_variance: ``sigma^2`` in what the server sees.
        rng: Source of the known rows, the coded data, and the rows towards which the feasible attack rotates.

    Returns:
        The relative errors of the attack, its controls and the baseline.

    Example:
        >>> X = np.random.default_rng(0).uniform(size=(21, 16))
        >>> result = attack_error(X, 0.95, 10_000, 0.0, np.random.default_rng(1))
        >>> result.known, result.unknown, result.oracle_error < 0.1 < result.baseline_error
        (20, 1, True)
    """
    rows = _attackable(features)
    _check_attack(known_ratio, coded_samples, noise_variance)
    with one_blas_thread():
        return _attack(rows, known_ratio, coded_samples, noise_variance, rng)


def matched_error(truth: FloatArray, guess: FloatArray) -> float:
    """Return ``||X - matched||_F / ||X||_F``, with the guessed rows in the order and with the signs that fit the truth best.

    Coded data show neither the order of the rows nor their signs, so the Hungarian method assigns guesses to rows by the
    squared distances ``min ||x -+ guess||^2``.

    Args:
        truth: ``X``, (n, d), not all zeros.
        guess: (n, d).

    Example:
        >>> X = np.array([[1.0, 0.0], [0.0, 2.0]])
        >>> matched_error(X, np.array([[0.0, -2.0], [1.0, 0.0]])), matched_error(X, 0 * X)
        (0.0, 1.0)
    """
    require_matrix("truth", truth)
    require_matrix("guess", guess)
    if truth.shape != guess.shape:
        raise InputError(f"guess has shape {guess.shape} but truth has {truth.shape}: give one guess for each row.")
    X, guesses = truth.astype(np.float64), guess.astype(np.float64)
    total = float(np.linalg.norm(X))
    if total == 0:
        raise InputError("truth = 0 in every entry: a relative error needs at least one entry that is not zero.")
    products = X @ guesses.T
    costs = np.sum(guesses**2, axis=1) - 2 * np.abs(products)
    order, matched = linear_sum_assignment(costs)
    signs = np.where(products[order, matched] < 0, -1.0, 1.0)
    return float(np.linalg.norm(X - signs[:, None] * guesses[matched]) / total)


def _attack(X: FloatArray, known_ratio: float, c: int, noise_variance: float, rng: np.random.Generator) -> AttackResult:
    known_count = min(max(round(known_ratio * len(X)), 1), len(X) - 1)
    order: IntArray = rng.permutation(len(X))
    known, unknown = X[order[:known_count]], X[order[known_count:]]
    resampled = known[rng.choice(len(known), len(unknown), replace=len(unknown) > len(known))]
    coded = encode(Rows(X, np.empty((len(X), 0), X.dtype)), c, noise_variance=noise_variance, rng=rng).features
    found = reconstruct(coded, known, len(unknown), noise_variance)
    return AttackResult(
        oracle_error=matched_error(unknown, found.rotate_to(unknown)),
        feasible_error=matched_error(unknown, found.rotate_to(resampled)),
        baseline_error=matched_error(unknown, np.tile(known.mean(axis=0), (len(unknown), 1))),
        oracle_control_error=matched_error(unknown, procrustes(resampled, unknown) @ resampled),
        feasible_control_error=matched_error(unknown, resampled),
        known=len(known),
        unknown=len(unknown),
    )


def _attackable(features: FloatArray) -> FloatArray:
    require_matrix("features", features)
    rows = features[features.any(axis=1)]
    if len(rows) < 2:
        raise InputError(
            f"features has {len(rows)} row(s) that are not all zeros: an attack needs at least 2, one known and one unknown."
        )
    return rows


def _check_attack(known_ratio: float, coded_samples: int, noise_variance: float) -> None:
    if not 0 < known_ratio < 1:
        raise InputError(f"known_ratio = {known_ratio} must be above 0 and below 1, for example 0.5.")
    require_count("coded_samples", coded_samples)
    require_number("noise_variance", noise_variance)
