"""The subspace sketch: what the second moments of a device do to a few public directions.

A device sends ``X_S^T [X_S Omega, Y_S]``, from ``|S|`` of its rows and a test matrix ``Omega`` that everybody knows, with ``r``
orthonormal columns. That is ``d (r + o)`` numbers, for ``|S| d (2 r + o)`` MACs. It serves as curvature, not as data, so noise in
it slows training down but never moves the point that training tends to.

From factors the server makes such a sketch itself: it may choose its directions after it has seen them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.linalg

from codedfl._validation import require_at_least
from codedfl.coding._factor import effective_rows
from codedfl.coding._gram import Rows
from codedfl.coding._solution import second_moment_error
from codedfl.errors import InputError
from codedfl.identity import ByObject
from codedfl.parallel import one_blas_thread
from codedfl.streams import Streams
from codedfl.typing import FloatArray, ShortRepr


@dataclass(frozen=True, eq=False, repr=False)
class SubspaceSketch(ShortRepr, ByObject):
    """The sketches of all devices, kept apart.

    Args:
        test_matrix: ``Omega``, (d, r), with orthonormal columns.
        products: estimates of ``H_i Omega`` with ``H_i = X_i^T X_i``, (N, d, r): ``l_i / |S_i|`` times what the device sent.
        label_products: the same of ``X_i^T Y_i``, (N, d, o).
        energy: the same of ``||X_i||_F^2``, (N,).
        rows: ``|S_i|``, 0 for a device that sent nothing, (N,).
        entry_variance: variance of the noise in every entry of ``products``, (N,).
    """

    test_matrix: FloatArray
    products: FloatArray
    label_products: FloatArray
    energy: FloatArray
    rows: FloatArray
    entry_variance: FloatArray

    @property
    def devices(self) -> int:
        """``N``."""
        return len(self.products)

    @property
    def rank(self) -> int:
        """``r``."""
        return int(self.test_matrix.shape[1])

    @cached_property
    def noise_norm(self) -> float:
        """The expected norm of the noise in ``sum_i H_i Omega``, ``s (sqrt d + sqrt r)`` at entries of variance ``s^2``."""
        dimension, rank = self.test_matrix.shape
        return float(np.sqrt(self.entry_variance.sum()) * (np.sqrt(dimension) + np.sqrt(rank)))


def public_test_matrix(dimension: int, rank: int, streams: Streams) -> FloatArray:
    """Draw ``Omega``, (d, r): an orthonormal basis of a uniformly random subspace, from a seed that devices and server share.

    Example:
        >>> omega = public_test_matrix(5, 2, Streams(0))
        >>> bool(np.allclose(omega.T @ omega, np.eye(2)))
        True
    """
    require_at_least("rank", rank, 1)
    if rank > dimension:
        raise InputError(f"rank = {rank} exceeds the {dimension} column(s) of the data: lower it.")
    basis, triangle = np.linalg.qr(streams.at("test-matrix").standard_normal((dimension, rank)))
    signed: FloatArray = basis * np.sign(np.diag(triangle))  # without the signs the law would depend on LAPACK
    return signed


def sketch_rows(rows: Rows, test_matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return what a sketch of rows tells: ``X^T X Omega``, ``X^T Y`` and ``||X||_F^2``, the last as an array of one number.

    If samples have norm ``B`` and labels norm ``B_Y`` at most, one sample changes these by at most ``B^2``, ``B B_Y`` and ``B^2``
    in Frobenius norm, so with noise they are Gaussian mechanisms.

    Args:
        rows: the samples.
        test_matrix: ``Omega``.

    Example:
        >>> products, label_products, energy = sketch_rows(Rows(np.eye(4, 3), np.ones((4, 1))), np.eye(3, 2))
        >>> products.tolist(), energy.tolist()
        ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], [3.0])
    """
    joined, dimension = rows.joined().astype(np.float64), rows.features.shape[1]
    features, labels = joined[:, :dimension], joined[:, dimension:]
    energy: FloatArray = np.sum(features**2, keepdims=True)
    return features.T @ (features @ test_matrix), features.T @ labels, energy.reshape(1)


@one_blas_thread()
def sketch_factors(
    factors: Mapping[int, FloatArray],
    coded_samples: int,
    rank: int,
    *,
    noise_variance: FloatArray,
    samples: FloatArray,
    dimension: int,
) -> SubspaceSketch:
    """Sketch the second moments ``R_i^T R_i / c - sigma_i^2 I`` of every device along the leading eigenvectors of their sum.

    Args:
        factors: ``R_i`` by device, (d + o, d + o).
        coded_samples: ``c``.
        rank: ``r``.
        noise_variance: ``sigma_i^2``, (N,).
        samples: ``l_i``, (N,).
        dimension: ``d``.

    Returns:
        The sketch. Its ``entry_variance`` is that of noise with the norm that is predicted for the error of the second moments.
    """
    devices, outputs = len(samples), next(iter(factors.values())).shape[1] - dimension
    total = np.zeros((dimension, dimension))
    for factor in factors.values():
        features = factor[:, :dimension].astype(np.float64)
        total += features.T @ features / coded_samples
    last = dimension - 1
    _, test_matrix = scipy.linalg.eigh(total, subset_by_index=[last - rank + 1, last])
    products, label_products = np.zeros((devices, dimension, rank)), np.zeros((devices, dimension, outputs))
    energy, rows = np.zeros((2, devices))
    traces = []
    for i, factor in factors.items():
        features, labels = factor[:, :dimension].astype(np.float64), factor[:, dimension:].astype(np.float64)
        products[i] = features.T @ (features @ test_matrix) / coded_samples - noise_variance[i] * test_matrix
        label_products[i] = features.T @ labels / coded_samples
        traces.append(float(np.sum(features**2)) / coded_samples)
        energy[i] = max(traces[-1] - dimension * noise_variance[i], 0.0)
        rows[i] = samples[i]
    error = second_moment_error(sum(traces) / dimension, dimension, effective_rows(coded_samples, traces))
    variance = (error / (np.sqrt(dimension) + np.sqrt(rank))) ** 2
    return SubspaceSketch(test_matrix, products, label_products, energy, rows, np.full(devices, variance / devices))
