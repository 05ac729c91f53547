"""Runs in lock-step give what they give one by one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.data import Federation
from codedfl.errors import InputError
from codedfl.losses import LOSSES, Loss
from codedfl.parallel import Workers
from codedfl.privacy import PrivacyTarget
from codedfl.schemes import SCHEMES, cfl_fb, codedfedl, dp_cfl, fedavg, make_scheme, scfl
from codedfl.setting import Setting
from codedfl.training import (
    Aggregation,
    Callback,
    Checkpoint,
    Evaluation,
    Evaluator,
    LearningRate,
    LocalSGD,
    PreparedScheme,
    Round,
    Run,
    RunProgress,
    RunResult,
    Scheme,
    Steps,
    StopTogether,
    StopTraining,
    Sum,
    load_checkpoint,
    train,
    train_together,
)
from codedfl.training.engine import _gradients as gradients
from codedfl.training.engine import _sampling as sampling
from codedfl.training.run import _lockstep as lockstep
from codedfl.typing import FloatArray
from tests.logistic import logistic
from tests.problems import ALWAYS_DBM, make_federation, make_setting

ROUNDS, STEPS, DIMENSION = 12, 2, 12
RATE = LearningRate(0.01, decay_rounds=20)


def federation(dtype: Any = np.float64) -> Federation:
    return make_federation((40, 60, 50, 33), DIMENSION, 3, dtype=dtype)


def tolerance(dtype: Any) -> float:
    """Return what rounding can do to a model, relative to its largest entry.

    Adding up n terms in another order changes their sum by at most n times the unit roundoff, relative to the sum of their sizes.
    A step has two products, of d and of at most l terms, and steps of this size do not amplify what earlier ones were off by. The
    federation's 60 rows are the longest sum. In float64 this is 3e-13; the promise is 1e-10.
    """
    return max(ROUNDS * STEPS * (DIMENSION + 60) * float(np.finfo(dtype).eps), 1e-10)


def assert_same(ours: Sequence[RunResult], theirs: Sequence[RunResult]) -> None:
    for a, b in zip(ours, theirs, strict=True):
        assert (a.status, a.message) == (b.status, b.message)
        limit = tolerance(a.progress.state.model.dtype)
        for x, y in ((a.progress.state.model, b.progress.state.model), (a.model, b.model)):
            np.testing.assert_allclose(x, y, rtol=0, atol=limit * np.abs(y).max())
        assert [point.round for point in a.curve] == [point.round for point in b.curve]
        for p, q in zip(a.curve, b.curve, strict=True):
            assert p.loss == pytest.approx(q.loss, rel=10 * limit)
            assert p.last_loss == pytest.approx(q.last_loss, rel=10 * limit)
            assert p.gap == pytest.approx(q.gap, rel=1e3 * limit, nan_ok=not a.prepared.loss.quadratic)
            assert p.score == pytest.approx(q.score, abs=1 / 40)  # an example on the border may fall on either side
            assert (p.simulated_time_s, p.bytes_up, p.mean_arrivals) == (
                q.simulated_time_s,
                q.bytes_up,
                q.mean_arrivals,
            )
        ledger, other = a.progress.ledger, b.progress.ledger
        assert np.array_equal(ledger.device_macs, other.device_macs)
        assert np.array_equal(ledger.bits_late, other.bits_late)
        assert ledger.server_macs == other.server_macs


def one_by_one(runs: Iterable[Run]) -> list[RunResult]:
    return [train_together([replace(run)])[0] for run in runs]


def together(runs: Iterable[Run]) -> list[RunResult]:
    """Train runs from their beginning, though they may have been trained before."""
    return train_together([replace(run) for run in runs])


@pytest.fixture(params=["kernel", "numpy"])
def arithmetic(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With the compiled kernel, where there is one, and without it, which is when models stand side by side."""
    if request.param == "numpy":
        monkeypatch.setattr(gradients, "suits", lambda *_: False)
    return str(request.param)


pytestmark = pytest.mark.usefixtures("arithmetic")


def at_noise(setting: Setting, *variances: float) -> list[Setting]:
    return [replace(setting, code=replace(setting.code, noise_variance=np.full(4, v))) for v in variances]


