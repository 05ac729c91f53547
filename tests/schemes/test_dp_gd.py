from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pytest

from codedfl.data import Task
from codedfl.fleet import Attendance
from codedfl.losses import Loss, make_loss
from codedfl.privacy import ThreatModel, gaussian_mu, least_arrivals
from codedfl.schemes import DescentState, PrivateDescent, dp_gd
from codedfl.schemes._heavy_ball import TAIL
from codedfl.setting import Setting
from codedfl.training import (
    Callback,
    Checkpoint,
    LearningRate,
    PreparedScheme,
    PrivatePlan,
    Round,
    Run,
    RunProgress,
    RunResult,
    StopTraining,
    load_checkpoint,
    train,
    train_together,
)
from codedfl.typing import BoolArray, FloatArray, IntArray
from codedfl.uploads import GROWTH, MEAN_FACTOR, MEAN_SHARE, MOMENTS_SHARE, CurvatureDetail
from tests.private_settings import THREAT_MODELS, Everybody, private_setting
from tests.problems import ALWAYS_DBM, payloads_of
from tests.reference import private_descent as reference
from tests.support import refusal_of

LossName = Literal["auto", "square", "softmax"]

RATE = LearningRate(1.0)

ROUNDS = 6


@dataclass(frozen=True)
class Register:
    """Arrivals that are written down: who arrived in each round."""

    samples: IntArray
    arrived: tuple[tuple[bool, ...], ...]
    probability: FloatArray
    duration_s: float = 1.0

    def attend(self, round: int) -> Attendance:
        """Return the attendance of a round."""
        there: BoolArray = np.array(self.arrived[round])
        return Attendance(self.samples, there, np.where(there, 0.0, 8.0))


def trained(prepared: PreparedScheme, rounds: int = ROUNDS) -> tuple[list[FloatArray], RunResult]:
    """Return the model after every round, and the result."""
    models: list[FloatArray] = []

    class Watch(Callback):
        def on_round(self, progress: RunProgress) -> None:
            models.append(progress.state.model)

    return models, train(prepared, RATE, rounds, callbacks=[Watch()])


def transcribed(
    setting: Setting, prepared: PreparedScheme, loss: Loss, curvature: CurvatureDetail, sampling_rate: float = 1.0
) -> tuple[list[FloatArray], FloatArray]:
    """Return the same from the slow transcription, of which every number comes from its formula."""
    target, federation, streams = setting.privacy, setting.federation, setting.streams
    assert target is not None
    B = setting.code.clip_norm
    assert B is not None
    X, Y = zip(*(federation.device(i) for i in range(federation.devices)), strict=True)
    d, o, N, m = federation.dimension, federation.outputs, federation.devices, federation.total_samples
    mu = gaussian_mu(target.epsilon, target.delta)
    in_upload = 1.0 if target.sums_only else math.sqrt(N)

    known, left = reference.Curvature(np.eye(d), m * B**2, B), 1.0
    if curvature in ("mean", "second-moments"):
        s = B * in_upload / (mu * math.sqrt(MEAN_SHARE))
        known = reference.with_mean(
            federation.features, B, s, streams.at("private-mean").standard_normal(d), MEAN_FACTOR
        )
        left -= MEAN_SHARE
    if curvature == "second-moments":
        s = known.row_norm**2 * in_upload / (mu * math.sqrt(MOMENTS_SHARE))
        known = reference.with_moments(
            federation.features, known, s, streams.at("private-moments").standard_normal((d, d))
        )
        left -= MOMENTS_SHARE

    plan = cast(PrivatePlan, prepared.device)
    shares = least_arrivals(plan.arrivals.probability) if target.sums_only else 1
    weights = GROWTH ** (np.arange(ROUNDS) / ROUNDS)
    z, effective = np.sqrt(weights.sum() / weights) / (mu * math.sqrt(left)), 1 / (mu * math.sqrt(left))
    if sampling_rate < 1:
        z = plan.noise_multipliers  # from privacy loss distributions, tested with the budget
        effective = float(z[0]) / (sampling_rate * math.sqrt(ROUNDS))

    C = loss.clip_share * known.row_norm * target.label_bound
    noise_in_sum = C * effective * math.sqrt(N / shares)
    ridge = noise_in_sum * known.row_norm / (loss.noise_share * target.label_bound)
    step, momentum = reference.polyak(loss.curvature * known.smoothness, ridge, ROUNDS)
    growth = GROWTH ** (1 / ROUNDS) if sampling_rate == 1 else 1.0
    constants = reference.Constants(ridge, step, momentum, math.floor((1 - TAIL) * ROUNDS), growth)

    rounds = []
    for k in range(ROUNDS):
        arrived = [device for device, _ in plan.arrivals.attend(k).arrivals()]
        rows = [
            np.flatnonzero(streams.at("poisson", device=i, round=k).random(len(X[i])) < sampling_rate) for i in arrived
        ]
        noise = [
            C * z[k] / math.sqrt(shares) * streams.at("update-noise", device=i, round=k).standard_normal((d, o))
            for i in arrived
        ]
        rounds.append(reference.Asked(arrived, rows, noise))
    return reference.descend(
        list(X),
        list(Y),
        known.D,
        C,
        constants,
        rounds,
        softmax=loss.logits,
        sampling_rate=sampling_rate,
        least=shares,
    )


