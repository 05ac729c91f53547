"""Second moments of a dataset, which determine the law of its coded version."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dpstrf

from codedfl._validation import require_positive
from codedfl.coding._geometry import clip_weights
from codedfl.errors import InputError
from codedfl.parallel import Workers, one_blas_thread
from codedfl.typing import FloatArray, IntArray, ShortRepr

BLOCK_ROWS = 2048
"""Rows multiplied at once."""

POWER_ITERATIONS = 1000
POWER_TOLERANCE = 1e-12
"""Relative change of the largest eigenvalue at which its power iteration has converged."""

SMALLEST_PIVOT = 1e-6
"""A Cholesky pivot below this (of columns scaled to one) counts as zero, and so does an eigenvalue below its square."""


@dataclass(frozen=True, repr=False)
class Rows(ShortRepr):
    """Rows ``(X, Y)``, each multiplied by its weight if weights are given.

    Args:
        features: ``X``, (l, d).
        labels: ``Y``, (l, o).
        weights: ``w``, one per row used, or None for ones.
        chosen: indices of the rows to use, in order; None for all. They are gathered block by block, never all at once.
    """

    features: FloatArray
    labels: FloatArray
    weights: FloatArray | None = None
    chosen: IntArray | None = None

    def __len__(self) -> int:
        return len(self.features if self.chosen is None else self.chosen)

    def joined(self) -> FloatArray:
        """Return ``diag(w) [X Y]``, (l, d + o)."""
        parts = self.features, self.labels
        joined = np.hstack(parts if self.chosen is None else [part[self.chosen] for part in parts])
        if self.weights is not None:
            joined *= self.weights[:, None].astype(joined.dtype)
        return joined

    def clipped(self, bound: float) -> Rows:
        """Scale every sample and its label down to ``||w x|| <= bound``, as a worst-case privacy guarantee requires.

        Features and label get the same weight ``min(w, bound / ||x||)``, so a clipped sample stays consistent with the
        model and only counts less.

        Example:
            >>> Rows(np.array([[3.0, 4.0], [0.0, 0.5]]), np.ones((2, 1))).clipped(2.5).joined().tolist()
            [[1.5, 2.0, 0.5], [0.0, 0.5, 1.0]]
        """
        require_positive("clip_norm", bound)
        largest = clip_weights(self.norms(), bound)
        weights = largest if self.weights is None else np.minimum(self.weights, largest)
        return Rows(self.features, self.labels, weights, self.chosen)

    def taking(self, places: IntArray) -> Rows:
        """Return some of the rows, in the order given; nothing is copied but their weights."""
        weights = None if self.weights is None else self.weights[places]
        return Rows(self.features, self.labels, weights, places if self.chosen is None else self.chosen[places])

    def norms(self) -> FloatArray:
        """Return ``||x||`` of every row, without a copy of all rows."""
        blocks = [np.linalg.norm(block.features, axis=1) for block in self.blocks(BLOCK_ROWS)]
        return np.concatenate(blocks) if blocks else np.zeros(0)

    def blocks(self, size: int) -> Iterator[Rows]:
        """Yield consecutive blocks of at most ``size`` rows: views, or copies if rows are chosen."""
        for start in range(0, len(self), size):
            part = slice(start, start + size)
            rows = part if self.chosen is None else self.chosen[part]
            weights = None if self.weights is None else self.weights[part]
            yield Rows(self.features[rows], self.labels[rows], weights)


@dataclass(frozen=True, repr=False)
class Gram(ShortRepr):
    """The Gram matrix ``[X Y]^T [X Y]`` in float64.

    Args:
        matrix: (d + o, d + o), symmetric.
        dimension: ``d``.
        samples: ``m``, number of rows.

    Example:
        >>> X, Y = np.eye(3, 2), np.ones((3, 1))
        >>> gram = compute_gram([Rows(X, Y)])
        >>> gram.features.tolist(), gram.cross.tolist()
        ([[1.0, 0.0], [0.0, 1.0]], [[1.0], [1.0]])
        >>> round(gram.smoothness, 9)
        1.0
    """

    matrix: FloatArray
    dimension: int
    samples: int

    @property
    def features(self) -> FloatArray:
        """``H = X^T X``, the Hessian of the loss."""
        return self.matrix[: self.dimension, : self.dimension]

    @property
    def cross(self) -> FloatArray:
        """``X^T Y``."""
        return self.matrix[: self.dimension, self.dimension :]

    @property
    def labels(self) -> FloatArray:
        """``Y^T Y``."""
        return self.matrix[self.dimension :, self.dimension :]

    @cached_property
    @one_blas_thread()
    def smoothness(self) -> float:
        """``L = lambda_max(X^T X)``, the smoothness constant of the loss.

        Computed by power iteration, or from all eigenvalues if it has not converged after ``POWER_ITERATIONS`` because
        the largest are too close.
        """
        vector = np.random.Generator(np.random.Philox(0)).standard_normal(self.dimension)
        estimate = 0.0
        for _ in range(POWER_ITERATIONS):
            vector /= np.linalg.norm(vector)
            product = self.features @ vector
            previous, estimate = estimate, float(vector @ product)
            if abs(estimate - previous) <= POWER_TOLERANCE * estimate:
                return estimate
            vector = product
        largest = self.dimension - 1
        return float(scipy.linalg.eigvalsh(self.features, subset_by_index=[largest, largest])[0])

    @cached_property
    @one_blas_thread()
    def optimum(self) -> FloatArray:
        """``W*``, the least-squares solution of (1) in the paper; that of least norm where it is not unique."""
        if self._scaled_factor is not None:
            return self.solve(self.cross)
        return least_norm_solution(self.features, self.cross, SMALLEST_PIVOT**2)

    @cached_property
    @one_blas_thread()
    def _scaled_factor(self) -> tuple[FloatArray, FloatArray] | None:
        """The Cholesky factor of ``H`` with columns scaled to one, and their scale; None if ``H`` is singular.

        The scaling keeps columns of very different size from making the matrix look singular.
        """
        scale = np.sqrt(np.diag(self.features))
        scale[scale == 0] = 1.0
        try:
            factor: FloatArray = scipy.linalg.cholesky(self.features / np.outer(scale, scale))
        except scipy.linalg.LinAlgError:
            return None
        return (factor, scale[:, None]) if np.diag(factor).min() > SMALLEST_PIVOT else None

    @one_blas_thread()
    def solve(self, target: FloatArray) -> FloatArray:
        """Return ``H^-1`` times a matrix.

        Raises:
            InputError: if ``H = X^T X`` is singular.
        """
        if self._scaled_factor is None:
            raise InputError("X^T X is singular, so the optimum is not unique: use fewer features or more samples.")
        factor, scale = self._scaled_factor
        solution: FloatArray = scipy.linalg.cho_solve((factor, False), target / scale)
        return solution / scale

    @one_blas_thread()
    def loss(self, model: FloatArray) -> float:
        """``f(W) = 1/2 ||X W - Y||_F^2`` of (1) in the paper, without reading the data."""
        W = model.astype(np.float64)
        quadratic = np.sum(W * (self.features @ W)) - 2 * np.sum(W * self.cross)
        return float(0.5 * (quadratic + np.trace(self.labels)))

    @one_blas_thread()
    def gap(self, model: FloatArray) -> float:
        """``f(W) - f(W*) = 1/2 tr[(W - W*)^T H (W - W*)]``, without cancellation."""
        difference = model.astype(np.float64) - self.optimum
        return float(0.5 * np.sum(difference * (self.features @ difference)))


def compute_gram(parts: Iterable[Rows], workers: Workers | None = None) -> Gram:
    """Add up ``[X Y]^T diag(w)^2 [X Y]`` over parts of a dataset, in blocks of rows.

    Args:
        parts: the rows, for example one part per device.
        workers: threads to multiply blocks on; the sum is taken in the order of the blocks.

    Returns:
        The Gram matrix of all parts together.
    """
    parts = list(parts)
    dimension, outputs = parts[0].features.shape[1], parts[0].labels.shape[1]
    total = np.zeros((dimension + outputs, dimension + outputs))
    blocks = (block for part in parts for block in part.blocks(BLOCK_ROWS))
    with one_blas_thread():
        for product in (workers or Workers(1)).map(_square, blocks):
            total += product
    return Gram(total, dimension, sum(len(part) for part in parts))


def _square(block: Rows) -> FloatArray:
    # Always in float64: rounding in float32 would give null directions non-zero eigenvalues.
    joined = block.joined().astype(np.float64)
    product: FloatArray = joined.T @ joined
    return product


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