def on_the_same_code(schemes: Iterable[Scheme], setting: Setting) -> list[PreparedScheme]:
    """Prepare schemes that have coded data, if any, in common."""
    prepared = [scheme.prepare(setting) for scheme in schemes]
    coded = next(p.held for p in prepared if p.scheme.server)
    return [
        replace(p, held=coded, server=p.scheme.server.plan(setting, coded)) if p.scheme.server else p for p in prepared
    ]


@pytest.mark.parametrize("dtype", [np.float32, pytest.param(np.float64, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", list(SCHEMES))
def test_step_sizes(name: str, dtype: Any) -> None:
    scheme, setting = make_scheme(name), make_setting(federation(dtype))
    if scheme.private:
        setting = replace(setting, code=replace(setting.code, clip_norm=1.0), privacy=PrivacyTarget(5.0, 1e-5))
    prepared, rounds = scheme.prepare(setting), scheme.rounds(setting) or ROUNDS
    runs = [Run(prepared, LearningRate(0.01 * s, 20 * s), rounds, evaluate_every=5) for s in (0.3, 1.0, 1.5)]
    assert_same(together(runs), one_by_one(runs))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_noise_levels(dtype: Any) -> None:
    settings = at_noise(make_setting(federation(dtype), coded_samples=60), 0.0, 0.01, 0.1)
    runs = [Run(scfl().prepare(setting), RATE, ROUNDS) for setting in settings]
    results = together(runs)
    assert_same(results, one_by_one(runs))
    assert not np.allclose(results[0].model, results[2].model)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_schemes_on_the_same_coded_data(dtype: Any) -> None:
    setting = make_setting(federation(dtype), coded_samples=60)
    prepared = on_the_same_code((scfl(), dp_cfl(), fedavg(), scfl(device_weight=0.2)), setting)
    runs = [Run(p, RATE, ROUNDS) for p in prepared]
    assert_same(together(runs), one_by_one(runs))


def test_schemes_that_share_nothing() -> None:
    setting = make_setting(federation())
    schemes = (cfl_fb(), codedfedl(mini_batches=3), codedfedl(mini_batches=2), scfl())
    runs = [Run(scheme.prepare(setting), RATE, ROUNDS) for scheme in schemes]
    for ours, theirs in zip(together(runs), one_by_one(runs), strict=True):
        assert np.array_equal(ours.model, theirs.model), "alone, not even the rounding is different"
        assert ours.final.loss == pytest.approx(theirs.final.loss, rel=1e-12)


def test_fixed_and_adaptive_batches() -> None:
    setting = make_setting(federation())
    schemes = (scfl(), fedavg(), scfl(batch=8), fedavg(batch=8), fedavg(batch=4))
    runs = [Run(scheme.prepare(setting), RATE, ROUNDS) for scheme in schemes]
    assert_same(together(runs), one_by_one(runs))


def test_the_same_work_on_different_losses_is_not_shared() -> None:
    """Devices of both take one step on the same batches; two runs of each loss stand side by side."""
    setting = make_setting(federation())
    both = (logistic(), Scheme("square", "Square", None, LocalSGD(steps=1), None, Sum(), "last"))
    rates = (RATE, LearningRate(RATE.initial / 2))
    runs = [Run(scheme.prepare(setting), rate, ROUNDS) for scheme in both for rate in rates]
    results = together(runs)
    assert_same(results, one_by_one(runs))
    assert len({run.device_identity for run in runs}) == 2
    assert not np.allclose(results[0].model, results[2].model)


def test_runs_on_different_data() -> None:
    settings = [
        make_setting(federation()),
        make_setting(make_federation((9, 20, 4), 5)),
        make_setting(federation(), seed=1),
    ]
    runs = [Run(fedavg().prepare(setting), RATE, ROUNDS) for setting in settings]
    assert_same(together(runs), one_by_one(runs))


def test_a_run_that_diverges_leaves_the_others_alone() -> None:
    prepared = fedavg().prepare(make_setting(federation(), power_dbm=ALWAYS_DBM))
    runs = [Run(prepared, LearningRate(rate), ROUNDS) for rate in (0.01, 50.0, 0.005, 1e200)]
    results = together(runs)
    assert [result.status for result in results] == ["completed", "diverged", "completed", "diverged"]
    assert "lower the learning rate" in results[1].message
    assert results[3].progress.state.round < results[0].progress.state.round == ROUNDS
    assert_same([results[0], results[2]], one_by_one([runs[0], runs[2]]))


class StopAt(Callback):
    def __init__(self, round: int) -> None:
        self.round = round
        self.heard: list[str] = []

    def on_start(self, progress: RunProgress, rounds: int) -> None:
        self.heard.append(f"{progress.state.round} of {rounds}")

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.heard.append(f"evaluated {evaluation.round}")

    def on_round(self, progress: RunProgress) -> None:
        self.heard.append(str(progress.state.round))
        if progress.state.round == self.round:
            raise StopTraining("enough")

    def on_end(self, result: RunResult) -> None:
        self.heard.append(result.status)


def test_a_run_that_is_stopped_leaves_the_others_alone() -> None:
    prepared = scfl().prepare(make_setting(federation()))
    hooks = [StopAt(99), StopAt(3), StopAt(99)]
    rounds = [ROUNDS, ROUNDS, 4]
    runs = [Run(prepared, RATE, n, evaluate_every=2, callbacks=[hook]) for n, hook in zip(rounds, hooks, strict=True)]
    results = together(runs)
    assert [result.status for result in results] == ["completed", "interrupted", "completed"]
    assert results[1].message == "enough after round 3 of 12"
    assert hooks[1].heard == ["0 of 12", "1", "evaluated 2", "2", "3", "interrupted"]
    assert hooks[2].heard == ["0 of 4", "1", "evaluated 2", "2", "3", "evaluated 4", "4", "completed"]
    alone = [replace(run, callbacks=[StopAt(hook.round)]) for run, hook in zip(runs, hooks, strict=True)]
    assert_same(results, one_by_one(alone))


def test_runs_may_be_stopped_together() -> None:
    prepared, together = fedavg().prepare(make_setting()), StopTogether()
    callbacks: list[list[Callback]] = [[together], [StopAt(3), together], [together]]
    results = train_together([Run(prepared, RATE, ROUNDS, callbacks=own) for own in callbacks])
    assert {result.status for result in results} == {"interrupted"}
    assert [result.progress.state.round for result in results] == [4, 3, 3]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_runs_resumed_at_different_rounds_end_as_if_never_interrupted(dtype: Any, tmp_path: Path) -> None:
    setting = make_setting(federation(dtype))
    prepared = [scheme.prepare(setting) for scheme in (scfl(), fedavg(), dp_cfl(), scfl())]
    runs = [Run(p, RATE, ROUNDS, evaluate_every=5) for p in prepared]
    resumed = [runs[0]]
    for place, stop in ((1, 3), (2, 7), (3, ROUNDS)):
        path = tmp_path / f"{place}.npz"
        hooks = [Checkpoint(path, "same", every_s=0.0), StopAt(stop)]
        train_together([replace(runs[place], callbacks=hooks)])
        resumed.append(replace(runs[place], resume=load_checkpoint(path, replace(runs[place]), "same")[0]))
    results = train_together(resumed)
    assert_same(results, one_by_one(runs))
    again = [replace(run, resume=result.progress) for run, result in zip(runs, results, strict=True)]
    assert [result.progress for result in train_together(again)] == [result.progress for result in results]


def test_the_number_of_workers_changes_nothing_at_all() -> None:
    setting = make_setting(federation(np.float32), coded_samples=60)

    def results(workers: Workers) -> list[RunResult]:
        settings = at_noise(replace(setting, workers=workers), 0.01, 0.1)
        prepared = [p for s in settings for p in on_the_same_code((scfl(), dp_cfl(), fedavg()), s)]
        return train_together([Run(p, RATE, ROUNDS) for p in prepared])

    with Workers(3) as three:
        for a, b in zip(results(Workers(1)), results(three), strict=True):
            assert np.array_equal(a.model, b.model)
            assert [point.loss for point in a.curve] == [point.loss for point in b.curve]


def test_rows_are_sampled_and_gathered_once(monkeypatch: pytest.MonkeyPatch, arithmetic: str) -> None:
    sampled: list[str] = []
    multiplied: list[int] = []
    sample, with_numpy = sampling.sample_batches, gradients._with_numpy

    def counting_sample(streams: Any, purpose: str, *args: Any, **places: Any) -> Any:
        sampled.append(purpose)
        return sample(streams, purpose, *args, **places)

    def counting_steps(party: Steps) -> Any:
        multiplied.append(sum(start.model.shape[1] for start in party.starts))
        return with_numpy(party)

    for module in ("protocol._devices", "protocol._server"):
        monkeypatch.setattr(f"codedfl.training.{module}.sample_batches", counting_sample)
    monkeypatch.setattr(gradients, "_with_numpy", counting_steps)
    setting = make_setting(federation(), power_dbm=ALWAYS_DBM, deadline_s=1e6, coded_samples=60)
    settings = at_noise(setting, 0.01, 0.1)
    prepared = [p for s in settings for p in on_the_same_code((scfl(batch=8), dp_cfl(), fedavg(batch=8)), s)]
    train_together([Run(p, RATE, 1, evaluate_every=1) for p in prepared])
    assert sorted(sampled) == ["batch"] * 4 + ["server-batch"] * 2, "four devices, two coded datasets"
    if arithmetic == "numpy":
        assert sorted(multiplied) == [6, 6, 12, 12, 12, 12], (
            "of three outputs each: two models at the server, four on devices"
        )


def test_a_group_too_large_for_memory_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = fedavg().prepare(make_setting(federation(), power_dbm=ALWAYS_DBM))
    runs = [Run(prepared, LearningRate(0.002 * s), ROUNDS) for s in range(1, 6)]
    whole = together(runs)
    monkeypatch.setattr(lockstep, "HELD_BYTES", 2 * 4 * DIMENSION * 3 * 8)
    assert_same(together(runs), whole)
    monkeypatch.setattr(lockstep, "HELD_BYTES", 1)
    assert_same(together(runs), one_by_one(runs))


@dataclass(frozen=True)
class ServerOnly(Aggregation):
    """An aggregation that does not even look at what devices send."""

    def combine(self, round: Round, model: FloatArray) -> FloatArray:
        return np.zeros_like(model) if round.server_update is None else round.server_update


def test_an_aggregation_may_ignore_the_devices() -> None:
    setting = make_setting(federation())
    schemes = (replace(scfl(), aggregation=ServerOnly()), fedavg(batch=4))
    runs = [Run(scheme.prepare(setting), RATE, ROUNDS) for scheme in schemes]
    assert_same(together(runs), one_by_one(runs))


def test_train_is_the_case_of_one() -> None:
    prepared = scfl().prepare(make_setting(federation()))
    ours, theirs = train(prepared, RATE, ROUNDS), train_together([Run(prepared, RATE, ROUNDS)])[0]
    assert np.array_equal(ours.model, theirs.model)
    assert ours.curve == theirs.curve
    assert train_together([]) == []


def test_the_real_time_of_a_round_is_divided() -> None:
    prepared = fedavg().prepare(make_setting())
    results = train_together([Run(prepared, RATE, 3), Run(prepared, RATE, 3), Run(prepared, RATE, 6)])
    times = [result.progress.wall_time_s for result in results]
    assert 0 < times[0] == times[1] < times[2]


def test_bad_numbers_are_refused() -> None:
    prepared = fedavg().prepare(make_setting())
    with pytest.raises(InputError, match="rounds = 0"):
        Run(prepared, RATE, 0)
    with pytest.raises(InputError, match="evaluate_every = 0"):
        Run(prepared, RATE, 1, evaluate_every=0)
    with pytest.raises(InputError, match="initial_model has shape"):
        Run(prepared, RATE, 1, initial_model=np.zeros((2, 2)))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_models_are_measured_together_as_alone(loss: Loss) -> None:
    rng = np.random.default_rng(0)
    models = [rng.standard_normal((DIMENSION, 3)) for _ in range(4)]
    evaluator = Evaluator(make_setting(federation()), loss=loss)
    assert evaluator.losses(*models) == pytest.approx([evaluator.training_loss(model) for model in models], rel=1e-12)
    gaps = [evaluator.gap(model) for model in models]
    assert evaluator.gaps(*models) == pytest.approx(gaps, rel=1e-12, nan_ok=not loss.quadratic)
    assert np.isfinite(gaps).all() == loss.quadratic
