"""Rounds as linear maps with noise, against loops over rounds and Monte Carlo; predicted losses and scores, against training."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score

from codedfl.config import load_config
from codedfl.experiment import build_experiment
from codedfl.planning._folds import Fold
from codedfl.planning._parties import Attended
from codedfl.planning._paths import (
    Bins,
    LinearRounds,
    Training,
    contributions,
    follow,
    momentum_rounds,
    plain_rounds,
    reference_values,
)
from codedfl.planning._schemes import Situation, _training
from codedfl.schemes import make_scheme
from codedfl.training import Evaluator, LearningRate, train
from codedfl.typing import FloatArray

VALUES = np.array([0.02, 0.3, 1.1])


def by_loop(linear: LinearRounds, rounds: int, noise: FloatArray) -> tuple[FloatArray, FloatArray]:
    """One round after the other."""
    groups, size = linear.transition.shape[:2]
    means, covariances = np.zeros((groups, size)), np.zeros((groups, size, size))
    means[:, 0] = 1.0
    for _ in range(rounds):
        for q in range(groups):
            A, B = linear.transition[q], linear.noise_input[q]
            means[q] = A @ means[q]
            covariances[q] = A @ covariances[q] @ A.T + noise[q] * np.outer(B, B)
    return means, covariances


@pytest.mark.parametrize(
    "linear",
    [
        plain_rounds(1.0 - VALUES, -0.5, average=False),
        plain_rounds(1.0 - VALUES, -0.5, average=True),
        momentum_rounds(VALUES, 0.7, 0.9),
    ],
    ids=["last", "average", "momentum"],
)
def test_jumps_equal_a_loop_over_rounds(linear: LinearRounds) -> None:
    noise = np.array([1.0, 0.1, 3.0])
    found = follow(linear, [0, 1, 6, 37], lambda *_: noise)
    for place, rounds in enumerate(found.rounds):
        means, covariances = by_loop(linear, int(rounds), noise)
        last, scale = (-1, max(rounds, 1)) if linear.average and rounds else (0, 1)
        assert found.left[place] == pytest.approx(means[:, last] / scale)
        assert found.variance[place] == pytest.approx(covariances[:, last, last] / scale**2)


def test_momentum_is_the_recursion_of_the_scheme() -> None:
    """``v' = beta v + h x``, ``x' = x - eta v'``, returned as the average of the iterates before each step."""
    step, beta, curvature = 0.7, 0.9, 1.1
    x, v, total = 1.0, 0.0, 0.0
    for _ in range(25):
        total += x
        v = beta * v + curvature * x
        x -= step * v
    found = follow(momentum_rounds(np.array([curvature]), step, beta), [25], lambda *_: np.zeros(1))
    assert found.left.item() == pytest.approx(total / 25)


def test_noise_is_asked_for_at_every_stop_and_sees_what_is_left() -> None:
    seen = []

    def noise(left: FloatArray, variance: FloatArray) -> FloatArray:
        seen.append((left.item(), variance.item()))
        return np.ones(1)

    follow(plain_rounds(np.array([0.5]), 1.0, average=True), [0, 1, 2], noise)
    assert seen == [(1.0, 0.0), (0.5, 1.0)]


def test_variance_agrees_with_monte_carlo() -> None:
    """4,000 walks; the standard error of a variance is its value times sqrt(2 / 4,000)."""
    rng = np.random.default_rng(0)
    x, total = np.zeros(4000), np.zeros(4000)
    for _ in range(30):
        total += x
        x = 0.8 * x - 0.5 * rng.standard_normal(4000)
    found = follow(plain_rounds(np.array([0.8]), -0.5, average=True), [30], lambda *_: np.ones(1))
    assert found.variance.item() == pytest.approx(np.var(total / 30), rel=4 * np.sqrt(2 / 4000))


def test_growth_ignores_the_sum_of_iterates() -> None:
    assert plain_rounds(np.array([0.5, -0.9]), 1.0, average=True).growth == pytest.approx(0.9)
    assert plain_rounds(np.array([1.2]), 1.0, average=False).growth == pytest.approx(1.2)


