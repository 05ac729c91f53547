"""Predicted losses and scores, against simulated training."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import r2_score

from codedfl.config import load_config
from codedfl.experiment import build_experiment
from codedfl.planning._folds import Fold
from codedfl.planning._parties import Attended
from codedfl.planning._paths import Training, contributions, reference_values
from codedfl.planning._schemes import Situation, _training
from codedfl.schemes import make_scheme
from codedfl.training import Evaluator, LearningRate, train

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
