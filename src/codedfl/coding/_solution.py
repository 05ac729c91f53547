"""Least squares from coded data in one step, with a ridge as large as the second moments are wrong."""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
from scipy.optimize import minimize_scalar

from codedfl._validation import require_non_negative, require_positive
from codedfl.coding._encoder import CodedData
from codedfl.coding._gram import SMALLEST_PIVOT, Rows, compute_gram
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray

SEARCHED = 30.0
"""The minimum is searched for between these powers of e, up and down."""


def second_moment_error(eigenvalues: FloatArray, effective_rows: float) -> float:
    """Predict the operator norm of the error of a second moment, from its own eigenvalues.

    ``S^ = Z^T Z / n`` with ``n`` independent rows of N(0, S) has an error ``S^ - S`` whose spectrum ends, in the limit of many
    dimensions, at

        ``min over x > s_1 of x t(x)``,  ``t^2 = (1 + t) h(x)``,  ``h(x) = (1/n) sum_k s_k / (x - s_k)``,

    with the eigenvalues ``s_1 >= s_2 >= ...`` of ``S``; the other end is closer to zero. This is the edge of the deterministic
    equivalent: ``E [(z - S^ + S)^-1] = (z - t S)^-1`` with ``t / (1 + t) = (1/n) tr S (z - t S)^-1``. For ``S = s I_d`` it is
    ``s (2 sqrt(d/n) + d/n)``, the norm under noise alone. For a few large eigenvalues it is up to 1.8 times the mean.

    The server does not know ``S`` and uses the eigenvalues of ``S^``, which are somewhat more spread.

    Args:
        eigenvalues: ``s_k``, in any order; negative ones count as zero.
        effective_rows: ``n``.

    Example:
        >>> round(second_moment_error(np.full(100, 2.0), 400.0), 6)  # 2 (2 sqrt(1/4) + 1/4)
        2.5
    """
    require_positive("effective_rows", effective_rows)
    values = np.maximum(eigenvalues, 0.0)
    largest = float(values.max())
    if largest == 0.0:
        return 0.0
    shares = values / largest

    def edge(log_distance: float) -> float:
        distance = math.exp(log_distance)
        h = float(np.sum(shares / ((1.0 - shares) + distance))) / effective_rows
        return (1.0 + distance) * (h + math.sqrt(h * h + 4.0 * h)) / 2.0

    found = minimize_scalar(edge, bounds=(-SEARCHED, SEARCHED), method="bounded", options={"xatol": 1e-9})
    return largest * float(found.fun)


def hidden_error(eigenvalues: FloatArray, noise_variance: float, effective_rows: float) -> float:
    """Predict the operator norm of the error of ``H^ = S^ - sigma^2 I`` on the directions that this error hides.

    The error is largest along the largest eigenvectors, which stand far above it all the same. It matters where the
    eigenvalues of ``H^`` are no larger than the error itself. Those directions and that error define each other: ``r`` is the
    largest solution of ``r = second_moment_error({s_k : s_k - sigma^2 <= r})``. Under noise alone that is all directions, and
    ``r = sigma^2 (2 sqrt(d/n) + d/n)``.

    Args:
        eigenvalues: ``s_k`` of ``S^ = X~^T X~ / c``, in any order.
        noise_variance: ``sigma^2``.
        effective_rows: ``n``.

    Returns:
        ``r``; 0 if the error hides no direction.

    Example:
        >>> noise_alone = np.full(100, 2.0)
        >>> round(hidden_error(noise_alone, 2.0, 400.0), 6)
        2.5
        >>> hidden_error(np.append(noise_alone, 1e6), 2.0, 400.0) == hidden_error(noise_alone, 2.0, 400.0)
        True
    """
    require_non_negative("noise_variance", noise_variance)
    hidden = eigenvalues
    while len(hidden):
        # The error falls with the set and the set with the error, so this ends at the largest solution.
        error = second_moment_error(hidden, effective_rows)
        fewer = hidden[hidden - noise_variance <= error]
        if len(fewer) == len(hidden):
            return error
        hidden = fewer
    return 0.0


@one_blas_thread()
def coded_solution(coded: CodedData, ridge_share: float = 0.25) -> FloatArray:
    """Solve for a model from the second moments of coded data alone.

    ``H^ = X~^T X~ / c - sigma^2 I``, with its negative eigenvalues set to zero, estimates ``X^T X``, and ``X~^T Y~ / c``
    estimates ``X^T Y``. The solution is ``(H^ + r I)^-1 X~^T Y~ / c`` with the ridge ``r`` a share of the predicted error of
    ``H^`` (`hidden_error`): directions in which ``H^`` is mostly error are damped.

    Args:
        coded: rows, or their factor.
        ridge_share: ``r`` in units of the predicted error; 0 for none, with directions left out in which ``H^`` is zero.

    Returns:
        ``W``, (d, o), in float64.

    Example:
        >>> from codedfl.coding import encode
        >>> rng = np.random.default_rng(0)
        >>> X = rng.standard_normal((50, 2))
        >>> coded = encode(Rows(X, X @ [[1.0], [2.0]]), 4000, noise_variance=0.0, rng=rng)
        >>> coded_solution(coded, ridge_share=0.0).round(6).ravel().tolist()
        [1.0, 2.0]
    """
    require_non_negative("ridge_share", ridge_share)
    c = coded.coded_samples
    moments = compute_gram([Rows(coded.features, coded.labels)])
    values, vectors = scipy.linalg.eigh(moments.features / c)
    ridge = ridge_share * hidden_error(values, coded.noise_variance, coded.effective_rows)
    damped = np.maximum(values - coded.noise_variance, 0.0) + ridge
    kept = damped > SMALLEST_PIVOT**2 * damped.max()
    inverse = np.zeros_like(damped)
    inverse[kept] = 1.0 / damped[kept]
    solution: FloatArray = vectors @ (inverse[:, None] * (vectors.T @ moments.cross / c))
    return solution
