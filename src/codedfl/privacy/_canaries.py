"""Canaries: samples made to be easy to detect, and scores that tell from what a server saw which of them were present."""

from __future__ import annotations

import numpy as np

from codedfl.errors import InputError
from codedfl.privacy._inputs import (
    require_count,
    require_matrix,
    require_norm_bound,
    require_number,
    require_same_columns,
    require_same_rows,
)
from codedfl.typing import FloatArray, IntArray

_MOST = 10**6

_LEAST_NOISE = 1e-9
"""Noise that is assumed at least, relative to the mean square of the coded data: a likelihood needs some."""


def make_canaries(
    count: int, dimension: int, outputs: int, norm_bound: float, label_bound: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return features and labels of samples that stand out of each other and reach the bounds on their norms.

    The features are random orthogonal vectors of norm ``B``. More than ``d`` of them are several orthogonal bases, and
    each basis has a class of its own, so that the gradients ``x y^T`` at the model 0 stay orthogonal up to ``d o``
    canaries. Labels are one-hot times ``B_Y``, of a random class where one basis suffices; a single output is ``B_Y``
    or ``-B_Y`` at random.

    Args:
        count: ``m``.
        dimension: ``d``.
        outputs: ``o``.
        norm_bound: ``B``.
        label_bound: ``B_Y``.
        rng: the source of directions, classes and signs.

    Returns:
        Features (m, d) and labels (m, o).

    Example:
        >>> X, Y = make_canaries(3, 8, 2, norm_bound=2.0, label_bound=1.0, rng=np.random.default_rng(0))
        >>> np.allclose(X @ X.T, 4 * np.eye(3)), Y.sum(axis=1)
        (True, array([1., 1., 1.]))
    """
    for name, value in (("count", count), ("dimension", dimension), ("outputs", outputs)):
        require_count(name, value, _MOST)
    require_norm_bound("norm_bound", norm_bound)
    require_norm_bound("label_bound", label_bound)
    bases = [_orthonormal(min(dimension, count - first), dimension, rng) for first in range(0, count, dimension)]
    features = norm_bound * np.concatenate(bases)
    if outputs == 1:
        return features, label_bound * rng.choice([-1.0, 1.0], size=(count, 1))
    classes: IntArray = (
        rng.integers(outputs, size=count) if len(bases) == 1 else np.arange(count) // dimension % outputs
    )
    return features, label_bound * np.eye(outputs)[classes]


def coded_scores(
    coded_features: FloatArray,
    coded_labels: FloatArray,
    noise_variance: float,
    label_noise_variance: float,
    features: FloatArray,
    labels: FloatArray,
    *,
    background: FloatArray | None = None,
    coded_samples: int | None = None,
) -> FloatArray:
    """Return how much more likely coded rows are with each canary than without it.

    With ``z = (x, y)``, coded rows ``Z~`` are ``c`` draws from N(0, A) without the canary and from N(0, A + z z^T) with
    it. For ``A`` the auditor takes the noise, what is known of other samples, and half of ``z z^T`` of every other
    canary, since half of them are present. With ``h = z^T A^-1 z``, the log-likelihood ratio is
    ``||Z~ A^-1 z||^2 / (2 (1 + h)) - (c / 2) ln(1 + h)``.

    Args:
        coded_features: ``X~``, (c, d), or any matrix with the same ``Z~^T Z~``, such as a triangular factor.
        coded_labels: ``Y~``, (c, o), with as many rows.
        noise_variance: ``sigma^2`` on coded features.
        label_noise_variance: ``sigma_Y^2`` on coded labels.
        features: of the canaries, (m, d).
        labels: of the canaries, (m, o).
        background: ``Z^T Z`` of other samples, (d + o, d + o), for an auditor who knows them; None for none.
        coded_samples: ``c`` if it is not the number of rows given.

    Returns:
        (m,), higher for canaries that are more likely present.

    Example:
        >>> rng, X, Y = np.random.default_rng(0), np.eye(2), np.ones((2, 1))
        >>> G = rng.standard_normal((1000, 1))
        >>> noise = 0.1 * rng.standard_normal((1000, 2))
        >>> coded_scores(G @ X[:1] + noise, G @ Y[:1], 0.01, 0.0, X, Y) > 0
        array([ True, False])
    """
    _check_canaries(features, labels)
    require_matrix("coded_features", coded_features)
    require_matrix("coded_labels", coded_labels)
    require_same_rows("coded_labels", coded_labels, "coded_features", coded_features)
    require_same_columns("coded_features", coded_features, "features", features)
    require_same_columns("coded_labels", coded_labels, "labels", labels)
    require_number("noise_variance", noise_variance)
    require_number("label_noise_variance", label_noise_variance)
    rows = len(coded_features) if coded_samples is None else coded_samples
    require_count("coded_samples", rows)
    coded = np.hstack([coded_features, coded_labels]).astype(np.float64)
    Z = np.hstack([features, labels]).astype(np.float64)
    noise = np.repeat([noise_variance, label_noise_variance], [features.shape[1], labels.shape[1]])
    least = _LEAST_NOISE * max(float(np.sum(coded**2)) / (rows * coded.shape[1]), np.finfo(np.float64).tiny)
    covariance = np.diag(np.maximum(noise, least)) + Z.T @ Z / 2
    if background is not None:
        _check_shape("background", background, covariance.shape)
        covariance += background
    directions = np.linalg.solve(covariance, Z.T)
    powers = np.sum(Z.T * directions, axis=0)
    # The covariance has half of the canary itself as well; by Sherman-Morrison both grow by this factor without it.
    grow = 1 / np.maximum(1 - powers / 2, np.finfo(np.float64).eps)
    powers *= grow
    projected = np.sum((coded @ (directions * grow)) ** 2, axis=0)
    scores: FloatArray = projected / (2 * (1 + powers)) - rows / 2 * np.log1p(powers)
    return scores


def model_scores(model: FloatArray, features: FloatArray, labels: FloatArray) -> FloatArray:
    """Return minus the loss of a model on each canary, ``-||W^T x - y||^2 / 2``.

    It is the score for an auditor who sees nothing but the final model.

    Args:
        model: ``W``, (d, o).
        features: of the canaries, (m, d).
        labels: of the canaries, (m, o).

    Returns:
        (m,), higher for canaries that are more likely present.

    Example:
        >>> X, Y = np.eye(2), np.ones((2, 1))
        >>> model_scores(X[:1].T, X, Y)
        array([-0. , -0.5])
    """
    _check_canaries(features, labels)
    _check_shape("model", model, (features.shape[1], labels.shape[1]))
    scores: FloatArray = -0.5 * np.sum((features @ model - labels) ** 2, axis=1)
    return scores


def _check_canaries(features: FloatArray, labels: FloatArray) -> None:
    require_matrix("features", features)
    require_matrix("labels", labels)
    require_same_rows("labels", labels, "features", features)


def _check_shape(name: str, values: FloatArray, shape: tuple[int, ...]) -> None:
    require_matrix(name, values)
    if values.shape != shape:
        raise InputError(
            f"{name} has shape {values.shape}: give {shape}, which fits the features and labels of the canaries."
        )


def _orthonormal(count: int, dimension: int, rng: np.random.Generator) -> FloatArray:
    basis: FloatArray = np.linalg.qr(rng.standard_normal((dimension, count)))[0].T
    return basis
