"""Every private scheme passes the same suite: what it states, and that runs can be repeated and resumed."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.experiment import Comparison, run
from codedfl.parallel import Workers
from codedfl.schemes import PRIVATE_SCHEMES, SCHEMES, make_scheme
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import (
    Callback,
    Checkpoint,
    LearningRate,
    PreparedScheme,
    Run,
    RunProgress,
    RunResult,
    StopTraining,
    load_checkpoint,
    train,
    train_together,
)
from tests.private_settings import THREAT_MODELS, private_setting
from tests.support import small_config

PRIVATE = [name for name in SCHEMES if make_scheme(name).private]

ROUNDS = 4

RATE = LearningRate(1.0)


def prepare(name: str, setting: Setting) -> PreparedScheme:
    scheme = make_scheme(name)
    return (scheme if scheme.one_shot else make_scheme(name, {"rounds": ROUNDS})).prepare(setting)


def trained(name: str, setting: Setting) -> RunResult:
    return train(prepare(name, setting), RATE, ROUNDS, evaluate_every=2)


def assert_identical(a: RunResult, b: RunResult) -> None:
    assert np.array_equal(a.model, b.model)
    np.testing.assert_array_equal([astuple(point) for point in a.curve], [astuple(point) for point in b.curve])
    assert np.array_equal(a.progress.ledger.precision, b.progress.ledger.precision)


@pytest.fixture(scope="module", params=THREAT_MODELS)
def comparison(request: pytest.FixtureRequest) -> Comparison:
    return run(small_config(schemes=PRIVATE, privacy__epsilon=2.0, privacy__threat_model=request.param))


@pytest.mark.parametrize("name", PRIVATE)
def test_its_epsilon_covers_everything_and_uses_the_budget(name: str, comparison: Comparison) -> None:
    config = comparison.experiment.config
    statement = comparison.privacy(name)
    assert statement["covers"] == "everything"
    assert statement["threat_model"] == config.privacy.threat_model.replace("-", " ")
    assert 0.98 * 2.0 <= statement["epsilon"] <= 2.0
    assert not any("step size" in clause for clause in statement["outside"])
    assert comparison[name].choice is None


def test_private_schemes_are_part_of_a_private_comparison() -> None:
    assert set(PRIVATE) <= set(PRIVATE_SCHEMES)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_regression_keeps_its_epsilon_with_a_bound_on_its_targets(name: str) -> None:
    near, far = (
        trained(name, private_setting(5.0, task="regression", label_bound=bound)).model for bound in (1.0, 1000.0)
    )
    assert np.isfinite(near).all()
    # A bound that is too large makes the noise larger, and the ridge of the schemes with it.
    assert not np.array_equal(near, far)


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_the_same_seed_gives_the_same_run_and_another_seed_another(name: str, threat_model: str) -> None:
    setting = private_setting(5.0, threat_model)  # type: ignore[arg-type]
    first = trained(name, setting)
    assert first.status in ("completed", "diverged")  # so much noise may leave a model that is worse than none
    assert_identical(first, trained(name, private_setting(5.0, threat_model)))  # type: ignore[arg-type]
    assert not np.array_equal(first.model, trained(name, replace(setting, streams=Streams(1))).model)


@pytest.mark.parametrize("name", PRIVATE)
def test_the_number_of_workers_does_not_matter(name: str) -> None:
    setting = private_setting(5.0, dtype=np.float32)
    with Workers(3) as workers:
        assert_identical(trained(name, setting), trained(name, replace(setting, workers=workers)))


@pytest.mark.parametrize("name", PRIVATE)
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, tmp_path: Path) -> None:
    class StopAfterTwo(Callback):
        def on_round(self, progress: RunProgress) -> None:
            if progress.state.round == 2:
                raise StopTraining("enough")

    def fresh() -> PreparedScheme:
        return prepare(name, private_setting(5.0, dtype=np.float32))

    path = tmp_path / "checkpoint.npz"
    callbacks = [Checkpoint(path, "same", every_s=0.0), StopAfterTwo()]
    assert train(fresh(), RATE, ROUNDS, evaluate_every=2, callbacks=callbacks).status == "interrupted"
    resumed = Run(fresh(), RATE, ROUNDS, evaluate_every=2)
    resumed.progress, _ = load_checkpoint(path, resumed, "same")
    (result,) = train_together([resumed])
    assert_identical(result, train(fresh(), RATE, ROUNDS, evaluate_every=2))


@pytest.mark.parametrize("name", PRIVATE)
@pytest.mark.parametrize("samples", [(30,), (1, 1, 1)])
def test_one_device_and_devices_with_one_sample(name: str, samples: tuple[int, ...]) -> None:
    for threat_model in THREAT_MODELS:
        assert np.isfinite(trained(name, private_setting(5.0, threat_model, samples=samples)).model).all()


@pytest.mark.parametrize("name", PRIVATE)
def test_the_cost_of_the_upload_is_known_without_making_it(name: str) -> None:
    for threat_model in THREAT_MODELS:
        setting = private_setting(5.0, threat_model)
        prepared = prepare(name, setting)
        cost = prepared.scheme.upload_cost(setting, prepared.device)
        assert cost is not None
        assert prepared.upload_cost is not None
        for charged, known in zip(astuple(prepared.upload_cost), astuple(cost), strict=True):
            assert np.array_equal(charged, known)


@pytest.mark.parametrize("name", PRIVATE)
def test_a_setting_without_a_target_is_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"privacy\.epsilon = 0"):
        prepare(name, replace(private_setting(), privacy=None))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ihm", "ssp", "scfl-private"])
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_many_samples_teach_half_of_what_there_is_to_learn(name: str, task: Task) -> None:
    setting = private_setting(
        20.0, "sums-only", samples=(700, 900), task=task, label_bound=2.0, clip_norm=1.0, coded_samples=100
    )
    scheme = make_scheme(name)
    rounds = scheme.rounds(setting) or 0
    result = train(scheme.prepare(setting), RATE, rounds)
    gram = setting.gram
    assert gram.gap(result.model) < 0.5 * gram.gap(np.zeros((3, 2)))
