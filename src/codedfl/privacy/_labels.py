"""What coded labels reveal about a device's classes and class means, regardless of the noise on the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.special

from codedfl.coding import Rows, encode
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy._inputs import require_count, require_matrix, require_number, require_same_rows
from codedfl.typing import BoolArray, FloatArray

FALSE_ALARM = 0.01
"""Upper bound on the probability that the tests under label noise take any absent class for present."""

ROUNDING = 1e-10
"""An eigenvalue of ``X~^T X~`` below this share of the largest one counts as zero: it is rounding error."""

DUST = 1e-6
"""A column of ``Y~`` with less than this share of the largest column's energy counts as zero, for the same reason."""


@dataclass(frozen=True, eq=False)
class LabelInference:
    """What the coded labels of one device reveal about its classes.

    Args:
        present: The classes that the device holds, in ascending order.
        counts: Estimated number of samples per class, (o,), zero or more.
        standard_errors: Standard errors of the counts before they are cut off at zero, (o,).
    """

    present: tuple[int, ...]
    counts: FloatArray
    standard_errors: FloatArray


@dataclass(frozen=True)
class LabelLeakage:
    """What one upload of a device tells the server about its labels.

    Args:
        classes_true: The classes that the device holds.
        classes_inferred: The classes that the server infers.
        correct: Whether the two are the same.
        single_class: Whether the device holds a single class, so that its class is the label of every sample.
        count_error: Sum over classes of the absolute errors of the counts, relative to the number of samples.
        class_mean_error: ``||estimate - truth||_F / ||truth||_F`` over the means of the correctly inferred classes; None if
            there is no such class.
    """

    classes_true: tuple[int, ...]
    classes_inferred: tuple[int, ...]
    correct: bool
    single_class: bool
    count_error: float
    class_mean_error: float | None


def infer_labels(
    coded_labels: FloatArray, label_noise_variance: float = 0.0, coded_features: FloatArray | None = None
) -> LabelInference:
    """Infer from its coded labels which classes a device holds, and how many samples of each.

    One-hot labels satisfy ``Y^T Y = diag(n_1, ..., n_o)``, so the entries of column k of ``Y~ = G Y (+ noise)`` are independent
    ``N(0, n_k + sigma_Y^2)``. Hence ``||Y~_k||^2 / c - sigma_Y^2`` estimates ``n_k`` with a standard error of
    ``(n_k + sigma_Y^2) sqrt(2 / c)`` (chi-square with c degrees of freedom). A class counts as present:

    - without label noise, if its column is not zero; no chance is involved. (The encoder makes absent columns exactly zero,
      the sampler up to rounding.)
    - with label noise, if it passes a chi-square test at level ``FALSE_ALARM``, shared by all classes and tests:
      ``||Y~_k||^2 / sigma_Y^2`` against c degrees of freedom and, with coded features, ``||P Y~_k||^2 / sigma_Y^2``
      against rank(P) degrees, where P projects on the columns of ``X~``. The label noise is independent of ``X~`` while
      the labels share its ``G``, so the second test sees through more noise if d is well below c.

    Args:
        coded_labels: ``Y~``, (c, o), of one-hot labels.
        label_noise_variance: ``sigma_Y^2``, known to the server.
        coded_features: ``X~``, (c, d), of the same upload; not needed without label noise.

    Returns:
        The classes, and the estimated counts with their standard errors.

    Example:
        >>> G, Y = np.random.default_rng(0).standard_normal((1000, 30)), np.eye(3)[[1] * 30]
        >>> infer_labels(G @ Y).present
        (1,)
    """
    require_matrix("coded_labels", coded_labels)
    require_number("label_noise_variance", label_noise_variance)
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
        present = energies > label_noise_variance * scipy.special.chdtri(c, level)
        if coded_features is not None:
            present |= _shared_with_features(Y, coded_features, label_noise_variance, level)
    return LabelInference(_classes_in(present), counts, standard_errors)


