from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import Attendance
from codedfl.privacy import GaussianMechanism, ThreatModel, epsilon_of
from codedfl.schemes import HessianMixing, MixingState, ihm
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import Callback, Idle, LearningRate, PrivatePlan, Round, RunProgress, train
from codedfl.uploads import Sketches, Terms
from tests.private_settings import THREAT_MODELS, Everybody, private_setting
from tests.problems import ALWAYS_DBM, payloads_of

ALWAYS: dict[str, Any] = {"power_dbm": ALWAYS_DBM, "deadline_s": 1e6}


@pytest.mark.slow
def test_sketches_use_their_share_and_gradients_what_is_left() -> None:
    setting = private_setting(2.0)
    scheme = cast(HessianMixing, ihm(rounds=4, budget_share=0.3))
    mechanism = scheme.sketch.mechanism_in(setting)
    assert mechanism.coded_samples == 4 * setting.code.coded_samples
    assert epsilon_of([mechanism], 0.3e-5) == pytest.approx(0.6, rel=1e-3)
    gradients = GaussianMechanism(scheme.noise_multiplier(setting), 4)
    assert 1.99 < epsilon_of([mechanism, gradients], 1e-5) <= 2.0


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_the_noise_in_a_sketch_is_that_of_its_mechanism(threat_model: ThreatModel) -> None:
    """In sums the shares of all devices add up to it; otherwise every device adds all of it."""
    setting = private_setting(2.0, threat_model, clip_norm=0.8)
    upload = Sketches(2, 0.4)
    needed = 0.8**2 / upload.mechanism_in(setting).signal_to_noise
    each = needed / 4 if threat_model == "sums-only" else needed
    plan = Idle().plan(setting)
    np.testing.assert_allclose(upload.noise_levels(setting, plan)[0], each, rtol=1e-12)
    sketches = upload.simulated(setting, plan)
    assert [sketch.noise_variance for sketch in sketches] == pytest.approx([4 * each] * 2, rel=1e-12)


@pytest.mark.parametrize(
    ("threat_model", "encoder"), [("each-message", "direct"), ("sums-only", "direct"), ("sums-only", "gram")]
)
def test_sketches_are_independent_and_have_the_mean_and_variance_of_their_law(
    threat_model: ThreatModel, encoder: str
) -> None:
    setting = private_setting(200.0, threat_model, clip_norm=0.8, encoder=encoder, coded_samples=25)
    upload, plan = Sketches(20, 0.5), Idle().plan(setting)
    drawn = [
        sketch.features.T @ sketch.features / 25
        for seed in range(20)
        for sketch in upload.simulated(replace(setting, streams=Streams(seed)), plan)
    ]
    X = setting.federation.features
    X = X * np.minimum(1.0, 0.8 / np.linalg.norm(X, axis=1))[:, None]
    variance, _ = upload.noise_levels(setting, plan)
    if threat_model == "sums-only":
        parts = [X.T @ X + variance.sum() * np.eye(3)]
    else:
        cuts = setting.federation.offsets[1:-1]
        parts = [part.T @ part + variance[0] * np.eye(3) for part in np.split(X, cuts)]
    mean = np.sum(parts, axis=0)
    # A Wishart entry has the variance (S_ii S_jj + S_ij^2) / c.
    spread = np.sum([(np.outer(np.diag(S), np.diag(S)) + S**2) / 25 for S in parts], axis=0)
    assert len(drawn) == 400
    assert np.all(np.abs(np.mean(drawn, axis=0) - mean) < 4.5 * np.sqrt(spread / 400))
    # Tails are heavier than Gaussian: the kurtosis of chi-square with 25 degrees of freedom is 12 / 25 above 3.
    assert np.all(np.abs(np.var(drawn, axis=0) / spread - 1) < 4.5 * math.sqrt(2.5 / 400))
    first, second = (np.array(drawn[start::2])[:, 0, 0] for start in (0, 1))
    assert abs(np.corrcoef(first, second)[0, 1]) < 4 / math.sqrt(200)


