"""Least squares where the solution is not unique."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpstrf

from codedfl.typing import FloatArray


def least_norm_solution(matrix: FloatArray, target: FloatArray, smallest: float) -> FloatArray:
    """Return ``H^+ b``: of all minimisers of ``1/2 w^T H w - b^T w`` the one of least norm.

    A Cholesky factorisation with pivots stops at the rank ``r``: ``H = B B^T`` with ``B`` of ``r`` columns. With
    ``B^T B = Q L Q^T``, ``H^+ = B Q L^-2 Q^T B^T``. That takes ``d r^2`` operations, the eigenvectors of ``H`` itself ``d^3``.

    Args:
        matrix: ``H``, symmetric and positive semidefinite, (d, d).
        target: ``b``, (d, o).
        smallest: an eigenvalue below this share of the largest counts as zero.

    Example:
        >>> least_norm_solution(np.ones((2, 2)), np.array([[2.0], [2.0]]), 1e-12).round(12).tolist()
        [[1.0], [1.0]]
    """
    size = len(matrix)
    largest = float(np.diag(matrix).max(initial=0.0))
    if largest == 0:
        return np.zeros_like(target)
    factored, pivots, rank, _ = dpstrf(matrix, tol=max(smallest, size * np.finfo(float).eps) * largest, lower=1)
    root = np.empty((size, rank))
    root[pivots - 1] = np.tril(factored[:, :rank])
    values, vectors = scipy.linalg.eigh(root.T @ root)
    kept = values > smallest * values[-1]
    basis = vectors[:, kept]
    solution: FloatArray = root @ (basis @ ((basis.T @ (root.T @ target)) / values[kept, None] ** 2))
    return solution
