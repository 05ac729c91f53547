"""The subspace sketch: what the second moments of a device do to a few public directions.

A device sends ``X_S^T [X_S Omega, Y_S]``, from ``|S|`` of its rows and a test matrix ``Omega`` that everybody knows, with ``r``
orthonormal columns. That is ``d (r + o)`` numbers, for ``|S| d (2 r + o)`` MACs. It serves as curvature, not as data, so noise in
it slows training down but never moves the point that training tends to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl._validation import require_at_least, require_non_negative
from codedfl.coding._encoder import gaussian
from codedfl.coding._gram import Rows
from codedfl.errors import InputError
from codedfl.identity import ByObject
from codedfl.parallel import one_blas_thread
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


def sketch_rows(
    rows: Rows,
    test_matrix: FloatArray,
    count: int,
    *,
    noise_variance: float = 0.0,
    label_noise_variance: float = 0.0,
    rng: np.random.Generator,
) -> tuple[FloatArray, FloatArray, float]:
    """Return what a device sends: ``X_S^T X_S Omega + N``, ``X_S^T Y_S + N_Y`` and ``||X_S||_F^2 + n``.

    ``S`` is drawn without replacement. If samples have norm ``B`` and labels norm ``B_Y`` at most, one sample changes these by
    at most ``B^2``, ``B B_Y`` and ``B^2`` in Frobenius norm, so with noise they are Gaussian mechanisms.

    Args:
        rows: the samples.
        test_matrix: ``Omega``.
        count: ``|S|``, at most the number of rows.
        noise_variance: variance of the entries of ``N``, and of the number ``n``.
        label_noise_variance: variance of the entries of ``N_Y``.
        rng: the source of ``S`` and the noise.

    Example:
        >>> products, label_products, energy = sketch_rows(
        ...     Rows(np.eye(4, 3), np.ones((4, 1))), np.eye(3, 2), 4, rng=np.random.default_rng(0))
        >>> products.tolist(), energy
        ([[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]], 3.0)
    """
    require_at_least("count", count, 1)
    require_non_negative("noise_variance", noise_variance)
    require_non_negative("label_noise_variance", label_noise_variance)
    chosen = rng.permutation(len(rows))[:count]
    weights = None if rows.weights is None else rows.weights[chosen]
    taken = Rows(rows.features, rows.labels, weights, chosen if rows.chosen is None else rows.chosen[chosen])
    dimension = rows.features.shape[1]
    joined = taken.joined().astype(np.float64)
    features, labels = joined[:, :dimension], joined[:, dimension:]
    products, label_products = features.T @ (features @ test_matrix), features.T @ labels
    energy = np.sum(features**2, keepdims=True)
    for sent, variance in (
        (products, noise_variance),
        (label_products, label_noise_variance),
        (energy, noise_variance),
    ):
        if variance > 0:
            sent += gaussian(rng, sent.shape, variance, sent.dtype)
    return products, label_products, float(energy.item())


@one_blas_thread()
def sketch_all(
    devices: Sequence[Rows],
    rank: int,
    count: int,
    *,
    noise_variance: FloatArray,
    label_noise_variance: FloatArray,
    streams: Streams,
    clip_norm: float | None = None,
) -> SubspaceSketch:
    """Sketch every device, and scale what it sends to all of its rows.

    Args:
        devices: the samples of each device; a device without any sends nothing.
        rank: ``r``.
        count: ``|S_i|``, where a device has as many rows.
        noise_variance: variance of the noise in every number sent about features, (N,).
        label_noise_variance: the same about labels, (N,).
        streams: source of everything: purposes ``test-matrix`` and ``sketch``, the latter by device.
        clip_norm: ``B``, the norm to which every sample is clipped first; None for no clipping.
    """
    dimension = devices[0].features.shape[1]
    test_matrix = public_test_matrix(dimension, rank, streams)
    received = {
        i: ReceivedSketch(
            *sketch_rows(
                own if clip_norm is None else own.clipped(clip_norm),
                test_matrix,
                min(count, len(own)),
                noise_variance=float(noise_variance[i]),
                label_noise_variance=float(label_noise_variance[i]),
                rng=streams.at("sketch", device=i),
            ),
            rows=min(count, len(own)),
            noise_variance=float(noise_variance[i]),
        )
        for i, own in enumerate(devices)
        if len(own)
    }
    samples = np.array([len(own) for own in devices], np.float64)
    return collect_sketches(test_matrix, received, samples, devices[0].labels.shape[1])


@dataclass(frozen=True, eq=False)
class ReceivedSketch:
    """What one device sent; see `sketch_rows`.

    Args:
        products: ``X_S^T X_S Omega + N``, (d, r).
        label_products: ``X_S^T Y_S + N_Y``, (d, o).
        energy: ``||X_S||_F^2 + n``.
        rows: ``|S|``.
        noise_variance: variance of the entries of ``N``.
    """

    products: FloatArray
    label_products: FloatArray
    energy: float
    rows: int
    noise_variance: float


def collect_sketches(
    test_matrix: FloatArray, received: Mapping[int, ReceivedSketch], samples: FloatArray, outputs: int
) -> SubspaceSketch:
    """Scale what every device sent to all of its rows, and keep devices apart.

    Args:
        test_matrix: ``Omega``.
        received: the sketches by device; a device that is missing sent nothing.
        samples: ``l_i``, (N,).
        outputs: ``o``.
    """
    total, (dimension, rank) = len(samples), test_matrix.shape
    products, label_products = np.zeros((total, dimension, rank)), np.zeros((total, dimension, outputs))
    energy, rows, entry_variance = np.zeros((3, total))
    for i, sent in received.items():
        scale = float(samples[i]) / sent.rows
        products[i], label_products[i], energy[i] = (
            scale * sent.products,
            scale * sent.label_products,
            scale * sent.energy,
        )
        rows[i], entry_variance[i] = sent.rows, scale**2 * sent.noise_variance
    return SubspaceSketch(test_matrix, products, label_products, energy, rows, entry_variance)
