"""What coded labels reveal about a device's classes (and its class means), whatever the noise on the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.stats

from codedfl._validation import require_non_negative
from codedfl.privacy._matrices import require_matrix, require_same_rows
from codedfl.typing import BoolArray, FloatArray

FALSE_ALARM = 0.01
"""Chance, at most, that any absent class is taken for present under label noise."""

ROUNDING = 1e-10
"""An eigenvalue of ``X~^T X~`` with a smaller share than this of the largest one is zero but for rounding."""

DUST = 1e-6
"""So is a column of ``Y~`` with a smaller share than this of the largest one's energy."""


@dataclass(frozen=True, eq=False)
class LabelInference:
    """What the coded labels of one device say about its classes.

    Args:
        present: the classes that it holds, ascending.
        counts: estimated samples of each class, (o,), zero or more.
        standard_errors: of the counts before they are cut at zero, (o,).
    """

    present: tuple[int, ...]
    counts: FloatArray
    standard_errors: FloatArray


def infer_labels(
    coded_labels: FloatArray, label_noise_variance: float = 0.0, coded_features: FloatArray | None = None
) -> LabelInference:
    """Read the classes of a device, and how many samples each has, off its coded labels.

    One-hot labels have ``Y^T Y = diag(n_1, ..., n_o)``, so column k of ``Y~ = G Y (+ noise)`` has independent
    ``N(0, n_k + sigma_Y^2)`` entries, and ``||Y~_k||^2 / c - sigma_Y^2`` estimates ``n_k`` with a standard error of
    ``(n_k + sigma_Y^2) sqrt(2 / c)``, from a chi-square with c degrees of freedom. What counts as present:

    - without label noise, every class whose column is not zero: there is no chance in it. (The encoder makes absent columns
      exactly zero, the sampler up to rounding.)
    - with label noise, a class that passes a chi-square test at level ``FALSE_ALARM`` over all classes and tests together:
      ``||Y~_k||^2 / sigma_Y^2`` against c degrees of freedom and, with coded features, ``||P Y~_k||^2 / sigma_Y^2``
      against rank(P) of them, P being the projection on the columns of ``X~``. Noise on labels has no part in
      ``X~``, while labels have (the same ``G``), so that with d well below c the second test sees through more noise.

    Args:
        coded_labels: ``Y~``, (c, o), of one-hot labels.
        label_noise_variance: ``sigma_Y^2``, known to the server.
        coded_features: ``X~``, (c, d), of the same upload; not needed without label noise.

    Example:
        >>> G, Y = np.random.default_rng(0).standard_normal((1000, 30)), np.eye(3)[[1] * 30]
        >>> infer_labels(G @ Y).present
        (1,)
    """
    require_matrix("coded_labels", coded_labels)
    require_non_negative("label_noise_variance", label_noise_variance)
    if coded_features is not None:
        require_matrix("coded_features", coded_features)
        require_same_rows("coded_features", coded_features, "coded_labels", coded_labels)
    Y = coded_labels.astype(np.float64)
    c = len(Y)
    energies = np.sum(Y**2, axis=0)
    standard_errors = energies / c * np.sqrt(2 / c)
    counts = np.maximum(energies / c - label_noise_variance, 0.0)
    if label_noise_variance == 0:
        present = energies > DUST * energies.max()
    else:
        tests = 1 if coded_features is None else 2
        level = FALSE_ALARM / (tests * len(energies))
        present = energies > label_noise_variance * scipy.stats.chi2.isf(level, c)
        if coded_features is not None:
            present |= _shared_with_features(Y, coded_features, label_noise_variance, level)
    return LabelInference(classes_in(present), counts, standard_errors)


def estimate_class_means(
    coded_features: FloatArray, coded_labels: FloatArray, label_noise_variance: float = 0.0
) -> FloatArray:
    """Estimate the mean of each class from coded data, whatever the noise on the features.

    ``X~^T Y~ / c`` has the expectation ``X^T Y``, the class sums, since neither noise is shared between the two. Divided by
    the counts of `infer_labels` it gives the class means ``m_k``. Without label noise ``X~ = Y~_k m_k^T + rest`` with ``rest``
    independent of ``Y~_k``, so the squared error has the exact expectation

        E ||estimate_k - m_k||^2 = tr(X^T X + sigma^2 I - n_k m_k m_k^T) / (n_k (c - 2)).

    Args:
        coded_features: ``X~``, (c, d).
        coded_labels: ``Y~``, (c, o), of one-hot labels.
        label_noise_variance: ``sigma_Y^2``, known to the server.

    Returns:
        The means, (o, d); NaN for classes that are absent, or whose estimated count is zero.

    Example:
        >>> X, Y = np.array([[1.0, 2.0], [3.0, 2.0], [0.0, 5.0]]), np.eye(3)[[0, 0, 2]]
        >>> G = np.random.default_rng(0).standard_normal((100_000, 3))
        >>> estimate_class_means(G @ X, G @ Y).round(1) + 0.0
        array([[ 2.,  2.],
               [nan, nan],
               [ 0.,  5.]])
    """
    return class_means(coded_features, coded_labels, infer_labels(coded_labels, label_noise_variance, coded_features))


def class_means(coded_features: FloatArray, coded_labels: FloatArray, inference: LabelInference) -> FloatArray:
    """Return ``X~^T Y~ / c`` over the inferred counts, as `estimate_class_means` does."""
    sums = coded_labels.astype(np.float64).T @ coded_features.astype(np.float64) / len(coded_labels)
    means = np.full(sums.shape, np.nan)
    for label in inference.present:
        if inference.counts[label] > 0:
            means[label] = sums[label] / inference.counts[label]
    return means


def _shared_with_features(Y: FloatArray, coded_features: FloatArray, variance: float, level: float) -> BoolArray:
    """Test whether ``||P Y~_k||^2 = b^T (X~^T X~)^+ b``, ``b = X~^T Y~_k``, is more than noise gives."""
    X = coded_features.astype(np.float64)
    values, vectors = scipy.linalg.eigh(X.T @ X)
    spanned = values > ROUNDING * values[-1]
    shares = vectors[:, spanned].T @ (X.T @ Y) / np.sqrt(values[spanned])[:, None]
    passed: BoolArray = np.sum(shares**2, axis=0) > variance * scipy.stats.chi2.isf(level, np.sum(spanned))
    return passed


def classes_in(mask: BoolArray) -> tuple[int, ...]:
    """Return the classes that a mask selects, ascending."""
    return tuple(int(label) for label in np.flatnonzero(mask))
