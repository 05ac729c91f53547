"""What removing a sample changes for one given dataset: a diagnosis, and not a guarantee.

The numbers here depend on the data themselves, so they say nothing about a neighbouring dataset, and publishing them leaks.
They show how far a dataset is from the worst case that :class:`~codedfl.privacy._accountant.PrivacyAccountant` is about.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import linalg

from codedfl._validation import require_finite, require_non_negative
from codedfl.errors import InputError
from codedfl.privacy._renyi import renyi_divergence
from codedfl.privacy._solving import exact_epsilon
from codedfl.typing import FloatArray


def sample_signal_to_noise(
    features: FloatArray,
    noise_variance: float,
    labels: FloatArray | None = None,
    label_noise_variance: float = 0.0,
) -> FloatArray:
    """Return ``r_j = z_j^T Sigma_-j^-1 z_j`` of every sample: how far it stands out of the noise and the other samples.

    ``r_j = s_j / (1 - s_j)`` with ``s_j = z_j^T Sigma^-1 z_j``, ``Sigma = Z^T Z + diag(sigma^2 I, sigma_Y^2 I)``, ``Z = [X Y]``.

    Args:
        features: ``X``, one sample a row.
        noise_variance: ``sigma^2``.
        labels: ``Y``, if they are coded with the features.
        label_noise_variance: ``sigma_Y^2``.

    Returns:
        ``r_j`` for every sample; infinite where a sample shows in a direction that has neither noise nor other samples.

    Example:
        >>> X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> sample_signal_to_noise(X, 0.25).round(6)
        array([0.8, 0.8, 4. ])
    """
    Z, noise = _with_noise(features, noise_variance, labels, label_noise_variance)
    norms = np.square(Z).sum(axis=1)
    most = (np.square(Z) / noise).sum(axis=1) if noise.min() > 0 else np.where(norms > 0, np.inf, 0.0)
    if norms.sum() + noise.sum() < 1e7 * noise.min():
        covariance = Z.T @ Z + np.diag(noise)
        whitened = linalg.solve_triangular(linalg.cholesky(covariance, lower=True), Z.T, lower=True)
        gap = 1 - np.square(whitened).sum(axis=0)
        resolved = gap > 0
    else:  # s_j is the leverage of row j of Z stacked on the root of the noise; exact to rounding whatever the condition
        left, values, _ = linalg.svd(np.vstack([Z, np.diag(np.sqrt(noise))]), full_matrices=False)
        kept = left[: len(Z), values > values[0] * 1e-13]
        gap = 1 - np.square(kept).sum(axis=1)
        resolved = gap > 1e-12
    ratio = np.divide(1 - gap, gap, out=np.full(len(Z), np.inf), where=resolved)
    return np.asarray(np.clip(ratio, 0.0, most), dtype=np.float64)


def renyi_of_dataset(
    orders: Sequence[float] | FloatArray | float,
    features: FloatArray,
    coded_samples: int,
    noise_variance: float,
    labels: FloatArray | None = None,
    label_noise_variance: float = 0.0,
) -> FloatArray:
    """Return the largest Renyi divergence between the upload of this dataset with and without one of its samples.

    Not a guarantee: it holds for this dataset only. Arguments as for :func:`sample_signal_to_noise`.

    Example:
        >>> X = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
        >>> renyi_of_dataset([1.1, 2.0], X, coded_samples=10, noise_variance=0.25).round(3)
        array([17.494,    inf])
    """
    ratios = sample_signal_to_noise(features, noise_variance, labels, label_noise_variance)
    return renyi_divergence(orders, coded_samples, float(ratios.max()))


def epsilon_of_dataset(
    delta: float,
    features: FloatArray,
    coded_samples: int,
    noise_variance: float,
    labels: FloatArray | None = None,
    label_noise_variance: float = 0.0,
) -> float:
    """Return the exact epsilon between the upload of this dataset with and without one of its samples.

    Not a guarantee: it holds for this dataset only. Arguments as for :func:`sample_signal_to_noise`.

    Example:
        >>> X = np.random.default_rng(0).uniform(-0.3, 0.3, (1000, 8))
        >>> round(epsilon_of_dataset(1e-5, X, coded_samples=100, noise_variance=0.25), 2)
        0.5
    """
    ratios = sample_signal_to_noise(features, noise_variance, labels, label_noise_variance)
    return exact_epsilon(delta, coded_samples, float(ratios.max()))


def _with_noise(
    features: FloatArray, noise_variance: float, labels: FloatArray | None, label_noise_variance: float
) -> tuple[FloatArray, FloatArray]:
    """Return ``Z = [X Y]`` and the noise variance of each of its columns, or refuse them."""
    require_non_negative("noise_variance", noise_variance)
    require_non_negative("label_noise_variance", label_noise_variance)
    X = np.asarray(features, dtype=np.float64)
    Y = np.zeros((len(X), 0)) if labels is None else np.asarray(labels, dtype=np.float64).reshape(len(labels), -1)
    if X.ndim != 2 or X.size == 0:
        raise InputError(f"features of shape {X.shape} must be a table with at least one row and one column.")
    if len(Y) != len(X):
        raise InputError(f"labels have {len(Y)} rows but features have {len(X)}: give one row of labels a sample.")
    require_finite("features", X)
    require_finite("labels", Y)
    return np.hstack([X, Y]), np.repeat([noise_variance, label_noise_variance], [X.shape[1], Y.shape[1]])
