"""Momentum, Fed3R and the one-shot solution against what they are said to compute, and how they run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.coding import coded_solution
from codedfl.errors import InputError
from codedfl.experiment import Comparison, RunFolder, notes_on, privacy_of, run, summarise, sweep
from codedfl.schemes import fed3r, momentum, one_shot, scfl
from codedfl.training import LearningRate, PreparedScheme, Run, RunResult, Scheme, train
from tests.problems import ALWAYS_DBM, NEVER_DBM, global_update, make_federation, make_setting
from tests.support import small_config

NEW = ["fed3r", "one-shot", "momentum"]


def solved(prepared: PreparedScheme) -> RunResult:
    return train(prepared, LearningRate(1.0), 0)


def test_momentum_is_the_recursion_that_it_says() -> None:
    """With full batches and devices that always arrive, against the recursion on the exact gradient, and its average."""
    federation = make_federation((5, 6), 3, 2)
    setting = make_setting(federation, power_dbm=ALWAYS_DBM, deadline_s=1e6, local_steps=3)
    result = train(momentum(0.8).prepare(setting), LearningRate(0.003), 4)
    X, Y = federation.features, federation.labels
    W, velocity, visited = np.zeros((3, 2)), np.zeros((3, 2)), []
    for _ in range(4):
        visited.append(W)
        velocity = 0.8 * velocity + X.T @ (X @ W - Y)
        W = W - 0.003 * velocity
    np.testing.assert_allclose(result.progress.state.model, W, rtol=1e-12)
    np.testing.assert_allclose(result.model, np.mean(visited, axis=0), rtol=1e-12)


@pytest.mark.parametrize("rounds", [300, pytest.param(2000, marks=pytest.mark.slow)])
def test_momentum_is_unbiased_although_devices_are_missing(rounds: int) -> None:
    """The mean update over many rounds is the full gradient, within 4.5 standard errors."""
    setting = make_setting(make_federation((7, 12, 5, 8)))
    prepared = momentum().prepare(setting)
    assert 0.2 < prepared.device.arrivals.probability.min() < 0.9
    W = np.random.default_rng(0).standard_normal((3, 2))
    updates = np.array([global_update(prepared, k, W, 0.1) for k in range(rounds)])
    X, Y = setting.federation.features, setting.federation.labels
    error = updates.std(axis=0) / np.sqrt(len(updates))
    assert (np.abs(updates.mean(axis=0) - X.T @ (X @ W - Y)) / error).max() < 4.5


@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_fed3r_is_centralised_ridge_regression_whoever_arrives(ridge: float) -> None:
    setting = make_setting(power_dbm=NEVER_DBM)
    X, Y = setting.federation.features, setting.federation.labels
    expected = np.linalg.solve(X.T @ X + ridge * np.eye(3), X.T @ Y)
    np.testing.assert_allclose(solved(fed3r(ridge).prepare(setting)).model, expected, rtol=1e-9)


def test_fed3r_on_singular_data_has_the_least_norm() -> None:
    setting = make_setting(make_federation((1, 1), 4, 2))
    X, Y = setting.federation.features, setting.federation.labels
    np.testing.assert_allclose(solved(fed3r().prepare(setting)).model, np.linalg.pinv(X) @ Y, rtol=1e-6, atol=1e-12)


def test_fed3r_has_the_statistics_of_those_that_take_part_and_charges_them_and_the_solution() -> None:
    setting = make_setting()
    some = replace(setting, code=replace(setting.code, participants=np.array([True, False, True, True])))
    prepared = fed3r(0.5).prepare(some)
    cost = prepared.upload_cost
    assert cost is not None
    numbers = 3 * 4 / 2 + 3 * 2
    assert cost.bits.tolist() == [32 * numbers, 0, 32 * numbers, 32 * numbers]
    assert cost.encoding_macs.tolist() == [samples * numbers for samples in (7, 0, 5, 1)]
    assert cost.server_macs == pytest.approx(3 * numbers + 3**3 / 3 + 3**2 * 2)
    X, Y = (np.vstack([setting.federation.device(i)[part] for i in (0, 2, 3)]) for part in (0, 1))
    expected = np.linalg.solve(X.T @ X + 0.5 * np.eye(3), X.T @ Y)
    np.testing.assert_allclose(solved(prepared).model, expected, rtol=1e-9)
    assert cost.server_s == pytest.approx(cost.server_macs / setting.server_mac_rate)


def test_fed3r_refuses_more_features_than_it_can_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.uploads._statistics.LARGEST_GRAM", 4)
    with pytest.raises(InputError, match=r"features\.dimension = 3 is too large"):
        fed3r().prepare(make_setting())


@pytest.mark.parametrize("kind", ["rows", "factor"])
def test_one_shot_solves_from_the_coded_data_alone(kind: Any) -> None:
    setting = make_setting(coded_samples=20, noise_variance=0.3)
    prepared = one_shot(upload=kind, ridge_share=0.1).prepare(setting)
    (coded,) = prepared.held
    assert np.array_equal(coded.features, scfl(upload=kind).prepare(setting).held[0].features)
    np.testing.assert_allclose(solved(prepared).model, coded_solution(coded, 0.1), rtol=1e-12)


def test_one_shot_charges_the_eigendecomposition_besides_the_upload() -> None:
    setting = make_setting(coded_samples=20)
    for kind, held in (("rows", 20), ("factor", 5)):
        upload = scfl(upload=kind).prepare(setting).upload_cost  # type: ignore[arg-type]
        cost = one_shot(upload=kind).prepare(setting).upload_cost  # type: ignore[arg-type]
        assert upload is not None
        assert cost is not None
        more = held * (3 * 4 / 2 + 3 * 2) + 4.5 * 3**3 + 2 * 3**2 * 2
        assert cost.server_macs == pytest.approx(upload.server_macs + more)
        assert cost.bits.tolist() == upload.bits.tolist()


@pytest.mark.parametrize("scheme", [fed3r(), one_shot()])
def test_the_model_is_there_at_once_and_no_rounds_are_charged(scheme: Scheme) -> None:
    prepared = scheme.prepare(make_setting())
    result = solved(prepared)
    (point,) = result.curve
    assert result.status == "completed"
    assert (point.round, point.simulated_time_s, result.progress.ledger.rounds) == (0, 0.0, 0)
    assert prepared.upload_cost is not None
    assert point.everything_charged_s == pytest.approx(prepared.upload_cost.total_s)
    elsewhere = Run(prepared, LearningRate(1.0), 0, initial_model=np.ones((3, 2)))
    assert np.array_equal(elsewhere.model, result.model)


def test_other_schemes_need_a_round() -> None:
    with pytest.raises(InputError, match="rounds = 0 must be 1 or more"):
        train(momentum().prepare(make_setting()), LearningRate(1.0), 0)


GRID = {"learning_rate__scale": "grid", "learning_rate__grid": [0.1, 0.3], "schemes": [*NEW, "scfl"]}


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(small_config(**GRID))


def test_only_schemes_with_steps_are_tuned(comparison: Comparison) -> None:
    assert {result.scheme.name for result in comparison.results if result.choice} == {"momentum", "scfl"}
    assert [len(comparison[name].curve) for name in ("fed3r", "one-shot")] == [1, 1]
    assert len(comparison["momentum"].curve) == 7
    reference = comparison.evaluator.reference
    assert reference is not None
    assert comparison["fed3r"].final.gap == pytest.approx(0.0, abs=1e-6)
    (note,) = (note for note in notes_on(comparison) if note.startswith("step sizes"))
    assert "Fed3R" not in note


def test_what_is_said_about_their_privacy(comparison: Comparison) -> None:
    exact = privacy_of(comparison["fed3r"], 1e-5)
    assert exact["mi_dp"] == "no bound: exact statistics"
    assert {exact[name] for name in ("mi_dp_bits", "epsilon_features", "epsilon", "epsilon_in_sum")} == {np.inf}
    assert privacy_of(comparison["momentum"], 1e-5)["mi_dp"] == "no coded upload"
    assert privacy_of(comparison["one-shot"], 1e-5)["mi_dp_bits"] == privacy_of(comparison["scfl"], 1e-5)["mi_dp_bits"]


def test_their_summary_has_no_step_size(comparison: Comparison) -> None:
    schemes = {scheme["scheme"]: scheme for scheme in summarise(comparison)["schemes"]}
    for name in ("fed3r", "one-shot"):
        assert schemes[name]["step_size"] is schemes[name]["step_size_scale"] is None
        assert schemes[name]["rounds"] == schemes[name]["simulated_time_s"] == 0
        assert schemes[name]["server_preparation_macs"] > 0
    assert schemes["momentum"]["step_size_scale"] in (0.1, 0.3)


@pytest.mark.slow
def test_a_folder_with_them_resumes(comparison: Comparison, tmp_path: Path) -> None:
    config = comparison.config
    first = run(config, folder=RunFolder.create(tmp_path / "run", config))
    again = run(config, folder=RunFolder.reopen(tmp_path / "run"))
    for name in NEW:
        assert np.array_equal(first[name].model, again[name].model)
        assert first[name].curve == again[name].curve == comparison[name].curve
    assert (tmp_path / "run" / "curves.png").stat().st_size > 1000


def test_in_a_sweep_exact_statistics_are_solved_once_for_all_noise_levels() -> None:
    configs = [small_config(schemes=["fed3r", "one-shot"], coding__noise_variance=noise) for noise in (0.1, 5.0)]
    quiet, noisy = sweep(configs)
    assert quiet["fed3r"].final == noisy["fed3r"].final
    assert quiet["one-shot"].final.loss < noisy["one-shot"].final.loss
