"""A run that diverges with a step size goes on with a smaller one, where it has one to fall back on."""

from __future__ import annotations

import math
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import log_loss

from codedfl.coding import Gram
from codedfl.experiment import build_experiment, load_config
from codedfl.losses import SOFTMAX, SQUARE
from codedfl.schemes import fedavg, scfl
from codedfl.setting import Setting
from codedfl.training import (
    Callback,
    Checkpoint,
    DevicePlan,
    Evaluator,
    Idle,
    LearningRate,
    OneShot,
    PreparedScheme,
    Run,
    RunProgress,
    RunResult,
    Scheme,
    StopTraining,
    Sum,
    load_checkpoint,
    train,
    train_together,
)
from codedfl.uploads import ExactStatistics
from tests.logistic import logistic
from tests.problems import ALWAYS_DBM, make_federation, make_setting

ROUNDS = 30


def prepared(scheme: Scheme | None = None, dtype: Any = np.float64) -> PreparedScheme:
    """Full batches and everyone in time, so that a round is a step of gradient descent."""
    data = make_federation((20, 30, 25), task="regression", dtype=dtype)
    setting = make_setting(data, power_dbm=ALWAYS_DBM, deadline_s=1e6, local_steps=1)
    return (scheme or fedavg()).prepare(setting)


PREPARED = prepared()
SMOOTHNESS = PREPARED.setting.gram.smoothness


def rate(scale: float) -> LearningRate:
    return LearningRate.relative(scale, SMOOTHNESS)


def trained(scale: float, *fallbacks: float, rounds: int = ROUNDS, **options: Any) -> RunResult:
    run = Run(PREPARED, rate(scale), rounds, fallbacks=tuple(map(rate, fallbacks)), **options)
    (result,) = train_together([run])
    return result


class Watch(Callback):
    """Notes the model after every round that the run did not reject."""

    def __init__(self) -> None:
        self.models: dict[int, np.ndarray] = {}

    def on_round(self, progress: RunProgress) -> None:
        self.models[progress.state.round] = progress.state.model


def test_a_run_that_diverges_backs_off_and_completes() -> None:
    watch = Watch()
    result = trained(6.0, 0.5, callbacks=[watch])
    assert result.status == "completed"
    assert result.progress.back_offs == 1
    assert result.learning_rate == rate(0.5)
    first = next(k for k in range(1, ROUNDS) if k not in watch.models)
    assert 1 < first < ROUNDS // 2
    assert result.message == (
        f"diverged with the step size {6 / SMOOTHNESS:.4g} at round {first} and backed off to {0.5 / SMOOTHNESS:.4g}"
    )
    assert result.progress.ledger.rounds == result.final.round == result.progress.state.round == ROUNDS
    assert result.final.simulated_time_s == ROUNDS * 1e6, "the rounds that were lost stay charged"
    assert result.progress.ledger.arrivals == 3 * ROUNDS
    assert [point.round for point in result.curve] == list(range(ROUNDS + 1))
    assert result.final.loss < result.curve[0].loss


@pytest.mark.parametrize(("begin", "good"), [(0.5, 6), (6.0, 0)], ids=["of some rounds ago", "of the start"])
def test_it_goes_on_from_its_last_good_state(begin: float, good: int) -> None:
    """Gradient descent by hand: up to the last good round with the first step, and then with the one that it fell back to."""

    class Spoil(Watch):
        """Lets the run do well for six rounds."""

        def on_round(self, progress: RunProgress) -> None:
            super().on_round(progress)
            if progress.state.round == 6:
                run.learning_rate = rate(40.0)

    watch = Spoil()
    run = Run(PREPARED, rate(begin), ROUNDS, fallbacks=(rate(0.4),), callbacks=[watch])
    (result,) = train_together([run])
    assert (result.status, result.progress.back_offs) == ("completed", 1)
    lost = next(k for k in range(1, ROUNDS) if k not in watch.models)
    X, Y = PREPARED.setting.federation.features, PREPARED.setting.federation.labels
    W = np.zeros((3, 2))
    for scale, rounds in ((begin, good), (0.4, ROUNDS - lost)):
        for _ in range(rounds):
            W = W - scale / SMOOTHNESS * X.T @ (X @ W - Y)
    np.testing.assert_allclose(result.model, W, rtol=1e-9)


