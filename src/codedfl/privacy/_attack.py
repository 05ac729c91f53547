"""How well the reconstruction attack works, measured on data (Fig. r1)."""

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
    """Relative errors ``||X_U - matched||_F / ||X_U||_F`` of one attack; lower is more leakage.

    Every guess is matched to the truth in the same way (`matched_error`). Rotation and matching bring in what an attacker
    does not have, so each attack comes with a control, in which rows resampled from ``X_K`` take the place of what was
    found in the coded data. Coded data leak as far as an attack is below its control and below the baseline.

    Args:
        oracle_error: rotated by an oracle that knows the truth: the ceiling of what leaks.
        feasible_error: rotated towards rows resampled from ``X_K``, which an attacker can do.
        baseline_error: the mean of ``X_K`` as the guess of every row.
        oracle_control_error: the resampled rows, rotated by the oracle. Far below the baseline, and at times below
            ``oracle_error``, when many rows are unknown: then the oracle gives away more than the coded data do.
        feasible_control_error: the resampled rows as they are.
        known: rows of ``X_K``.
        unknown: rows of ``X_U``.
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
    """Encode a dataset, let an attacker know some of its rows, and measure how well the others are reconstructed.

    Rows of zeros leave no trace in coded data and are left out. The same generator state gives the same known rows and the
    same projection at any noise, and known rows that are nested as the ratio grows.

    Args:
        features: ``X``, (l, d): one device's rows if the server sees its upload, all devices' if it sees only the sum.
        known_ratio: share of rows that the attacker knows, above 0 and below 1; at least one row is known and one is not.
        coded_samples: ``c``.
        noise_variance: ``sigma^2`` in what the server sees.
        rng: the source of the known rows, the coded data, and the rows that the feasible rotation turns to.

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
    """Return ``||X - matched||_F / ||X||_F``, with the guessed rows in the order and with the signs that suit the truth best.

    The order is found by the Hungarian method on the squared distances ``min ||x -+ guess||^2``: which row is which, and
    its sign, do not show in coded data.

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
        raise InputError("truth = 0 in every entry: an error relative to it needs at least one that is not.")
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
            f"features has {len(rows)} row(s) that are not all zeros: an attack needs 2, one to know and one to find."
        )
    return rows


def _check(known_ratio: float, coded_samples: int, noise_variance: float) -> None:
    if not 0 < known_ratio < 1:
        raise InputError(f"known_ratio = {known_ratio} must be above 0 and below 1, for example 0.5.")
    require_count("coded_samples", coded_samples)
    require_number("noise_variance", noise_variance)
