"""The triangular factor of coded rows: the same information in fewer numbers, drawn without the rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import scipy.linalg

from codedfl._validation import require_non_negative
from codedfl.coding._encoder import CodedData, FactorOf
from codedfl.coding._gram import Gram
from codedfl.coding._sampler import coded_covariance, covariance_factor
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray

BLOCK = 512
"""Columns of a block: large enough for a matrix product near its peak, small enough to skip most of the zeros."""


def sample_factor(
    gram: Gram,
    coded_samples: int,
    *,
    noise_variance: float,
    label_noise_variance: float = 0.0,
    rng: np.random.Generator,
) -> FloatArray:
    """Draw the triangular factor of all coded rows of a device, without drawing the rows.

    Given the data, the ``c`` rows of ``[X~ Y~]`` are independent ``N(0, S)`` with
    ``S = [X Y]^T [X Y] + diag(sigma^2 I_d, sigma_Y^2 I_o)``, so ``R^T R = [X~ Y~]^T [X~ Y~]`` is Wishart(S, c). By Bartlett's
    decomposition ``R = A F`` with ``F^T F = S`` and an upper triangle ``A`` of independent entries: ``A_jj^2`` is chi-square with
    ``c - j`` degrees of freedom (``j`` from 0), and entries above the diagonal are N(0, 1).

    ``R^T R`` is sufficient for ``S``, so the factor reveals exactly as much about the data as the rows do.

    On a real device ``rng`` must be seeded from the operating system and then discarded.

    Args:
        gram: Gram matrix of the (weighted) data of the device.
        coded_samples: ``c``, at least ``d + o``.
        noise_variance: ``sigma_i^2``.
        label_noise_variance: variance of noise on the coded labels.
        rng: the source of ``A``.

    Returns:
        ``R``, (d + o, d + o), upper triangular with a diagonal of zero or more, in float64.

    Raises:
        InputError: if there are fewer coded rows than columns.

    Example:
        >>> from codedfl.coding import Rows, compute_gram
        >>> gram = compute_gram([Rows(np.eye(4, 3), np.ones((4, 1)))])
        >>> R = sample_factor(gram, 50, noise_variance=0.25, rng=np.random.default_rng(0))
        >>> R.shape, bool((R == np.triu(R)).all())
        ((4, 4), True)
    """
    (factor,) = sample_factors(
        gram,
        coded_samples,
        noise_variance=noise_variance,
        label_noise_variance=label_noise_variance,
        rngs=[rng],
    )
    return factor


@one_blas_thread()
def sample_factors(
    gram: Gram,
    coded_samples: int,
    *,
    noise_variance: float,
    label_noise_variance: float = 0.0,
    rngs: Iterable[np.random.Generator],
) -> list[FloatArray]:
    """Draw one factor with each generator, as `sample_factor` does: ``F`` is computed once for all.

    Example:
        >>> from codedfl.coding import Rows, compute_gram
        >>> gram = compute_gram([Rows(np.eye(4, 3), np.ones((4, 1)))])
        >>> len(sample_factors(gram, 50, noise_variance=0.25, rngs=[np.random.default_rng(seed) for seed in range(3)]))
        3
    """
    require_non_negative("noise_variance", noise_variance)
    require_non_negative("label_noise_variance", label_noise_variance)
    require_rows_for_factor(coded_samples, len(gram.matrix))
    root = covariance_factor(coded_covariance(gram, noise_variance, label_noise_variance))
    multiply = multiply_upper if _is_upper(root) else _upper_of_product
    return [multiply(_bartlett(len(root), coded_samples, rng), root) for rng in rngs]


def _bartlett(size: int, coded_samples: int, rng: np.random.Generator) -> FloatArray:
    triangle = np.triu(rng.standard_normal((size, size)), 1)
    np.fill_diagonal(triangle, np.sqrt(rng.chisquare(coded_samples - np.arange(size))))
    return triangle


def require_rows_for_factor(coded_samples: int, columns: int) -> None:
    """Refuse fewer coded rows than columns ``d + o``: their factor would not be a triangle, and the rows are smaller."""
    if coded_samples < columns:
        raise InputError(
            f"coding.coded_samples = {coded_samples} is below the d + o = {columns} columns that a factor needs: raise it, lower"
            " features.dimension, or upload rows."
        )


@one_blas_thread()
def add_factors(
    factors: Iterable[FloatArray],
    coded_samples: int,
    dimension: int,
    noise_variance: float,
    dtype: np.dtype[np.floating],
) -> CodedData:
    """Add up ``R_i^T R_i`` and return the triangular factor of the sum.

    Args:
        factors: ``R_i`` of each device, (d + o, d + o), upper triangular.
        coded_samples: ``c`` of each device.
        dimension: ``d``.
        noise_variance: ``sum_i sigma_i^2``.
        dtype: precision of the result.
    """
    total: FloatArray | None = None
    traces = []
    for factor in factors:
        wide = factor.astype(np.float64)
        traces.append(float(np.sum(wide[:, :dimension] ** 2)))
        square = square_upper(wide)
        total = square if total is None else np.add(total, square, out=total)
    if total is None:
        raise InputError("no device has samples to encode: give at least one device data.")
    root = covariance_factor(total)
    root = root if _is_upper(root) else _upper(root)
    effective = effective_rows(coded_samples, traces)
    features, labels = (np.ascontiguousarray(part, dtype) for part in (root[:, :dimension], root[:, dimension:]))
    return CodedData(features, labels, noise_variance, FactorOf(coded_samples, effective))


def effective_rows(coded_samples: int, traces: Sequence[float]) -> float:
    """Return ``c (sum_i t_i)^2 / sum_i t_i^2`` with the traces ``t_i`` of the devices' second moments, see `FactorOf`.

    Example:
        >>> effective_rows(100, [2.0, 2.0, 2.0])
        300.0
    """
    squares = sum(trace**2 for trace in traces)
    return coded_samples * sum(traces) ** 2 / squares if squares > 0 else float(coded_samples)


def _upper(matrix: FloatArray) -> FloatArray:
    """Return the triangular factor of a matrix by QR, with a diagonal of zero or more."""
    (upper,) = scipy.linalg.qr(matrix, mode="r", check_finite=False)
    triangle: FloatArray = upper[: matrix.shape[1]] * np.where(np.diag(upper) < 0, -1.0, 1.0)[:, None]
    return np.triu(triangle)


def _upper_of_product(left: FloatArray, right: FloatArray) -> FloatArray:
    return _upper(left @ right)


def _is_upper(matrix: FloatArray) -> bool:
    return bool(np.count_nonzero(np.tril(matrix, -1)) == 0)


def multiply_upper(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return ``L R`` of two upper triangles in ``n^3 / 6`` multiplications, where a full product takes ``n^3``.

    Example:
        >>> multiply_upper(np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([[4.0, 5.0], [0.0, 6.0]])).tolist()
        [[4.0, 17.0], [0.0, 18.0]]
    """
    size = len(left)
    product = np.zeros((size, size), np.result_type(left, right))
    for top in range(0, size, BLOCK):
        rows = slice(top, top + BLOCK)
        for start in range(top, size, BLOCK):
            columns, between = slice(start, start + BLOCK), slice(top, start + BLOCK)
            product[rows, columns] = left[rows, between] @ right[between, columns]
    return product


def square_upper(triangle: FloatArray) -> FloatArray:
    """Return the symmetric ``R^T R`` of an upper triangle in ``n^3 / 6`` multiplications.

    Example:
        >>> square_upper(np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 13.0]]
    """
    size = len(triangle)
    square = np.zeros((size, size), triangle.dtype)
    for start in range(0, size, BLOCK):
        columns, above = slice(start, start + BLOCK), slice(0, start + BLOCK)
        strip = triangle[above, columns].T @ triangle[above, start:]
        square[columns, start:] = strip
        square[start:, columns] = strip.T
    return square
