"""Rows that are known up to a rotation, or up to order and signs, brought next to others."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from scipy.optimize import linear_sum_assignment

from codedfl.errors import InputError
from codedfl.privacy._matrices import require_matrix
from codedfl.typing import FloatArray


def procrustes(factor: FloatArray, target: FloatArray) -> FloatArray:
    """Return the rotation ``R`` (n, r), ``R^T R = I``, with the least ``||T - R A||_F``: ``U V^T`` of the SVD of ``T A^T``.

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