@pytest.mark.slow
@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_a_step_is_newtons_with_the_sketch_of_its_round(threat_model: ThreatModel) -> None:
    setting = private_setting(20.0, threat_model, **ALWAYS)
    scheme = cast(HessianMixing, ihm(rounds=2))
    prepared = scheme.prepare(setting)
    ridge = scheme.ridge(prepared)
    shares = cast(PrivatePlan, prepared.device).shares
    assert shares == 1 if threat_model == "each-message" else 1 < shares <= 4
    # C z sqrt(N / m) B / (0.1 B_Y), with C = 0.75 B B_Y and both bounds 1
    noise = 0.75 * scheme.noise_multiplier(setting) * math.sqrt(4 / shares)
    assert ridge == pytest.approx(noise / 0.1, rel=1e-12)
    rng = np.random.default_rng(1)
    state = replace(scheme.init(prepared, np.zeros((3, 2))), model=rng.standard_normal((3, 2)))
    updates = [(i, rng.standard_normal((3, 2))) for i in range(4)]
    everybody = Attendance(np.array([7, 12, 5, 1]), np.ones(4, np.bool_), np.zeros(4))
    moved, _ = scheme.step(
        state, Round(1, 1.0, everybody, np.ones(4), np.ones(4, np.bool_), payloads_of(updates), None)
    )

    sketch = prepared.held[1]
    second_moment = sketch.features.T @ sketch.features / 20
    values, vectors = np.linalg.eigh(second_moment - sketch.noise_variance * np.eye(3))
    ratio = 3 / sketch.effective_rows
    error = np.trace(second_moment) / 3 * (2 * math.sqrt(ratio) + ratio)
    damping = ridge + max(0.0, error - ridge) / 2
    hessian = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T + damping * np.eye(3)
    gradient = sum((update for _, update in updates), ridge * state.model)
    np.testing.assert_allclose(moved.model, state.model - np.linalg.solve(hessian, gradient), rtol=1e-9)


def test_late_rows_are_taken_to_be_like_the_others_and_a_round_without_enough_noise_is_not_opened() -> None:
    scheme = ihm(rounds=2)
    prepared = scheme.prepare(private_setting(20.0, **ALWAYS))
    state = cast(MixingState, scheme.init(prepared, np.zeros((3, 2))))
    some = Attendance(np.array([7, 12, 5, 1]), np.array([True, False, True, False]), np.zeros(4))
    updates = [(0, np.ones((3, 2))), (2, np.ones((3, 2)))]

    def after(state: MixingState) -> MixingState:
        round = Round(0, 1.0, some, np.ones(4), np.ones(4, np.bool_), payloads_of(updates), None)
        moved, _ = scheme.step(state, round)
        return cast(MixingState, moved)

    np.testing.assert_allclose(after(state).model, -state.inverses[0] @ np.full((3, 2), 2 * 25 / 12), rtol=1e-12)
    missed = after(replace(state, shares=3))
    assert missed.round == 1
    assert np.array_equal(missed.model, state.model)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_without_noise_it_converges_to_least_squares(
    threat_model: ThreatModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sketch of 2000 rows errs by 2 sqrt(3 / 2000) = 8%, and damping adds half of that: steps shrink the error to an eighth."""
    monkeypatch.setattr("codedfl.uploads._sketches._ratio", lambda *_: 1e12)
    monkeypatch.setattr("codedfl.schemes._ihm._multiplier", lambda *_: 1e-9)
    setting = private_setting(2.0, threat_model, clip_norm=10.0, coded_samples=2000, encoder="gram", **ALWAYS)
    X, Y = setting.federation.features, setting.federation.labels
    optimum = np.linalg.lstsq(X, Y, rcond=None)[0]
    distances = [np.linalg.norm(optimum)]

    class Watch(Callback):
        def on_round(self, progress: RunProgress) -> None:
            distances.append(np.linalg.norm(progress.state.model - optimum))

    prepared = ihm(rounds=6).prepare(setting, arrivals=Everybody(setting.federation.samples))
    train(prepared, LearningRate(1.0), 6, callbacks=[Watch()])
    assert distances[3] < 8.0**-3 * distances[0] * 4, "4 is above the condition number of the sketch's error"
    assert distances[6] < 8.0**-6 * distances[0] * 4


@pytest.mark.slow
def test_clipping_and_noise_of_the_gradients_reach_the_devices() -> None:
    setting = private_setting(2.0, "sums-only", label_bound=3.0, clip_norm=0.5)
    scheme = cast(HessianMixing, ihm())
    plan = cast(PrivatePlan, scheme.prepare(setting).device)
    assert plan.clip_norm == pytest.approx(0.75 * 0.5 * 3.0)
    assert plan.noise_multipliers.tolist() == [scheme.noise_multiplier(setting)] * 3
    assert scheme.rounds(setting) == 3


@pytest.mark.slow
def test_rows_replace_factors_where_those_are_not_possible() -> None:
    assert not Sketches.sends_rows(Terms.of(private_setting(coded_samples=3)))
    assert Sketches.sends_rows(Terms.of(private_setting(coded_samples=2)))
    assert Sketches.sends_rows(Terms.of(private_setting(threat_model="sums-only")))
    assert np.isfinite(train(ihm().prepare(private_setting(coded_samples=2)), LearningRate(1.0), 3).model).all()


@pytest.mark.parametrize(
    ("setting", "share", "sentence"),
    [
        (replace(private_setting(), privacy=None), 0.3, "privacy.epsilon = 0"),
        (private_setting(clip_norm=None), 0.3, "coding.clip_norm = 0"),
        (private_setting(), 1.0, "budget_share = 1.0"),
        (private_setting(), 0.0, "budget_share = 0.0"),
    ],
)
def test_what_cannot_be_private_is_refused(setting: Setting, share: float, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ihm(budget_share=share).prepare(setting)
