"""Canaries reach their bounds and stay apart; scores against likelihoods, and in audits of mechanisms with planted mistakes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from codedfl.errors import InputError
from codedfl.privacy import audit_scores, coded_scores, gaussian_epsilon, make_canaries, model_scores
from codedfl.typing import BoolArray, FloatArray


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize(("count", "dimension"), [(1, 1), (5, 9), (9, 9), (20, 9)])
def test_norms_are_the_bounds(count: int, dimension: int, outputs: int) -> None:
    features, labels = make_canaries(count, dimension, outputs, 2.0, 0.5, np.random.default_rng(0))
    assert features.shape == (count, dimension)
    assert labels.shape == (count, outputs)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 2.0, rtol=1e-12)
    assert set(np.linalg.norm(labels, axis=1)) == {0.5}
    assert np.all(np.count_nonzero(labels, axis=1) == 1)


def test_gradients_at_zero_are_orthogonal_up_to_dimension_times_outputs() -> None:
    features, labels = make_canaries(24, 8, 3, 1.0, 1.0, np.random.default_rng(1))
    gradients = np.einsum("md,mo->mdo", features, labels).reshape(24, -1)
    np.testing.assert_allclose(gradients @ gradients.T, np.eye(24), atol=1e-12)


def test_labels_and_signs_vary() -> None:
    rng = np.random.default_rng(2)
    assert len(np.unique(make_canaries(100, 100, 4, 1.0, 1.0, rng)[1], axis=0)) == 4
    assert set(make_canaries(100, 100, 1, 1.0, 3.0, rng)[1][:, 0]) == {-3.0, 3.0}


def test_bad_input_is_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InputError, match=r"^count = 0"):
        make_canaries(0, 3, 1, 1.0, 1.0, rng)
    with pytest.raises(InputError, match=r"^norm_bound = 0"):
        make_canaries(3, 3, 1, 0.0, 1.0, rng)
    with pytest.raises(InputError, match=r"^label_bound = -1"):
        make_canaries(3, 3, 1, 1.0, -1.0, rng)


M, D, OUTPUTS = 200, 250, 3
DELTA = 1e-5


def clipped_gradients(model: FloatArray, features: FloatArray, labels: FloatArray, clip_norm: float) -> FloatArray:
    """One at a time, (m, d, o)."""
    found = []
    for x, y in zip(features, labels, strict=True):
        gradient = np.outer(x, model.T @ x - y)
        found.append(gradient * min(1.0, clip_norm / float(np.linalg.norm(gradient))))
    return np.array(found)


def gradient_scores(
    releases: Sequence[tuple[FloatArray, FloatArray]], features: FloatArray, labels: FloatArray, clip_norm: float
) -> FloatArray:
    """``sum_k <G_k, g_k> - ||g_k||^2 / 2`` of sums ``G_k`` released at models ``W_k``, ``g_k`` a clipped gradient."""
    scores = np.zeros(len(features))
    for model, released in releases:
        gradients = clipped_gradients(model, features, labels, clip_norm)
        scores += np.sum(gradients * released, axis=(1, 2)) - np.sum(gradients**2, axis=(1, 2)) / 2
    return scores


def score_gradients(
    X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator
) -> FloatArray:
    releases = []
    for model in (np.zeros((D, OUTPUTS)), 0.01 * rng.standard_normal((D, OUTPUTS))):
        total = clipped_gradients(model, X[present], Y[present], 1.0).sum(axis=0)
        releases.append((model, total + noise * rng.standard_normal((D, OUTPUTS))))
    return gradient_scores(releases, X, Y, clip_norm=1.0)


def score_coded(X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator) -> FloatArray:
    G = rng.standard_normal((400, int(present.sum())))
    coded = G @ X[present] + noise * rng.standard_normal((400, D))
    coded_labels = G @ Y[present] + noise * rng.standard_normal((400, OUTPUTS))
    return coded_scores(coded, coded_labels, noise**2, noise**2, X, Y)


def score_model(X: FloatArray, Y: FloatArray, present: BoolArray, noise: float, rng: np.random.Generator) -> FloatArray:
    model = np.linalg.pinv(X[present]) @ Y[present]
    return model_scores(model + noise * rng.standard_normal((D, OUTPUTS)), X, Y)


SCORES = [score_gradients, score_coded, score_model]
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


def test_bad_input_is_refused_of_canary_scores() -> None:
    X, Y, W = np.eye(3), np.ones((3, 1)), np.ones((3, 1))
    with pytest.raises(InputError, match=r"^labels has 2 rows but features has 3"):
        model_scores(W, X, Y[:2])
    with pytest.raises(InputError, match=r"^model has shape \(2, 1\): give \(3, 1\)"):
        model_scores(W[:2], X, Y)
    with pytest.raises(InputError, match=r"^noise_variance = -1"):
        coded_scores(X, Y, -1.0, 0.0, X, Y)
    with pytest.raises(InputError, match=r"^background has shape"):
        coded_scores(X, Y, 1.0, 1.0, X, Y, background=X)
