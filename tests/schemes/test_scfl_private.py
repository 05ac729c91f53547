from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from codedfl.coding import batch_curvature, coded_spectrum
from codedfl.errors import InputError
from codedfl.fleet import Attendance
from codedfl.privacy import GaussianMechanism, ThreatModel, epsilon_of
from codedfl.schemes import CodedDescent, scfl_private
from codedfl.training import LearningRate, PrivatePlan, Round, Run, advance, train
from tests.private_settings import THREAT_MODELS, Everybody, private_setting
from tests.problems import ALWAYS_DBM, make_federation, payloads_of

ALWAYS: dict[str, Any] = {"power_dbm": ALWAYS_DBM, "deadline_s": 1e6}


@pytest.mark.parametrize("batch", [2, 10, 60, 400])
def test_steps_on_batches_are_stable_in_the_mean_square_below_the_inverse_of_their_curvature(batch: int) -> None:
    """For Bernoulli batches of given rows, E[H_b^2] = H^2 + (1/b - 1/c) sum_j ||x_j||^2 x_j x_j^T / c."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((400, 12)) * np.linspace(0.5, 3.0, 12)
    H = rows.T @ rows / 400
    squares = np.sum(rows**2, axis=1)
    mean_square = H @ H + (1 / batch - 1 / 400) * (rows.T * squares) @ rows / 400

    def growth(step: float) -> float:
        return float(np.linalg.eigvalsh(np.eye(12) - 2 * step * H + step**2 * mean_square)[-1])

    curvature = batch_curvature(np.linalg.eigvalsh(H), 400, batch)
    assert growth(1 / curvature) < 1
    assert growth(4 / curvature) > 1, "the bound is not loose by more than a factor of 4"


@pytest.mark.slow
def test_the_spectrum_is_that_of_the_coded_second_moment() -> None:
    prepared = scfl_private().prepare(private_setting(4.0))
    (coded,) = prepared.held
    singular = np.linalg.svd(coded.features, compute_uv=False)
    np.testing.assert_allclose(coded_spectrum(coded), np.sort(singular**2) / 20, rtol=1e-10)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("upload", ["rows", "factor"])
def test_the_ridge_outweighs_the_negative_eigenvalues_of_the_coded_hessian(
    upload: str, threat_model: ThreatModel
) -> None:
    setting = private_setting(1.0, threat_model, dimension=12, coded_samples=40)
    scheme = cast(CodedDescent, scfl_private(upload=upload))  # type: ignore[arg-type]
    prepared = scheme.prepare(setting)
    (coded,), course = prepared.held, scheme.course(prepared)
    X = setting.federation.features
    hessian = coded.features.T @ coded.features / 40 - coded.noise_variance * np.eye(12)
    assert np.linalg.eigvalsh(hessian)[0] < -1, "the noise is strong"
    combined = np.linalg.eigvalsh(0.5 * X.T @ X + 0.5 * hessian + course.ridge * np.eye(12))
    assert combined[0] > 0
    # A heavy ball is stable up to 2 (1 + beta) / eta.
    assert combined[-1] < 2 * (1 + course.momentum) / course.step


@pytest.mark.slow
def test_the_ridge_has_the_part_of_the_noise_that_its_formula_says() -> None:
    """Without negative eigenvalues it is s B / (0.1 B_Y), s^2 being the noise of both gradients."""
    setting = private_setting(50.0, samples=(400, 300), coded_samples=500, clip_norm=0.8, label_bound=2.0)
    scheme = cast(CodedDescent, scfl_private(device_weight=0.3))
    prepared = scheme.prepare(setting)
    (coded,), plan = prepared.held, cast(PrivatePlan, prepared.device)
    assert coded_spectrum(coded)[0] > coded.noise_variance
    code = scheme.coded_upload.code(setting, plan)
    updates = 0.75 * 0.8 * 2.0 * scheme.effective_multiplier(setting, plan) * math.sqrt(2)
    products = math.sqrt(code.noise_variance.sum() * code.label_noise_variance.sum() / 500)
    noise = math.hypot(0.3 * updates, 0.7 * products)
    assert scheme.course(prepared).ridge == pytest.approx(noise * 0.8 / (0.1 * 2.0), rel=1e-9)


@pytest.mark.slow
def test_noise_multipliers_use_what_the_upload_leaves() -> None:
    setting = private_setting(2.0)
    scheme = cast(CodedDescent, scfl_private(rounds=5))
    prepared = scheme.prepare(setting)
    plan = cast(PrivatePlan, prepared.device)
    (release,) = scheme.coded_upload.releases(setting, plan, 0)
    assert release.mechanism is not None
    assert 0.8 < epsilon_of([release.mechanism], 1e-5) < 1.0
    updates = [GaussianMechanism(float(z)) for z in plan.noise_multipliers]
    assert len(updates) == 5
    assert 1.99 < epsilon_of([release.mechanism, *updates], 1e-5) <= 2.0


def test_a_step_combines_both_gradients() -> None:
    setting = private_setting(4.0, **ALWAYS)
    scheme = cast(CodedDescent, scfl_private(device_weight=0.25))
    prepared = scheme.prepare(setting)
    rng = np.random.default_rng(0)
    state = replace(scheme.init(prepared, np.zeros((3, 2))), model=rng.standard_normal((3, 2)))
    state = replace(state, velocity=rng.standard_normal((3, 2)))
    updates = [(i, rng.standard_normal((3, 2))) for i in (0, 2)]
    coded = rng.standard_normal((3, 2))
    some = Attendance(np.array([7, 12, 5, 1]), np.array([True, False, True, False]), np.zeros(4))
    round = Round(0, 1.0, some, np.ones(4), np.ones(4, np.bool_), payloads_of(updates), coded)
    moved, _ = scheme.step(state, round)
    gradient = 0.25 * 25 / 12 * (updates[0][1] + updates[1][1]) + 0.75 * coded + state.ridge * state.model
    velocity = state.momentum * state.velocity + gradient
    np.testing.assert_allclose(moved.model, state.model - state.step * velocity, rtol=1e-12)
    missed, _ = scheme.step(replace(state, shares=3), round)
    assert np.array_equal(missed.model, state.model)
    assert missed.round == 1


def test_the_server_takes_one_step_a_round() -> None:
    """Devices send one gradient, so that of the server has to have the same size; it reads all rows that it has time for."""
    setting = private_setting(4.0, local_steps=4, server_batch=8, **ALWAYS)
    prepared = scfl_private().prepare(setting)
    assert prepared.server is not None
    assert prepared.server.samples_processed(0) == 20
    assert prepared.setting is setting
    other = replace(setting, server_batch=5)
    assert prepared.scheme.depends_on(setting) == prepared.scheme.depends_on(other)


def test_without_noise_it_tends_to_the_solution_of_both_second_moments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its momentum leaves a share e^-2.8 (1 + 2.8) of the first error, 0.23, in the worst case; averages come closer."""
    monkeypatch.setattr("codedfl.uploads._coded.coded_noise", lambda *_: np.array([1e-9, 1e-9]))
    monkeypatch.setattr("codedfl.schemes._scfl_private._alone", lambda *_: 1e-9)
    setting = private_setting(2.0, "sums-only", clip_norm=10.0, coded_samples=400, encoder="gram")
    scheme = scfl_private()
    prepared = scheme.prepare(setting, arrivals=Everybody(setting.federation.samples))
    X, Y, (coded,) = setting.federation.features, setting.federation.labels, prepared.held
    hessian, cross = (
        0.5 * X.T @ other + 0.5 * coded.features.T @ coded_other / 400
        for other, coded_other in ((X, coded.features), (Y, coded.labels))
    )
    solution = np.linalg.solve(hessian, cross)
    result = train(prepared, LearningRate(1.0), 100)
    assert np.linalg.norm(result.model - solution) < 0.23 * np.linalg.norm(solution)

    run = Run(prepared, LearningRate(1.0), 100)
    run.progress.state = replace(run.initial_state, model=solution)  # type: ignore[type-var]
    ((stayed, _),) = advance(0, [run], lambda run, round: scheme.step(run.progress.state, round))
    np.testing.assert_allclose(stayed.model, solution, atol=1e-6)