def estimate_class_means(coded_features: FloatArray, coded_labels: FloatArray, inference: LabelInference) -> FloatArray:
    """Estimate the mean of each class from coded data, regardless of the noise on the features.

    ``X~^T Y~ / c`` has the expectation ``X^T Y``, the class sums, since the two noises are independent. Divided by
    the inferred counts it gives the class means ``m_k``. Without label noise ``X~ = Y~_k m_k^T + rest`` with ``rest``
    independent of ``Y~_k``, so the squared error has the exact expectation

        E ||estimate_k - m_k||^2 = tr(X^T X + sigma^2 I - n_k m_k m_k^T) / (n_k (c - 2)).

    Args:
        coded_features: ``X~``, (c, d).
        coded_labels: ``Y~``, (c, o), of one-hot labels.
        inference: What :func:`infer_labels` makes of them.

    Returns:
        The means, (o, d); NaN for classes that are absent or whose estimated count is zero.

    Example:
        >>> X, Y = np.array([[1.0, 2.0], [3.0, 2.0], [0.0, 5.0]]), np.eye(3)[[0, 0, 2]]
        >>> G = np.random.default_rng(0).standard_normal((100_000, 3))
        >>> estimate_class_means(G @ X, G @ Y, infer_labels(G @ Y)).round(1) + 0.0
        array([[ 2.,  2.],
               [nan, nan],
               [ 0.,  5.]])
    """
    require_matrix("coded_features", coded_features)
    require_matrix("coded_labels", coded_labels)
    require_same_rows("coded_features", coded_features, "coded_labels", coded_labels)
    sums = coded_labels.astype(np.float64).T @ coded_features.astype(np.float64) / len(coded_labels)
    means = np.full(sums.shape, np.nan)
    for label in inference.present:
        if inference.counts[label] > 0:
            means[label] = sums[label] / inference.counts[label]
    return means


def label_leakage(
    features: FloatArray,
    labels: FloatArray,
    coded_samples: int,
    noise_variance: float,
    label_noise_variance: float,
    rng: np.random.Generator,
    clip_norm: float | None = None,
) -> LabelLeakage:
    """Encode a device's data as the device would, and measure what the upload tells the server about the labels.

    Args:
        features: ``X_i``, (l, d).
        labels: ``Y_i``, (l, o), one-hot.
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2``, which does not protect the labels.
        label_noise_variance: ``sigma_Y^2``, which does.
        rng: Source of the coded data.
        clip_norm: ``B``, to which samples are clipped; counts and means are then off by what clipping removes.

    Returns:
        True and inferred classes, and the errors of the counts and of the class means.

    Example:
        >>> X, Y = np.ones((30, 2)), np.eye(3)[[1] * 30]
        >>> leak = label_leakage(X, Y, 1000, 1e3, 0.0, np.random.default_rng(0))
        >>> leak.classes_inferred, leak.correct, leak.single_class
        ((1,), True, True)
    """
    require_matrix("features", features)
    require_matrix("labels", labels)
    require_same_rows("features", features, "labels", labels)
    require_count("coded_samples", coded_samples)
    _require_one_hot(labels)
    with one_blas_thread():
        coded = encode(
            Rows(features, labels),
            coded_samples,
            noise_variance=noise_variance,
            label_noise_variance=label_noise_variance,
            clip_norm=clip_norm,
            rng=rng,
        )
        inference = infer_labels(coded.labels, label_noise_variance, coded.features)
        estimates = estimate_class_means(coded.features, coded.labels, inference)
    counts = np.ones(len(labels)) @ labels
    true = _classes_in(counts > 0)
    right = [label for label in true if np.isfinite(estimates[label]).all()]
    sums = labels.astype(np.float64).T @ features.astype(np.float64)
    means = sums[right] / counts[right, None]
    size = float(np.linalg.norm(means))
    return LabelLeakage(
        classes_true=true,
        classes_inferred=inference.present,
        correct=inference.present == true,
        single_class=len(true) == 1,
        count_error=float(np.sum(np.abs(inference.counts - counts)) / len(labels)),
        class_mean_error=float(np.linalg.norm(estimates[right] - means)) / size if size > 0 else None,
    )


def _shared_with_features(Y: FloatArray, coded_features: FloatArray, variance: float, level: float) -> BoolArray:
    """Test whether ``||P Y~_k||^2 = b^T (X~^T X~)^+ b``, ``b = X~^T Y~_k``, exceeds what noise alone gives."""
    X = coded_features.astype(np.float64)
    values, vectors = scipy.linalg.eigh(X.T @ X)
    spanned = values > ROUNDING * values[-1]
    shares = vectors[:, spanned].T @ (X.T @ Y) / np.sqrt(values[spanned])[:, None]
    passed: BoolArray = np.sum(shares**2, axis=0) > variance * scipy.special.chdtri(np.sum(spanned), level)
    return passed


def _classes_in(mask: BoolArray) -> tuple[int, ...]:
    """Return the classes that a mask selects, in ascending order."""
    return tuple(int(label) for label in np.flatnonzero(mask))


def _require_one_hot(labels: FloatArray) -> None:
    right = ((labels == 0) | (labels == 1)).all(axis=1) & (labels.sum(axis=1) == 1)
    if not right.all():
        row = int(np.argmin(right))
        raise InputError(
            f"labels is not one-hot in row {row}: this measures the leakage of classes, so give the labels of a "
            "classification, not of a regression."
        )
