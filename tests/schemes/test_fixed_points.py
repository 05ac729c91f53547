"""Where schemes end up when all sampling noise is taken away."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.schemes import dp_cfl, scfl
from codedfl.setting import Setting
from codedfl.training import LearningRate, train
from codedfl.typing import FloatArray
from tests.problems import ALWAYS_DBM, make_federation, make_setting


def quiet_setting(seed: int = 0, coded_samples: int = 60, noise_variance: float = 0.1) -> Setting:
    """Full batches everywhere, everyone in time, one step a round: what is left is deterministic."""
    return make_setting(
        make_federation((20, 30, 25), task="regression"),
        seed=seed,
        power_dbm=ALWAYS_DBM,
        deadline_s=1e6,
        local_steps=1,
        coded_samples=coded_samples,
        server_batch=coded_samples,
        noise_variance=noise_variance,
    )


def normal_equations(setting: Setting) -> tuple[FloatArray, FloatArray]:
    X, Y = setting.federation.features, setting.federation.labels
    return X.T @ X, X.T @ Y


def test_dp_cfl_tends_to_the_least_squares_solution_of_the_coded_data() -> None:
    setting = quiet_setting()
    prepared = dp_cfl().prepare(setting)
    coded = prepared.held[0]
    result = train(prepared, LearningRate.relative(0.5, setting.gram.smoothness), 1500, evaluate_every=1500)
    expected = np.linalg.lstsq(coded.features, coded.labels, rcond=None)[0]
    np.testing.assert_allclose(result.model, expected, rtol=1e-6)


@pytest.mark.slow
def test_the_fixed_point_of_dp_cfl_is_ridge_with_the_noise_as_penalty() -> None:
    """Over 60 draws of coded data with c = 20,000, the mean fixed point is (H + sigma^2 I)^-1 X^T Y.

    Its bias is of order d / c = 1.5e-4 of its size, below the standard error of the mean, 1 / sqrt(60 c) = 9e-4; the bound is
    4.5 standard errors.
    """
    setting = quiet_setting()
    H, q = normal_equations(setting)
    ridge = np.linalg.solve(H + 0.3 * np.eye(3), q)  # three devices with variance 0.1 each
    points = []
    for seed in range(60):
        coded = dp_cfl().prepare(quiet_setting(seed, coded_samples=20_000)).held[0]
        points.append(np.linalg.lstsq(coded.features, coded.labels, rcond=None)[0])
    error = np.std(points, axis=0, ddof=1) / np.sqrt(len(points))
    off = np.abs(np.mean(points, axis=0) - ridge) / error
    assert off.max() < 4.5
    unpenalised = np.linalg.solve(H, q)
    assert (np.abs(np.mean(points, axis=0) - unpenalised) / error).max() > 10, "the penalty must be visible"


@pytest.mark.slow
def test_scfl_tends_to_the_mean_of_data_and_coded_data_not_to_the_optimum() -> None:
    """The limit solves (H + H~) W = X^T Y + X~^T Y~ / c with H~ = X~^T X~ / c - sigma^2 I: a floor remains."""
    setting = quiet_setting()
    prepared = scfl().prepare(setting)
    X, Y = prepared.held[0].features, prepared.held[0].labels
    H, q = normal_equations(setting)
    H_coded = X.T @ X / 60 - 0.3 * np.eye(3)
    expected = np.linalg.solve(H + H_coded, q + X.T @ Y / 60)
    result = train(prepared, LearningRate.relative(0.5, setting.gram.smoothness), 1500, evaluate_every=1500)
    np.testing.assert_allclose(result.progress.state.model, expected, rtol=1e-6)
    assert result.final.distance > 0.01


@pytest.mark.slow
def test_scfl_diverges_when_noise_makes_the_coded_hessian_indefinite_and_a_norm_bound_is_a_remedy() -> None:
    setting = quiet_setting(coded_samples=10, noise_variance=30.0)
    prepared = scfl(device_weight=0.1).prepare(setting)
    X = prepared.held[0].features
    H, _ = normal_equations(setting)
    assert np.linalg.eigvalsh(0.1 * H + 0.9 * (X.T @ X / 10 - 90 * np.eye(3)))[0] < 0
    rate = LearningRate(1e-3)
    result = train(prepared, rate, 3000, evaluate_every=50)
    assert result.status == "diverged"
    assert "coding.noise_variance" in result.message
    assert "training.model_norm_bound" in result.message
    bounded = train(prepared, rate, 3000, evaluate_every=50, model_norm_bound=5.0)
    assert np.linalg.norm(bounded.progress.state.model) <= 5.0 + 1e-9
