"""Sec. III-A of the paper, one row of ``G_i`` at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]


def device_upload(
    X: Matrix,
    Y: Matrix,
    c: int,
    rng: np.random.Generator,
    *,
    noise_variance: float,
    label_noise_variance: float = 0.0,
    weights: Matrix | None = None,
) -> tuple[Matrix, Matrix]:
    """Return ``X~_i = G_i W_i X_i + N_i`` and ``Y~_i = G_i W_i Y_i`` (+ label noise)."""
    (samples, d), o = X.shape, Y.shape[1]
    w = np.ones(samples) if weights is None else weights
    coded_features, coded_labels = [], []
    for _ in range(c):
        g = rng.normal(0.0, 1.0, samples)
        n = rng.normal(0.0, np.sqrt(noise_variance), d)
        n_labels = rng.normal(0.0, np.sqrt(label_noise_variance), o)
        coded_features.append((g * w) @ X + n)
        coded_labels.append((g * w) @ Y + n_labels)
    return np.array(coded_features), np.array(coded_labels)


def global_coded_data(
    devices: Sequence[tuple[Matrix, Matrix]], c: int, noise_variance: Sequence[float], rng: np.random.Generator
) -> tuple[Matrix, Matrix]:
    """Return ``X~ = sum_i X~_i`` and ``Y~ = sum_i Y~_i``, (2) in the paper."""
    uploads = [device_upload(X, Y, c, rng, noise_variance=v) for (X, Y), v in zip(devices, noise_variance, strict=True)]
    X_sum, Y_sum = uploads[0]
    for X, Y in uploads[1:]:
        X_sum, Y_sum = X_sum + X, Y_sum + Y
    return X_sum, Y_sum
