"""Scores against likelihoods, without noise, drowned in noise, and in audits of mechanisms with planted mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from codedfl.errors import InputError
from codedfl.privacy import gaussian_epsilon
from codedfl.privacy._canaries import make_canaries
from codedfl.privacy._canary_scores import coded_scores, gradient_scores, model_scores, second_moment_scores
from codedfl.privacy._one_run import audit_scores
from codedfl.typing import BoolArray, FloatArray

M, D, OUTPUTS = 200, 250, 3
DELTA = 1e-5


def clipped_gradients(model: FloatArray, features: FloatArray, labels: FloatArray, clip_norm: float) -> FloatArray:
    """One at a time, (m, d, o)."""
    found = []
    for x, y in zip(features, labels, strict=True):
        gradient = np.outer(x, model.T @ x - y)
        found.append(gradient * min(1.0, clip_norm / float(np.linalg.norm(gradient))))
    return np.array(found)


def score_gradients(
    X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator
) -> FloatArray:
    releases = []
    for model in (np.zeros((D, OUTPUTS)), 0.01 * rng.standard_normal((D, OUTPUTS))):
        total = clipped_gradients(model, X[present], Y[present], 1.0).sum(axis=0)
        releases.append((model, total + noise * rng.standard_normal((D, OUTPUTS))))
    return gradient_scores(releases, X, Y, clip_norm=1.0)


def score_statistics(
    X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator
) -> FloatArray:
    E, F = rng.standard_normal((D, D)), rng.standard_normal((D, OUTPUTS))
    S = X[present].T @ X[present] + noise * (E + E.T) / 2
    return second_moment_scores(S, X[present].T @ Y[present] + noise * F, X, Y)


def score_coded(X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator) -> FloatArray:
    G = rng.standard_normal((400, int(present.sum())))
    coded = G @ X[present] + noise * rng.standard_normal((400, D))
    coded_labels = G @ Y[present] + noise * rng.standard_normal((400, OUTPUTS))
    return coded_scores(coded, coded_labels, noise**2, noise**2, X, Y)


def score_model(X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator) -> FloatArray:
    model = np.linalg.pinv(X[present]) @ Y[present]
    return model_scores(model + noise * rng.standard_normal((D, OUTPUTS)), X, Y)


SCORES = [score_gradients, score_statistics, score_coded, score_model]
Score = Callable[[FloatArray, FloatArray, BoolArray, float, np.random.Generator], FloatArray]


@pytest.mark.parametrize("score", SCORES)
def test_without_noise_scores_separate_perfectly(score: Score) -> None:
    rng = np.random.default_rng(0)
    X, Y = make_canaries(M, D, OUTPUTS, 1.0, 1.0, rng)
    present = rng.random(M) < 0.5
    scores = score(X, Y, present, 0.0, rng)
    assert scores.shape == (M,)
    assert scores[present].min() > scores[~present].max()


@pytest.mark.parametrize("score", SCORES)
def test_in_much_noise_scores_are_at_chance(score: Score) -> None:
    """The share of pairs in the right order is 1/2 within 4 standard errors of the rank test."""
    rng = np.random.default_rng(1)
    X, Y = make_canaries(M, D, OUTPUTS, 1.0, 1.0, rng)
    present = rng.random(M) < 0.5
    scores = score(X, Y, present, 1e4, rng)
    inside, outside = scores[present], scores[~present]
    share = float(np.mean(inside[:, None] > outside[None, :]))
    error = math.sqrt((M + 1) / (12 * len(inside) * len(outside)))
    assert abs(share - 0.5) < 4 * error


def test_gradient_scores_are_log_likelihood_ratios() -> None:
    rng = np.random.default_rng(2)
    X, Y, noise, clip_norm = rng.standard_normal((6, 4)), rng.standard_normal((6, 2)), 0.7, 2.0
    releases = [(rng.standard_normal((4, 2)), rng.standard_normal((4, 2))) for _ in range(3)]
    expected = np.zeros(6)
    for W, G in releases:
        with_canary = np.sum(stats.norm.logpdf(G[None], clipped_gradients(W, X, Y, clip_norm), noise), axis=(1, 2))
        expected += with_canary - np.sum(stats.norm.logpdf(G, 0, noise))
    np.testing.assert_allclose(gradient_scores(releases, X, Y, clip_norm) / noise**2, expected, rtol=1e-10)
    np.testing.assert_array_equal(gradient_scores(releases, X, Y, math.inf), gradient_scores(releases, X, Y, 1e9))


def test_second_moment_scores_are_log_likelihood_ratios() -> None:
    rng = np.random.default_rng(3)
    X, Y, noise = rng.standard_normal((6, 4)), rng.standard_normal((6, 2)), 0.7
    S, C = rng.standard_normal((4, 4)), rng.standard_normal((4, 2))
    S += S.T
    upper = np.triu_indices(4)
    spread = np.where(upper[0] == upper[1], noise, noise / math.sqrt(2))
    found = second_moment_scores(S, C, X, Y) / noise**2
    for x, y, score in zip(X, Y, found, strict=True):
        ratio = stats.norm.logpdf(S[upper], np.outer(x, x)[upper], spread) - stats.norm.logpdf(S[upper], 0, spread)
        cross = stats.norm.logpdf(C, np.outer(x, y), noise) - stats.norm.logpdf(C, 0, noise)
        assert score == pytest.approx(float(np.sum(ratio) + np.sum(cross)), rel=1e-10)


def test_coded_scores_are_log_likelihood_ratios() -> None:
    """Other canaries count by half; a triangular factor says the same as the rows."""
    rng = np.random.default_rng(4)
    X, Y, others = rng.standard_normal((3, 4)), rng.standard_normal((3, 2)), rng.standard_normal((5, 6))
    coded = rng.standard_normal((20, 6))
    arguments = (0.3, 0.2, X, Y)
    background = others.T @ others
    found = coded_scores(coded[:, :4], coded[:, 4:], *arguments, background=background)
    Z = np.hstack([X, Y])
    for j, score in enumerate(found):
        rest = np.delete(Z, j, axis=0)
        without = np.diag([0.3] * 4 + [0.2] * 2) + background + rest.T @ rest / 2
        laws = [stats.multivariate_normal(np.zeros(6), A) for A in (without + np.outer(Z[j], Z[j]), without)]
        assert score == pytest.approx(float(np.sum(laws[0].logpdf(coded) - laws[1].logpdf(coded))), rel=1e-9)
    factor = np.linalg.qr(coded)[1]
    again = coded_scores(factor[:, :4], factor[:, 4:], *arguments, background=background, coded_samples=20)
    np.testing.assert_allclose(again, found, rtol=1e-9)


@pytest.mark.parametrize("mistake", ["none", "noise", "clipping"])
def test_an_audit_of_private_gradients_finds_planted_mistakes(mistake: str) -> None:
    """Four rounds at a claimed epsilon of 1: right, with a fifth of the noise, or with gradients that are not clipped."""
    rng = np.random.default_rng(5)
    canaries, dimension, rounds, claimed_mu = 600, 600, 4, 0.267
    X, Y = make_canaries(canaries, dimension, 2, 1.0, 8.0, rng)
    present = rng.random(canaries) < 0.5
    noise = math.sqrt(rounds) / claimed_mu * (0.2 if mistake == "noise" else 1.0)
    W = np.zeros((dimension, 2))
    releases = []
    for _ in range(rounds):
        residuals = X @ W - Y
        shrink = 1.0 if mistake == "clipping" else np.minimum(1, 1 / np.linalg.norm(residuals, axis=1, keepdims=True))
        G = X[present].T @ (shrink * residuals)[present] + noise * rng.standard_normal(W.shape)
        releases.append((W, G))
        W = W - 0.01 * G
    claimed = gaussian_epsilon(claimed_mu, DELTA)
    scores = gradient_scores(releases, X, Y, math.inf if mistake == "clipping" else 1.0)
    for gaussian in (False, True):
        found = audit_scores(scores, present, DELTA, gaussian=gaussian).epsilon
        assert (found > claimed) == (mistake != "none")


def test_bad_input_is_refused() -> None:
    X, Y, W = np.eye(3), np.ones((3, 1)), np.ones((3, 1))
    with pytest.raises(InputError, match=r"^labels has 2 rows but features has 3"):
        model_scores(W, X, Y[:2])
    with pytest.raises(InputError, match=r"^model has shape \(2, 1\): give \(3, 1\)"):
        model_scores(W[:2], X, Y)
    with pytest.raises(InputError, match=r"^the gradient of a release has shape"):
        gradient_scores([(W, W.T)], X, Y, 1.0)
    with pytest.raises(InputError, match=r"^clip_norm = 0"):
        gradient_scores([(W, W)], X, Y, 0.0)
    with pytest.raises(InputError, match=r"^cross has shape"):
        second_moment_scores(X, W.T, X, Y)
    with pytest.raises(InputError, match=r"^noise_variance = -1"):
        coded_scores(X, Y, -1.0, 0.0, X, Y)
    with pytest.raises(InputError, match=r"^background has shape"):
        coded_scores(X, Y, 1.0, 1.0, X, Y, background=X)