def test_without_a_fallback_it_diverges_as_ever() -> None:
    result = trained(6.0)
    assert result.status == "diverged"
    assert result.progress.back_offs == 0
    assert result.progress.good_state is None, "nothing is kept for a run that cannot go back"
    assert "lower the learning rate" in result.message
    assert result.progress.ledger.rounds == result.final.round < ROUNDS


def test_it_backs_off_once_for_each_fallback_and_then_diverges() -> None:
    steps = [rate(scale).initial for scale in (12.0, 8.0, 0.5)]
    result = trained(12.0, 8.0, 0.5)
    assert (result.status, result.progress.back_offs) == ("completed", 2)
    assert f"step size {steps[1]:.4g}" in result.message
    assert result.message.endswith(f"backed off to {steps[2]:.4g}")
    hopeless = trained(12.0, 8.0)
    assert (hopeless.status, hopeless.progress.back_offs) == ("diverged", 1)
    assert "lower the learning rate" in hopeless.message
    assert hopeless.progress.ledger.rounds < ROUNDS


def test_a_step_size_that_serves_leaves_the_fallbacks_alone() -> None:
    plain, careful = trained(0.5), trained(0.5, 0.1)
    assert np.array_equal(plain.model, careful.model)
    assert [astuple(point) for point in plain.curve] == [astuple(point) for point in careful.curve]
    assert (careful.progress.back_offs, careful.message) == (0, "")


def test_a_slow_divergence_that_shows_at_the_end_alone_returns_the_last_good_model() -> None:
    """The loss has grown beyond that of the zero model but not a thousandfold, and no rounds are left to mend it."""
    scale = 2.12
    plain = trained(scale)
    assert plain.status == "diverged"
    assert "worse than none" in plain.message
    assert plain.final.round == ROUNDS
    kept = trained(scale, 0.5)
    assert kept.status == "completed"
    assert f"diverged with the step size {scale / SMOOTHNESS:.4g}" in kept.message
    assert "its last good model is kept" in kept.message
    assert kept.final.loss <= 2 * min(point.last_loss for point in kept.curve[:-1])
    assert kept.final.round == kept.progress.ledger.rounds == ROUNDS
    assert len(kept.curve) == len(plain.curve)
    assert kept.final.loss == pytest.approx(kept.prepared.setting.gram.loss(kept.model) / 75)


@pytest.mark.parametrize("scale", [1e12, 1e200], ids=["large", "overflows"])
@pytest.mark.parametrize("every", [1, 7])
def test_a_divergence_in_the_very_last_round_returns_the_last_good_model(scale: float, every: int) -> None:
    class Spoil(Callback):
        """Lets the run do well until its last round."""

        def on_round(self, progress: RunProgress) -> None:
            if progress.state.round == ROUNDS - 1:
                run.learning_rate = rate(scale)

    run = Run(PREPARED, rate(0.5), ROUNDS, evaluate_every=every, fallbacks=(rate(0.1),), callbacks=[Spoil()])
    (result,) = train_together([run])
    assert result.status == "completed"
    assert math.isfinite(result.final.loss)
    assert result.final.loss < 0.5 * result.curve[0].loss
    assert result.final.loss == pytest.approx(PREPARED.setting.gram.loss(result.model) / 75)
    assert f"diverged with the step size {scale / SMOOTHNESS:.4g}" in result.message
    assert "its last good model is kept" in result.message
    assert result.final.round == result.progress.ledger.rounds == ROUNDS


class StopAt(Callback):
    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == self.round:
            raise StopTraining("killed")


@pytest.mark.parametrize("scheme", [fedavg(), scfl()], ids=["fedavg", "scfl"])
@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("stop", [3, 9, *(pytest.param(stop, marks=pytest.mark.slow) for stop in (1, 29))])
def test_a_run_killed_before_or_after_a_back_off_ends_as_an_undisturbed_one(
    tmp_path: Path, stop: int, dtype: Any, scheme: Scheme
) -> None:
    path = tmp_path / "c.npz"

    def fresh() -> Run:
        return Run(prepared(scheme, dtype), rate(6.0), ROUNDS, evaluate_every=2, fallbacks=(rate(0.5), rate(0.1)))

    (whole,) = train_together([fresh()])
    assert (whole.status, whole.progress.back_offs) == ("completed", 1)
    hooks = [Checkpoint(path, "same", every_s=0.0), StopAt(stop)]
    (stopped,) = train_together([replace(fresh(), callbacks=hooks)])
    assert stopped.status == "interrupted"
    run = fresh()
    run.progress, _ = load_checkpoint(path, run, "same")
    assert (run.progress.back_offs == 1) == (stop >= 9)
    (resumed,) = train_together([run])
    assert np.array_equal(resumed.model, whole.model)
    assert np.array_equal(resumed.progress.state.model, whole.progress.state.model)
    assert [astuple(point) for point in resumed.curve] == [astuple(point) for point in whole.curve]
    assert (resumed.status, resumed.message) == (whole.status, whole.message)
    assert resumed.progress.back_offs == 1
    assert np.array_equal(resumed.progress.ledger.bits_up, whole.progress.ledger.bits_up)