def assert_transcribed(setting: Setting, *, arrivals: Any = None, **options: Any) -> RunResult:
    scheme = dp_gd(rounds=ROUNDS, **options)
    prepared = scheme.prepare(setting, arrivals=arrivals)
    models, result = trained(prepared)
    loss = make_loss(options.get("loss", "auto"), setting.federation.task)
    expected, average = transcribed(
        setting, prepared, loss, options.get("curvature", "mean"), options.get("sampling_rate", 1.0)
    )
    for ours, theirs in zip(models, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9 * np.abs(average).max())
    np.testing.assert_allclose(result.model, average, rtol=1e-7)
    return result


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("curvature", ["none", "mean", "second-moments"])
@pytest.mark.parametrize(
    ("task", "loss"), [("classification", "softmax"), ("classification", "square"), ("regression", "auto")]
)
def test_every_round_is_that_of_the_transcription(
    task: Task, loss: LossName, curvature: CurvatureDetail, threat_model: ThreatModel
) -> None:
    setting = private_setting(
        20.0,
        threat_model,
        samples=(17, 32, 25, 6),
        task=task,
        clip_norm=0.9,
        label_bound=1.0 if task[0] == "c" else 1.7,
    )
    assert_transcribed(setting, loss=loss, curvature=curvature)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_poisson_batches_are_those_of_the_transcription(threat_model: ThreatModel) -> None:
    assert_transcribed(private_setting(5.0, threat_model, samples=(17, 32, 25, 6)), curvature="mean", sampling_rate=0.5)


SOME_LATE = (
    (True, True, True, True),
    (True, False, True, True),
    (False, False, True, False),
    (False, False, False, False),
    (True, True, True, False),
    (True, True, False, False),
)


def test_rows_of_late_devices_are_taken_to_be_like_the_others() -> None:
    setting = private_setting(20.0, samples=(17, 32, 25, 6))
    register = Register(setting.federation.samples, SOME_LATE, np.array([0.7, 0.5, 0.7, 0.4]))
    result = assert_transcribed(setting, arrivals=register, curvature="mean")
    assert result.progress.ledger.updates.tolist() == [6] * 4, "late updates were sent and cost privacy as well"


def test_a_sum_with_too_little_noise_is_not_opened() -> None:
    setting = private_setting(20.0, "sums-only", samples=(17, 32, 25, 6))
    register = Register(setting.federation.samples, SOME_LATE, np.array([1.0, 1.0, 0.995, 0.5]))
    assert_transcribed(setting, arrivals=register, curvature="mean")
    prepared = dp_gd(rounds=ROUNDS, curvature="mean").prepare(setting, arrivals=register)
    assert cast(PrivatePlan, prepared.device).shares == 3
    models, _ = trained(prepared)
    opened = [
        not np.array_equal(model, before) for before, model in zip([np.zeros((3, 2)), *models], models, strict=False)
    ]
    assert opened == [True, True, False, False, True, False]


def test_nothing_is_lost_if_no_round_is_opened() -> None:
    setting = private_setting(20.0, "sums-only")
    nobody = Register(setting.federation.samples, ((False,) * 4,) * ROUNDS, np.ones(4))
    _, result = trained(dp_gd(rounds=ROUNDS).prepare(setting, arrivals=nobody))
    assert result.status == "completed"
    assert not result.model.any()


