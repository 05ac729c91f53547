"""A model of every device's second moments, made from sketches."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy.linalg

from codedfl.coding._subspace import SubspaceSketch
from codedfl.parallel import one_blas_thread
from codedfl.typing import FloatArray

RELATIVE_SHIFT = 1e-8
"""Shift of the matrix, relative to the norm of its product, that keeps the factorisation stable."""


def nystrom(products: FloatArray, test_matrix: FloatArray, shift: float = 0.0) -> tuple[FloatArray, FloatArray]:
    """Return the leading eigenpairs of ``H``, given ``Y = H Omega``: those of ``Y (Omega^T Y)^-1 Y^T``.

    The approximation lies below ``H``, so eigenvalues are too small, the last ones most of all.

    Args:
        products: ``Y``, (d, r), possibly noisy.
        test_matrix: ``Omega``, (d, r), with orthonormal columns.
        shift: added to ``H`` for the computation and subtracted afterwards. It must be at least the norm of the noise in
            ``Omega^T Y``, so that the matrix to invert stays positive.

    Returns:
        Eigenvectors (d, r) as columns, and eigenvalues (r,), zero or more and falling.

    Example:
        >>> H = np.diag([5.0, 2.0, 0.0])
        >>> omega = np.linalg.qr(np.array([[1.0, 0.3], [0.2, 1.0], [0.5, 0.5]]))[0]
        >>> vectors, values = nystrom(H @ omega, omega)
        >>> values.round(6).tolist()
        [5.0, 2.0]

    References:
        Frangella, Tropp, Udell: Randomized Nyström Preconditioning. SIAM Journal on Matrix Analysis and Applications, 2023.
    """
    shift += RELATIVE_SHIFT * float(np.linalg.norm(products, 2))
    if shift == 0.0:
        return test_matrix.copy(), np.zeros(test_matrix.shape[1])
    shifted = products + shift * test_matrix
    core = test_matrix.T @ shifted
    values, rotation = scipy.linalg.eigh((core + core.T) / 2)
    floor = max(float(values[-1]), shift) * np.finfo(np.float64).eps * len(values)
    root = shifted @ (rotation / np.sqrt(np.maximum(values, floor)))
    vectors, singular, _ = scipy.linalg.svd(root, full_matrices=False)
    return vectors, np.maximum(singular**2 - shift, 0.0)


KEPT_SHARE = 5 / 6
"""Share of the sketched directions that are kept: the Nyström approximation is poor in the last ones."""

DAMPING_FACTOR = 2.0
"""Damping, in units of the first eigenvalue that is left out.

Nyström puts that eigenvalue at a third of its true value when a sixth of the directions is left out, so the damping is about two
thirds of it; `docs/beyond.md` derives the range of stable values.
"""

TAIL_SHARE = 0.4
"""Curvature assumed outside of the basis, as a share of its mean.

Some is needed, or the stale gradient of an absent device would push the model on and on. With all of it, the memory would
lose its effect as momentum in just those directions.
"""

LARGEST_MISMATCH = 3.0
"""The largest eigenvalue that the noise of a sketch may hide, in units of the damping; stable with room to spare."""


@dataclass(frozen=True, eq=False)
class Curvature:
    """``H_i`` of every device in one common basis: ``U C_i U^T + t_i (I - U U^T)``.

    ``U`` spans the leading eigenvectors of ``H = sum_i H_i``. Outside of it, ``t_i`` is a share of the mean eigenvalue of device
    ``i``.

    Args:
        basis: ``U``, (d, k).
        values: eigenvalues of ``H`` on the basis, (k,).
        blocks: ``C_i``, (N, k, k).
        tails: ``t_i``, (N,).
    """

    basis: FloatArray
    values: FloatArray
    blocks: FloatArray
    tails: FloatArray

    def preconditioned(self, gradient: FloatArray, damping: float) -> FloatArray:
        """Return ``P G``: ``P = (lambda_j + mu)^-1`` on the basis, ``(t + mu)^-1`` elsewhere, with ``t = sum_i t_i``."""
        elsewhere = damping + float(self.tails.sum())
        inside = self.basis.T @ gradient
        factors = 1.0 / (self.values + damping) - 1.0 / elsewhere
        step: FloatArray = gradient / elsewhere + self.basis @ (factors[:, None] * inside)
        return step

    @property
    def flat(self) -> Curvature:
        """The same basis with no curvature at all, which carries nothing along."""
        return replace(self, blocks=0 * self.blocks, tails=0 * self.tails)


@dataclass(frozen=True, eq=False)
class CurvatureModel:
    """What sketches suggest.

    Args:
        curvature: of every device.
        intercepts: ``U^T X_i^T Y_i`` as far as the sketch tells, (N, k, o).
        damping: ``mu``, the damping that the sketch suggests.
    """

    curvature: Curvature
    intercepts: FloatArray
    damping: float

    @classmethod
    @one_blas_thread()
    def of(cls, sketch: SubspaceSketch, samples: FloatArray) -> CurvatureModel:
        """Build the model from the sketches of all devices.

        Eigenvalues that the sketch's own noise could have made are left out, and the damping is large enough for eigenvalues that
        it could have hidden. A device that sent no sketch is taken to be like the mean of the others.

        Args:
            sketch: the sketches.
            samples: ``l_i``, (N,).
        """
        omega, total = sketch.test_matrix, sketch.products.sum(axis=0)
        noise_in_core = 2.0 * float(np.sqrt(sketch.entry_variance.sum() * sketch.rank))
        vectors, values = nystrom(total, omega, noise_in_core)
        visible = int(np.count_nonzero(values > sketch.noise_norm))
        kept = max(1, min(int(KEPT_SHARE * sketch.rank), visible, len(values) - 1))
        next_value = float(values[kept]) if kept < len(values) else 0.0
        basis, values = vectors[:, :kept], values[:kept]
        blocks = np.array([_block(products, omega, basis, noise_in_core) for products in sketch.products])
        intercepts = np.einsum("dk,ndo->nko", basis, sketch.label_products)
        free = max(len(basis) - kept, 1)
        tails = TAIL_SHARE * np.maximum(sketch.energy - np.trace(blocks, axis1=1, axis2=2), 0.0) / free
        silent = sketch.rows == 0
        if silent.any() and not silent.all():
            shares = samples[silent] / samples[~silent].sum()
            blocks[silent] = shares[:, None, None] * blocks[~silent].sum(axis=0)
            tails[silent] = shares * tails[~silent].sum()
        damping = max(DAMPING_FACTOR * next_value, sketch.noise_norm / LARGEST_MISMATCH)
        smallest = 1e-6 * float(values[0]) if values[0] > 0 else 1.0
        return cls(Curvature(basis, values, blocks, tails), intercepts, max(damping, smallest))

    @staticmethod
    def server_macs(devices: int, dimension: int, outputs: int, rank: int) -> float:
        """Return the server's arithmetic to build the model: sums, two products with the basis per device, a few ``d r^2``."""
        return float(devices * dimension * (rank + outputs) * (1 + KEPT_SHARE * rank) + 4 * dimension * rank**2)


def _block(products: FloatArray, omega: FloatArray, basis: FloatArray, noise: float) -> FloatArray:
    """Return ``C_i = U^T H^_i U`` with ``H^_i`` the Nyström approximation of one device."""
    core = omega.T @ products
    values, rotation = scipy.linalg.eigh((core + core.T) / 2)
    kept = values > max(noise, 1e-7 * max(float(values[-1]), 0.0))
    root = (basis.T @ products) @ (rotation[:, kept] / np.sqrt(values[kept]))
    block: FloatArray = root @ root.T
    return block
