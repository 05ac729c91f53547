"""Eigenpairs of a positive semidefinite matrix from its product with a few directions."""

from __future__ import annotations

import numpy as np
import scipy.linalg

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