def test_bins_keep_signs_and_sums_apart() -> None:
    bins = Bins.by_value(np.array([-1.0, 1e-30, 1.0, 1.01, 3.0]))
    assert len(bins.values) == 4
    assert bins.of[2] == bins.of[3]
    assert bins.values[bins.of[0]] == -1.0
    assert bins.sums(np.ones(5)).sum() == 5


ROUNDS = (5, 20, 60)


def training_of(name: str) -> tuple[Training, float]:
    """The rounds of a scheme on all rows of the digits, and ``L``."""
    given = {"fleet.transmit_power_dbm": (15.0, 25.0), "coding.noise_variance": 0.01}
    setting = build_experiment(load_config(overrides=given)).setting
    scheme = make_scheme(name)
    plan = scheme.plan(setting)
    fold = Fold(setting.federation, setting.gram, 0)
    attended = Attended.of(plan.arrivals, setting.federation.samples.astype(float))
    return _training(Situation(scheme, setting, plan, attended, [fold], (0.5,)), fold), setting.gram.smoothness


def predicted_gaps(training: Training, step_size: float) -> list[float]:
    moments = training.moments(step_size, ROUNDS)
    bins, view, fold = training._bins, training.view, training.fold
    limit = training.limit(step_size)
    gaps = []
    for left, variance in zip(moments.left, moments.variance, strict=True):
        model = limit * (1.0 - left[bins.of])[:, None]
        turned = model if view.basis is None else view.basis @ model
        mean = 0.5 * np.sum(fold.values[:, None] * (turned - fold.optimum) ** 2)
        noise = 0.5 * np.sum(bins.sums(view.curvature) / np.bincount(bins.of) * variance)
        gaps.append(float(mean + noise) / fold.gram.samples)
    return gaps


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("scfl", 0.5),
        ("codedfedl", 1.0),
        *(
            pytest.param(name, scale, marks=pytest.mark.slow)
            for name, scale in (("fedavg", 0.5), ("momentum", 1.0), ("dp-cfl", 0.5), ("cfl-fb", 1.0))
        ),
    ],
)
def test_predicted_losses_are_those_of_a_simulation(name: str, scale: float) -> None:
    """One run, whose loss has noise of its own: within a third."""
    training, smoothness = training_of(name)
    given = {"fleet.transmit_power_dbm": (15.0, 25.0), "coding.noise_variance": 0.01}
    setting = build_experiment(load_config(overrides=given)).setting
    prepared = make_scheme(name).prepare(setting)
    result = train(prepared, LearningRate(scale / smoothness), ROUNDS[-1], evaluator=Evaluator(setting))
    measured = [result.curve[rounds].gap for rounds in ROUNDS]
    assert predicted_gaps(training, scale / smoothness) == pytest.approx(measured, rel=0.34)


def test_unstable_steps_are_recognised() -> None:
    """FedAvg with ``tau = 5`` and 70% arrivals is stable up to ``eta L tau p = 2``."""
    training, smoothness = training_of("fedavg")
    assert training.rounds(0.5 / smoothness).growth < 1.0
    assert training.rounds(0.75 / smoothness).growth > 1.0


def test_scores_come_from_held_out_rows() -> None:
    training, smoothness = training_of("fedavg")
    scores = training.scores(0.5 / smoothness, (0, 10, 1000))
    hits = reference_values(training.fold)
    data = training.fold.data
    model = training.fold.gram.optimum
    assert hits.mean() == pytest.approx(
        np.mean((data.test_features @ model).argmax(axis=1) == data.test_labels.argmax(axis=1))
    )
    assert scores.below[0] > 0.5 > scores.below[1] > scores.below[2] - 0.01
    assert scores.rows == len(hits)


def test_contributions_of_a_regression_average_to_its_r2() -> None:
    rng = np.random.default_rng(0)
    labels, predictions = rng.standard_normal((2, 50, 3))
    assert contributions("regression", labels, predictions).mean() == pytest.approx(r2_score(labels, predictions))