@pytest.mark.slow
def test_the_number_of_rounds_depends_on_public_numbers_alone() -> None:
    setting = private_setting(2.0)
    other = replace(setting, federation=make_federation(seed=5))
    assert scfl_private().rounds(setting) == scfl_private().rounds(other)
    assert scfl_private(rounds=17).rounds(setting) == 17
    more = private_setting(20.0, samples=(700, 1200, 500, 100), coded_samples=500)
    assert cast(int, scfl_private().rounds(more)) > cast(int, scfl_private().rounds(setting)) >= 4


def test_bad_settings_are_refused() -> None:
    setting = private_setting()
    some = replace(setting, code=replace(setting.code, participants=np.array([True, True, False, True])))
    with pytest.raises(InputError, match=r"1 upload\(s\) none"):
        scfl_private().prepare(some)
    with pytest.raises(InputError, match=r"privacy\.epsilon = 0"):
        scfl_private().prepare(replace(setting, privacy=None))
    with pytest.raises(InputError, match=r"device_weight = 1\.0"):
        scfl_private(device_weight=1.0)


def test_labels_without_a_bound_are_refused_in_one_sentence() -> None:
    """Nothing would protect what is uploaded, so no noise of the updates could keep the target."""
    setting = private_setting(task="regression")
    unbounded = replace(setting, code=replace(setting.code, label_bound=None))
    for ask in (scfl_private().prepare, scfl_private().rounds):
        with pytest.raises(InputError, match=r"^privacy\.label_bound = 0 leaves the labels that scfl-private uploads"):
            ask(unbounded)
