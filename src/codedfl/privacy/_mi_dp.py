"""Mutual-information differential privacy of a coded upload (Sec. IV-B)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from codedfl.errors import InputError
from codedfl.privacy._inputs import require_count, require_matrix, require_number, require_positive_number
from codedfl.typing import FloatArray

_WORST_CONDITION = 1e12
"""A Gram matrix with a larger condition number counts as singular, so that nothing is hidden: this errs on the safe side."""


def mi_dp_bits(coded_samples: int, noise_variance: float, interference: float = 0.0) -> float:
    """Return the MI-DP budget of a coded upload, in bits per entry of the data.

    ``epsilon_i = q_i(sigma_i^2) = 1/2 log2(1 + c / (h^2 + sigma_i^2))``, Theorem 2 of the paper. With ``h = 0`` it needs no
    data and holds for every dataset with entries within [-1, 1]: the universal bound. With ``h^2`` as printed in the theorem
    (:func:`~codedfl.privacy.printed_interference`) it is too optimistic if samples have more than one column;
    :func:`~codedfl.privacy.interference` is the ``h^2`` for which the bound holds. The budget covers the coded features alone,
    neither the coded labels nor the updates sent during training.

    Args:
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2``.
        interference: ``h^2``, the contribution of the device's other samples; 0 for a bound that holds for all data.

    Returns:
        The budget in bits; infinite without noise and interference.

    Example:
        >>> round(mi_dp_bits(10_000, 0.25), 2)
        7.64
        >>> mi_dp_bits(10_000, 0.0)
        inf
    """
    require_count("coded_samples", coded_samples, most=10**300)
    require_number("noise_variance", noise_variance)
    require_number("interference", interference)
    hidden = noise_variance + interference
    if hidden == 0:
        return math.inf
    ratio = coded_samples / hidden
    return 0.5 * (math.log1p(ratio) if ratio < math.inf else math.log(coded_samples) - math.log(hidden)) / math.log(2)


def noise_variance_for_mi_dp(bits: float, coded_samples: int, interference: float = 0.0) -> float:
    """Return the noise variance that gives an MI-DP budget, the inverse of :func:`mi_dp_bits`.

    ``sigma_i^2 = q_i^-1(epsilon_i) = c / (2^(2 epsilon_i) - 1) - h^2``.

    Args:
        bits: ``epsilon_i``, per entry of the data.
        coded_samples: ``c``.
        interference: ``h^2``, held fixed; 0 for a bound that holds for all data.

    Returns:
        ``sigma_i^2``.

    Raises:
        InputError: If even no noise at all uses less than ``bits``, or if the variance overflows or underflows.

    Example:
        >>> round(noise_variance_for_mi_dp(7.64, 10_000), 4)
        0.2513
    """
    require_positive_number("bits", bits)
    require_count("coded_samples", coded_samples, most=10**300)
    require_number("interference", interference)
    shrink = -2 * math.log(2) * bits
    hidden = coded_samples * math.exp(shrink) / -math.expm1(shrink)
    if hidden < interference * (1 - 1e-12):
        most = mi_dp_bits(coded_samples, 0.0, interference)
        raise InputError(
            f"bits = {bits} is a larger budget than an upload without noise uses: give {most:.6g} or less."
        )
    if not 0 < hidden < math.inf:
        raise InputError(
            f"bits = {bits} needs a noise variance of {hidden:g} to the precision of a number: give a less extreme budget."
        )
    return max(hidden - interference, 0.0)


def printed_interference(features: FloatArray) -> float:
    """Return ``h^2`` of Theorem 2 as printed: the smallest column sum of squares, each without its largest term.

    It treats each column on its own. But all columns are projected by the same ``G_i``, so one column can reveal what hides
    another, and an upload can exceed a budget computed from this ``h^2``. Use it to reproduce the paper, and
    :func:`interference` to inform a user.

    Example:
        >>> printed_interference(np.array([[1.0, 0.5], [1.0, 0.5], [0.0, 0.5]]))
        0.5
    """
    squares = np.square(_checked(features))
    return float(np.min(squares.sum(axis=0) - squares.max(axis=0)))


def interference(features: FloatArray, noise_variance: float) -> float:
    """Return the ``h^2`` for which ``mi_dp_bits(c, sigma^2, h^2)`` bounds what the upload reveals of any entry of a dataset.

    Given everything but entry ``(j, k)``, the server sees it in Gaussian noise of covariance
    ``M_-j = X_-j^T X_-j + sigma^2 I``, of which ``1 / [M_-j^-1]_kk`` remains in column ``k`` once the other columns are
    known. ``h^2`` is the minimum of that over entries, minus ``sigma^2``. All samples are left out at once:
    ``M_-j^-1 = A + A x_j x_j^T A / (1 - s_j)``, ``A = M^-1``, ``s_j = x_j^T A x_j`` (Sherman and Morrison).

    It concerns the coded features alone. Labels coded with the same projection and without noise can reveal more of what hides
    an entry; the universal bound (``h = 0``) assumes that all of ``G_i`` is known, so it holds with any labels. The value
    depends on the data, so publishing it, or choosing the noise by it, leaks information itself.

    Args:
        features: ``X_i``, one sample per row.
        noise_variance: ``sigma^2``.

    Returns:
        ``h^2``; 0 if nothing is hidden, for example with fewer samples than columns and no noise.

    Example:
        >>> round(interference(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), 0.5), 12)
        1.0
        >>> interference(np.array([[1.0, 0.2]]), 0.5)
        0.0
    """
    X = _checked(features)
    require_number("noise_variance", noise_variance)
    samples, columns = X.shape
    if samples <= columns and noise_variance == 0:
        return 0.0
    gram = X @ X.T if samples <= columns else X.T @ X
    gram[np.diag_indices_from(gram)] += noise_variance
    if _is_nearly_singular(gram, noise_variance):
        return 0.0
    inverse = linalg.inv(gram)
    if samples <= columns:  # A X^T = X^T K^-1 and 1 - s_j = sigma^2 [K^-1]_jj with K = X X^T + sigma^2 I
        W = inverse @ X
        exposed = 1 - np.einsum("jk,jk->k", X, W) + (W**2 / np.diag(inverse)[:, None]).max(axis=0)
        return float(max(noise_variance * (1 / exposed.max() - 1), 0.0))
    W = X @ inverse
    least_gap = noise_variance / (noise_variance + np.square(X).sum(axis=1)) if noise_variance else 0.0
    gap = np.maximum(1 - np.einsum("jk,jk->j", X, W), least_gap)
    if gap.min() < 1 / _WORST_CONDITION:
        return 0.0
    precision = np.diag(inverse) + (W**2 / gap[:, None]).max(axis=0)
    return float(max(1 / precision.max() - noise_variance, 0.0))


@dataclass(frozen=True)
class MiDpBudget:
    """What the coded features of a device reveal per entry, in bits.

    Attributes:
        printed: Theorem 2 as printed; an upload can exceed it if there is more than one column.
        corrected: Holds for this dataset.
        universal: Holds for every dataset with entries within [-1, 1].
    """

    printed: float
    corrected: float
    universal: float


def mi_dp_of_device(features: FloatArray, coded_samples: int, noise_variance: float) -> MiDpBudget:
    """Return the MI-DP budget of one device in its three versions.

    Example:
        >>> budget = mi_dp_of_device(np.ones((100, 2)), coded_samples=100, noise_variance=0.1)
        >>> round(budget.printed, 2), round(budget.corrected, 2), round(budget.universal, 2)
        (0.5, 4.48, 4.98)
    """
    return MiDpBudget(
        mi_dp_bits(coded_samples, noise_variance, printed_interference(features)),
        mi_dp_bits(coded_samples, noise_variance, interference(features, noise_variance)),
        mi_dp_bits(coded_samples, noise_variance),
    )


def _checked(features: FloatArray) -> FloatArray:
    """Return the features in double precision, or refuse them."""
    X = np.asarray(features, dtype=np.float64)
    require_matrix("features", X)
    return X


def _is_nearly_singular(gram: FloatArray, noise_variance: float) -> bool:
    """Return whether the condition number is too large to trust the inverse; ``gram >= sigma^2 I`` often settles it."""
    if np.trace(gram) < 1e10 * noise_variance:
        return False
    spectrum = linalg.eigvalsh(gram)
    return bool(spectrum[0] * _WORST_CONDITION <= spectrum[-1])
