"""Scores that tell from what a server saw which canaries were present."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedfl.errors import InputError
from codedfl.privacy._inputs import (
    require_count,
    require_matrix,
    require_number,
    require_positive_number,
    require_same_columns,
    require_same_rows,
)
from codedfl.typing import FloatArray

_LEAST_NOISE = 1e-9
"""Noise that is assumed at least, relative to the mean square of the coded data: a likelihood needs some."""


def gradient_scores(
    releases: Sequence[tuple[FloatArray, FloatArray]], features: FloatArray, labels: FloatArray, clip_norm: float
) -> FloatArray:
    """Return how much more likely noisy sums of clipped gradients are with each canary than without it.

    With ``r = W^T x - y`` and the clipped gradient ``g = x r^T min(1, C / (||x|| ||r||))``, the score is ``sum_k <G_k,
    g_k> - ||g_k||^2 / 2``: the Gaussian log-likelihood ratio times the noise variance, which is the same in every
    round, if there is nothing but noise and this canary.

    Args:
        releases: the model ``W_k``, (d, o), at which gradients were taken, and the released sum ``G_k``, (d, o), for
            each round.
        features: of the canaries, (m, d).
        labels: of the canaries, (m, o).
        clip_norm: ``C``; infinite for no clipping.

    Returns:
        (m,), higher for canaries that are more likely present.

    Example:
        >>> X, Y = np.eye(2), np.ones((2, 1))
        >>> W = np.zeros((2, 1))
        >>> gradient_scores([(W, -X[:1].T)], X, Y, clip_norm=1.0)
        array([ 0.5, -0.5])
    """
    _check_canaries(features, labels)
    if clip_norm != np.inf:
        require_positive_number("clip_norm", clip_norm)
    scores = np.zeros(len(features))
    lengths = np.linalg.norm(features, axis=1)
    for model, released in releases:
        _check_shape("the model of a release", model, (features.shape[1], labels.shape[1]))
        _check_shape("the gradient of a release", released, model.shape)
        residuals = features @ model - labels
        norms = lengths * np.linalg.norm(residuals, axis=1)
        shrink = np.minimum(1.0, clip_norm / np.maximum(norms, np.finfo(np.float64).tiny))
        scores += shrink * np.sum((features @ released) * residuals, axis=1) - (shrink * norms) ** 2 / 2
    return scores


def second_moment_scores(
    second_moment: FloatArray, cross: FloatArray, features: FloatArray, labels: FloatArray
) -> FloatArray:
    """Return how much more likely noisy statistics are with each canary than without it.

    A canary adds ``x x^T`` to ``S = X^T X`` and ``x y^T`` to ``C = X^T Y``, so the score is
    ``x^T S x + x^T C y - (||x||^4 + ||x||^2 ||y||^2) / 2``. It is the Gaussian log-likelihood ratio times ``s^2`` for
    noise ``s F`` on ``C`` and ``s (E + E^T) / 2`` on ``S``, ``E`` and ``F`` standard normal, if there is nothing but
    noise and this canary.

    Args:
        second_moment: ``S`` as released, (d, d).
        cross: ``C`` as released, (d, o).
        features: of the canaries, (m, d).
        labels: of the canaries, (m, o).

    Returns:
        (m,), higher for canaries that are more likely present.

    Example:
        >>> X, Y = np.eye(2), np.ones((2, 1))
        >>> second_moment_scores(X[:1].T @ X[:1], X[:1].T @ Y[:1], X, Y)
        array([ 1., -1.])
    """
    _check_canaries(features, labels)
    _check_shape("second_moment", second_moment, (features.shape[1], features.shape[1]))
    _check_shape("cross", cross, (features.shape[1], labels.shape[1]))
    squares, label_squares = np.sum(features**2, axis=1), np.sum(labels**2, axis=1)
    scores: FloatArray = np.sum((features @ second_moment) * features, axis=1)
    scores += np.sum((features @ cross) * labels, axis=1) - squares * (squares + label_squares) / 2
    return scores


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