def test_updates_of_a_cohort_stand_for_all_devices() -> None:
    """A round of the scheme alone: updates come with the weight N / n, and rows of those not asked are like the others."""
    scheme = cast(PrivateDescent, dp_gd(rounds=ROUNDS))
    prepared = scheme.prepare(private_setting(20.0, cohort=2, power_dbm=ALWAYS_DBM))
    state = scheme.init(prepared, np.zeros((3, 2)))
    asked = Attendance(np.array([7, 5]), np.ones(2, np.bool_), np.zeros(2), np.array([0, 2]), weight=2.0)
    gradients = [np.full((3, 2), 1.0), np.full((3, 2), 3.0)]
    updates = [(0, 2.0 * gradients[0]), (2, 2.0 * gradients[1])]
    round = Round(0, 1.0, asked, np.ones(4), np.ones(4, np.bool_), payloads_of(updates), None)
    moved, _ = scheme.step(state, round)
    np.testing.assert_allclose(moved.inner, -state.step * 25 / 12 * (gradients[0] + gradients[1]), rtol=1e-12)


def test_constants_do_not_depend_on_the_labels() -> None:
    scheme = cast(PrivateDescent, dp_gd())
    setting = private_setting(20.0)
    other = replace(setting, federation=replace(setting.federation, labels=setting.federation.labels[:, ::-1].copy()))
    assert scheme.course(scheme.prepare(setting)) == scheme.course(scheme.prepare(other))


def logistic_gradient(X: FloatArray, Y: FloatArray, W: FloatArray) -> FloatArray:
    exponentials = np.exp(X @ W)
    return np.asarray(X.T @ (exponentials / exponentials.sum(axis=1, keepdims=True) - Y))


def square_gradient(X: FloatArray, Y: FloatArray, W: FloatArray) -> FloatArray:
    return np.asarray(X.T @ (X @ W - Y))


def silent(setting: Setting, loss: LossName, curvature: CurvatureDetail, rounds: int) -> PreparedScheme:
    """Prepare a descent whose devices add no noise to speak of, with the ridge of the noise that they should add."""
    prepared = dp_gd(loss=loss, curvature=curvature, rounds=rounds).prepare(
        setting, arrivals=Everybody(setting.federation.samples)
    )
    plan = replace(cast(PrivatePlan, prepared.device), noise_multipliers=np.full(rounds, 1e-12))
    return replace(prepared, device=plan)


GRADIENTS = {"softmax": logistic_gradient, "square": square_gradient}


@pytest.mark.parametrize("loss", ["softmax", "square"])
def test_with_hardly_any_noise_it_ends_at_the_optimum_without_privacy(loss: LossName) -> None:
    """A large bound on the labels leaves no gradient clipped, so it is least squares or logistic regression.

    The root of the condition number is 170, so 900 rounds shrink the error by exp(-10).
    """
    setting = private_setting(2e6, samples=(60, 90), clip_norm=2.0, label_bound=5.0)
    X, Y = setting.federation.features, setting.federation.labels
    prepared = silent(setting, loss, "none", 900)
    result = train(prepared, RATE, 900, evaluate_every=900)
    gradient = GRADIENTS[loss]
    assert np.linalg.norm(gradient(X, Y, result.model)) < 5e-3 * np.linalg.norm(gradient(X, Y, np.zeros((3, 2))))
    if loss == "square":
        np.testing.assert_allclose(result.model, np.linalg.lstsq(X, Y, rcond=None)[0], rtol=1e-2)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("loss", ["softmax", "square"])
def test_it_minimises_the_loss_with_a_ridge_in_its_own_coordinates(loss: LossName, threat_model: ThreatModel) -> None:
    setting = private_setting(1e13, threat_model, samples=(60, 90), clip_norm=3.0, label_bound=30.0)
    X, Y = setting.federation.features, setting.federation.labels
    prepared = silent(setting, loss, "second-moments", 100)
    _, result = trained(prepared, 100)
    state = cast(DescentState, result.progress.state)
    D = reference.shrinking(state.geometry.directions, state.geometry.factors)
    left = D @ GRADIENTS[loss](X, Y, D.T @ state.inner) + state.ridge * state.inner
    assert np.linalg.norm(left) < 1e-3 * np.linalg.norm(D @ GRADIENTS[loss](X, Y, np.zeros((3, 2))))