def test_in_lock_step_the_others_notice_nothing() -> None:
    alone = trained(0.5)
    runs = [Run(PREPARED, rate(6.0), ROUNDS, fallbacks=(rate(0.5),)), Run(PREPARED, rate(0.5), ROUNDS)]
    backed_off, other = train_together(runs)
    assert backed_off.progress.back_offs == 1
    np.testing.assert_allclose(other.model, alone.model, rtol=1e-12)
    np.testing.assert_allclose(backed_off.model, trained(6.0, 0.5).model, rtol=1e-9)


@pytest.fixture(scope="module")
def digits() -> PreparedScheme:
    given = {"training.deadline_s": 100.0, "features.map": "none"}
    return logistic().prepare(build_experiment(load_config(overrides=list(given.items()))).setting)


def test_a_scheme_with_a_loss_of_its_own_is_judged_by_it(digits: PreparedScheme) -> None:
    """Its logits are large, so that their square loss is far above that of the zero model; the cross entropy is not."""
    rate = LearningRate.relative(1.0, digits.smoothness)
    result = train(digits, rate, 300, evaluate_every=100)
    assert (result.status, result.message) == ("completed", "")
    assert result.final.score > 0.9
    federation = digits.setting.federation
    labels = federation.labels.argmax(axis=1)
    expected = log_loss(labels, softmax(federation.features.astype(np.float64) @ result.model, axis=1))
    assert result.final.loss == result.final.last_loss == pytest.approx(expected, rel=1e-5)
    assert result.curve[0].loss == pytest.approx(math.log(10), rel=1e-6)
    assert math.isnan(result.final.gap)
    assert math.isnan(result.final.distance)
    assert Evaluator(digits.setting).training_loss(result.model) > 0.5, "the square loss of the zero model"


def test_an_evaluator_by_another_loss_does_not_judge_the_run(digits: PreparedScheme) -> None:
    evaluator = Evaluator(digits.setting, test_samples=50)
    rate = LearningRate.relative(1.0, digits.smoothness)
    runs = [Run(digits, rate, 2, evaluator) for _ in range(2)]
    results = train_together(runs)
    assert [result.status for result in results] == ["completed", "completed"]
    assert runs[0].evaluator is runs[1].evaluator
    assert runs[0].evaluator is not None
    assert (runs[0].evaluator.loss, runs[0].evaluator.test_samples) == (SOFTMAX, 50)
    assert evaluator.loss == SQUARE


def test_a_step_that_is_too_long_for_the_loss_diverges(digits: PreparedScheme) -> None:
    rate = LearningRate.relative(1e6, digits.smoothness)
    result = train(digits, rate, 20)
    assert result.status == "diverged"
    assert "training loss" in result.message


@dataclass(frozen=True)
class Unsolvable(OneShot):
    """Solves for a model that is not a number."""

    def solve(self, held: Gram) -> np.ndarray:
        return np.full(held.cross.shape, np.nan)

    def solving_macs(self, setting: Setting, plan: DevicePlan) -> float:  # noqa: ARG002
        return 1.0


@dataclass(frozen=True)
class UnsolvableInPrivate(Unsolvable):
    """The same from a noisy release: to look at the model tells no more."""

    @property
    def private(self) -> bool:
        return True


@pytest.mark.parametrize("scheme", [Unsolvable, UnsolvableInPrivate])
def test_a_solution_that_is_not_finite_is_none(scheme: type[Unsolvable]) -> None:
    made = scheme("unsolvable", "Unsolvable", ExactStatistics(), Idle(), None, Sum(), "last")
    result = train(made.prepare(PREPARED.setting), LearningRate(1.0), 0)
    assert result.status == "diverged"
    assert result.message == ("diverged (the solution is not finite): check the scale of the data and coding.clip_norm")
