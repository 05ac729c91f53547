"""The accuracy of the reconstruction attack, measured on data (Fig. r1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment

from codedfl.coding import Rows, encode
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy._inputs import require_count, require_matrix, require_number
from codedfl.privacy._reconstruction import procrustes, reconstruct
from codedfl.typing import FloatArray, IntArray


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
    _check(known_ratio, coded_samples, noise_variance)
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


def _check(known_ratio: float, coded_samples: int, noise_variance: float) -> None:
    if not 0 < known_ratio < 1:
        raise InputError(f"known_ratio = {known_ratio} must be above 0 and below 1, for example 0.5.")
    require_count("coded_samples", coded_samples)
    require_number("noise_variance", noise_variance)