def test_a_regression_learns_with_a_bound_on_its_labels() -> None:
    setting = private_setting(20.0, "sums-only", samples=(700, 900), task="regression", label_bound=2.0)
    scheme = dp_gd()
    rounds = scheme.rounds(setting)
    assert rounds is not None
    result = train(scheme.prepare(setting), RATE, rounds)
    assert setting.gram.gap(result.model) < 0.1 * setting.gram.gap(np.zeros((3, 2)))


@pytest.mark.parametrize(
    ("threat_model", "rate", "cohort"),
    [("each-message", 1.0, None), ("sums-only", 0.5, None), ("each-message", 0.5, 2)],
)
def test_killed_and_resumed_it_ends_where_it_would_have(
    threat_model: ThreatModel, rate: float, cohort: int | None, tmp_path: Path
) -> None:
    def fresh() -> PreparedScheme:
        setting = private_setting(5.0, threat_model, dtype=np.float32, cohort=cohort)
        return dp_gd(rounds=ROUNDS, sampling_rate=rate, curvature="second-moments").prepare(setting)

    class Kill(Callback):
        def on_round(self, progress: RunProgress) -> None:
            if progress.state.round == 5:  # within the average
                raise StopTraining("killed")

    path = tmp_path / "checkpoint.npz"
    stopped = train(fresh(), RATE, ROUNDS, callbacks=[Checkpoint(path, "same", every_s=0.0), Kill()])
    assert stopped.status == "interrupted"
    resumed = Run(fresh(), RATE, ROUNDS)
    resumed.progress, _ = load_checkpoint(path, resumed, "same")
    state, before = cast(DescentState, resumed.progress.state), cast(DescentState, stopped.progress.state)
    assert state.round == 5
    W = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(state.geometry.forward(W), before.geometry.forward(W))
    (result,) = train_together([resumed])
    whole = train(fresh(), RATE, ROUNDS)
    np.testing.assert_array_equal(result.model, whole.model)
    np.testing.assert_array_equal(result.progress.ledger.precision, whole.progress.ledger.precision)
    np.testing.assert_array_equal(result.progress.ledger.updates, whole.progress.ledger.updates)


def test_the_ledger_counts_the_precision_of_every_update_that_was_sent() -> None:
    setting = private_setting(5.0, cohort=2, power_dbm=ALWAYS_DBM, seed=1)
    prepared = dp_gd(rounds=ROUNDS).prepare(setting)
    _, result = trained(prepared)
    plan, ledger = cast(PrivatePlan, prepared.device), result.progress.ledger
    expected, counts = np.zeros((2, 4))
    for k in range(ROUNDS):
        devices: Sequence[int] = plan.arrivals.attend(k).devices  # type: ignore[assignment]
        expected[devices] += plan.noise_multipliers[k] ** -2.0
        counts[devices] += 1
    np.testing.assert_allclose(ledger.precision, expected, rtol=1e-12)
    np.testing.assert_array_equal(ledger.updates, counts)
    assert counts.sum() == 2 * ROUNDS
    assert counts.min() < counts.max()


def test_it_tunes_nothing_and_sets_its_rounds_itself() -> None:
    scheme, setting = dp_gd(), private_setting(2.0)
    assert scheme.private
    assert scheme.tunes_itself
    assert scheme.rounds(setting) == cast(PrivateDescent, scheme).budget(setting).rounds
    assert dp_gd(rounds=11).rounds(setting) == 11


def test_a_start_that_is_not_zero_is_ignored() -> None:
    setting = private_setting(5.0)
    start = np.ones((3, 2))
    moved = train(dp_gd(rounds=3).prepare(setting), RATE, 3, initial_model=start)
    np.testing.assert_array_equal(moved.model, train(dp_gd(rounds=3).prepare(setting), RATE, 3).model)


def test_a_bound_on_the_model_is_refused() -> None:
    prepared = dp_gd(rounds=5).prepare(private_setting(0.5, samples=(17, 32)))
    refusal = refusal_of(lambda: train(prepared, RATE, 5, model_norm_bound=0.1))
    assert "training.model_norm_bound = 0.1" in refusal
