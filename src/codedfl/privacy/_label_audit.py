"""How much a device's own upload tells about its labels, measured on its data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.coding import Rows, encode
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy._labels import class_means, classes_in, infer_labels
from codedfl.privacy._matrices import require_matrix, require_same_rows
from codedfl.typing import FloatArray


@dataclass(frozen=True)
class LabelLeakage:
    """What one upload of a device tells the server about its labels.

    Args:
        classes_true: the classes that the device holds.
        classes_inferred: the classes that the server infers.
        correct: whether these are the same.
        single_class: whether the device holds one class, so that its classes are the label of every sample.
        count_error: sum over classes of the errors of the counts, as a share of the samples.
        class_mean_error: ``||estimate - truth||_F / ||truth||_F`` over the class means of the classes inferred rightly; None
            if there is no such class.
    """

    classes_true: tuple[int, ...]
    classes_inferred: tuple[int, ...]
    correct: bool
    single_class: bool
    count_error: float
    class_mean_error: float | None


def label_leakage(
    features: FloatArray,
    labels: FloatArray,
    coded_samples: int,
    noise_variance: float,
    label_noise_variance: float,
    rng: np.random.Generator,
    clip_norm: float | None = None,
) -> LabelLeakage:
    """Encode a device's data as it would, and measure what its own upload tells the server about the labels.

    Args:
        features: ``X_i``, (l, d).
        labels: ``Y_i``, (l, o), one-hot.
        coded_samples: ``c``.
        noise_variance: ``sigma_i^2``, which does not help against this.
        label_noise_variance: ``sigma_Y^2``, which does.
        rng: the source of the coded data.
        clip_norm: ``B``, to which samples are clipped; counts and means are then off by what clipping takes away.

    Example:
        >>> X, Y = np.ones((30, 2)), np.eye(3)[[1] * 30]
        >>> leak = label_leakage(X, Y, 1000, 1e3, 0.0, np.random.default_rng(0))
        >>> leak.classes_inferred, leak.correct, leak.single_class
        ((1,), True, True)
    """
    require_matrix("features", features)
    require_matrix("labels", labels)
    require_same_rows("features", features, "labels", labels)
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
        estimates = class_means(coded.features, coded.labels, inference)
    counts = np.ones(len(labels)) @ labels
    true = classes_in(counts > 0)
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


def _require_one_hot(labels: FloatArray) -> None:
    right = ((labels == 0) | (labels == 1)).all(axis=1) & (labels.sum(axis=1) == 1)
    if not right.all():
        row = int(np.argmin(right))
        raise InputError(
            f"labels is not one-hot in row {row}: what leaks here are classes, so give the labels of a classification, not of "
            "a regression."
        )
