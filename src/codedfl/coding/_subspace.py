"""The subspace sketch: what the second moments of a device do to a few public directions.

A device sends ``X_S^T [X_S Omega, Y_S]``, from ``|S|`` of its rows and a test matrix ``Omega`` that everybody knows, with ``r``
orthonormal columns. That is ``d (r + o)`` numbers, for ``|S| d (2 r + o)`` MACs. It serves as curvature, not as data, so noise in
it slows training down but never moves the point that training tends to.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl._validation import require_at_least
from codedfl.coding._gram import Rows
from codedfl.errors import InputError
from codedfl.identity import ByObject
from codedfl.streams import Streams
from codedfl.typing import FloatArray


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
