"""Least squares from coded data in one step, with a ridge as large as the second moments are wrong."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg

from codedfl._validation import require_non_negative, require_positive
from codedfl.coding._encoder import CodedData
from codedfl.coding._gram import SMALLEST_PIVOT
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray


def second_moment_error(mean_eigenvalue: float, dimension: int, effective_rows: float) -> float:
    """Predict the operator norm of the error of a second moment, as far as it is spread over all directions.

    ``S^ = Z^T Z / n`` with ``n`` independent rows of N(0, S) has ``E ||S^ - S||_F^2 = ((tr S)^2 + ||S||_F^2) / n``. For
    ``S = s I_d`` the spectrum of the error ends at ``s (2 sqrt(d/n) + d/n)``, by the law of Marchenko and Pastur. This function
    returns that for the mean eigenvalue ``s = tr S / d``, which ``S^`` tells well: the operator norm of an error of about the
    same energy that is spread evenly over all directions.

    Under strong noise that is the operator norm. Otherwise the operator norm is larger, but it is reached along the largest
    eigenvectors of ``S``, where the error is small next to the eigenvalue. A ridge is to cover the other directions.

    Args:
        mean_eigenvalue: ``tr S / d``.
        dimension: ``d``.
        effective_rows: ``n``.

    Example:
        >>> second_moment_error(2.0, 100, 400.0)  # 2 (2 sqrt(1/4) + 1/4)
        2.5
    """
    require_non_negative("mean_eigenvalue", mean_eigenvalue)
    require_positive("effective_rows", effective_rows)
    ratio = dimension / effective_rows
    return mean_eigenvalue * (2.0 * math.sqrt(ratio) + ratio)


@one_blas_thread()
def coded_solution(coded: CodedData, ridge_share: float = 0.25) -> FloatArray:
    """Solve for a model from the second moments of coded data alone.

    ``H^ = X~^T X~ / c - sigma^2 I``, with its negative eigenvalues set to zero, estimates ``X^T X``, and ``X~^T Y~ / c``
    estimates ``X^T Y``. The solution is ``(H^ + r I)^-1 X~^T Y~ / c`` with the ridge ``r`` a share of the predicted error of
    ``H^`` (`second_moment_error`): directions in which ``H^`` is mostly error are damped.

    Args:
        coded: rows, or their factor.
        ridge_share: ``r`` in units of the predicted error; 0 for none, with directions left out in which ``H^`` is zero.

    Returns:
        ``W``, (d, o), in float64.

    Example:
        >>> from codedfl.coding import Rows, encode
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((50, 2))
        >>> coded = encode(Rows(X, X @ [[1.0], [2.0]]), 4000, noise_variance=0.0, rng=rng)
        >>> coded_solution(coded, ridge_share=0.0).round(6).ravel().tolist()
        [1.0, 2.0]
    """
    require_non_negative("ridge_share", ridge_share)
    c, gram = coded.coded_samples, coded.gram()
    values, vectors = scipy.linalg.eigh(gram.features / c)
    ridge = ridge_share * second_moment_error(float(values.mean()), len(values), coded.effective_rows)
    damped = np.maximum(values - coded.noise_variance, 0.0) + ridge
    return damped_solution(damped, vectors, vectors.T @ gram.cross / c)


def damped_solution(damped: FloatArray, vectors: FloatArray, target: FloatArray) -> FloatArray:
    """Return ``V diag(1 / e) b`` for damped eigenvalues ``e``, without the directions in which they are next to zero.

    Args:
        damped: ``e``, (d,).
        vectors: ``V``, the eigenvectors as columns, (d, d).
        target: ``b``, the right-hand side along each of them, (d, o).

    Example:
        >>> damped_solution(np.array([0.0, 2.0]), np.eye(2), np.array([[1.0], [1.0]])).ravel().tolist()
        [0.0, 0.5]
    """
    kept = damped > SMALLEST_PIVOT**2 * damped.max()
    inverse = np.zeros_like(damped)
    inverse[kept] = 1.0 / damped[kept]
    solution: FloatArray = vectors @ (inverse[:, None] * target)
    return solution


@one_blas_thread()
def coded_spectrum(coded: CodedData) -> FloatArray:
    """Return the eigenvalues of ``X~^T X~ / c`` in ascending order, those of the noise included, (d,)."""
    values: FloatArray = scipy.linalg.eigvalsh(coded.moments())
    return values


def batch_curvature(values: FloatArray, coded_samples: int, batch: int) -> float:
    """Return ``lambda_max + tr (1/b - 1/c)``, below whose inverse steps on batches of coded rows are stable in the mean square.

    The second moment of a batch of ``b`` Gaussian rows has the mean square ``H^2 + (tr(H) H + H^2) / b``; for the
    batches of ``c`` given rows the excess is ``1/b - 1/c`` instead of ``1/b``, up to the smaller term.

    Args:
        values: eigenvalues of ``X~^T X~ / c``, ascending.
        coded_samples: ``c``.
        batch: ``b``.

    Example:
        >>> batch_curvature(np.array([1.0, 2.0, 5.0]), 100, 50), batch_curvature(np.array([1.0, 2.0, 5.0]), 100, 100)
        (5.08, 5.0)
    """
    return float(values[-1]) + float(values.sum()) * max(1 / batch - 1 / coded_samples, 0.0)
