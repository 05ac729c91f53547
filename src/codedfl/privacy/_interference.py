"""What a device's other samples hide of one entry: ``h^2`` of Theorem 2, as printed and corrected (Sec. IV-B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from codedfl._validation import require_finite, require_non_negative
from codedfl.errors import InputError
from codedfl.privacy._mi_dp import mi_dp_bits
from codedfl.typing import FloatArray

_WORST_CONDITION = 1e12
"""A Gram matrix that is worse conditioned counts as singular, and nothing as hidden: the safe side."""


def printed_interference(features: FloatArray) -> float:
    """Return ``h^2`` of Theorem 2 as the paper prints it: the least, over columns, sum of squares without its largest term.

    It treats every column on its own. But all columns are projected by the same ``G_i``, so one column can reveal what hides
    another, and a budget computed from this ``h^2`` can be exceeded. Use it to reproduce the paper, and :func:`interference`
    to tell a user.

    Example:
        >>> printed_interference(np.array([[1.0, 0.5], [1.0, 0.5], [0.0, 0.5]]))
        0.5
    """
    squares = np.square(_checked(features))
    return float(np.min(squares.sum(axis=0) - squares.max(axis=0)))


def interference(features: FloatArray, noise_variance: float) -> float:
    """Return the ``h^2`` with which ``mi_dp_bits(c, sigma^2, h^2)`` bounds what is revealed of any entry of a dataset.

    Given everything but entry ``(j, k)``, the server sees it in Gaussian noise of covariance
    ``M_-j = X_-j^T X_-j + sigma^2 I``, of which ``1 / [M_-j^-1]_kk`` remains in column ``k`` once the other columns are
    known. ``h^2`` is the least of that over entries, minus ``sigma^2``. All samples are left out at once:
    ``M_-j^-1 = A + A x_j x_j^T A / (1 - s_j)``, ``A = M^-1``, ``s_j = x_j^T A x_j`` (Sherman and Morrison).

    It is about coded features alone. Labels coded with the same projection and without noise can reveal more of what hides an
    entry; the universal bound (``h = 0``) supposes all of ``G_i`` known, so it holds whatever labels are coded along. The
    value depends on the data, so publishing it, or choosing the noise by it, leaks something itself.

    Args:
        features: ``X_i``, one sample a row.
        noise_variance: ``sigma^2``.

    Returns:
        ``h^2``; 0 if nothing is hidden, as with fewer samples than columns and no noise.

    Example:
        >>> round(interference(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), 0.5), 12)
        1.0
        >>> interference(np.array([[1.0, 0.2]]), 0.5)
        0.0
    """
    X = _checked(features)
    require_non_negative("noise_variance", noise_variance)
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
    """What the coded features of a device reveal of one entry, in bits.

    Attributes:
        printed: Theorem 2 as printed; can be exceeded when there is more than one column.
        corrected: True for this dataset.
        universal: True for every dataset with entries within [-1, 1]; needs no data.
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


def largest_mi_dp(budgets: Sequence[MiDpBudget]) -> MiDpBudget:
    """Return the largest budgets over devices, ``epsilon = max_i epsilon_i`` of Theorem 2.

    Example:
        >>> largest_mi_dp([MiDpBudget(1, 4, 5), MiDpBudget(2, 3, 5)])
        MiDpBudget(printed=2, corrected=4, universal=5)
    """
    if not budgets:
        raise InputError("budgets is empty: give the budget of at least one device.")
    return MiDpBudget(*(max(getattr(b, name) for b in budgets) for name in ("printed", "corrected", "universal")))


def _checked(features: FloatArray) -> FloatArray:
    """Return the features in double precision, or refuse them."""
    X = np.asarray(features, dtype=np.float64)
    if X.ndim != 2 or X.size == 0:
        raise InputError(f"features of shape {X.shape} must be a table with at least one row and one column.")
    require_finite("features", X)
    return X


def _is_nearly_singular(gram: FloatArray, noise_variance: float) -> bool:
    """Say whether the condition number is beyond what the inverse can be trusted with; ``gram >= sigma^2 I`` often settles it."""
    if np.trace(gram) < 1e10 * noise_variance:
        return False
    spectrum = linalg.eigvalsh(gram)
    return bool(spectrum[0] * _WORST_CONDITION <= spectrum[-1])
