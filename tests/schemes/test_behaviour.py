"""What every scheme without a privacy target of its own does on a small problem; see `test_private.py` for the others."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pytest

from codedfl.data import Task
from codedfl.errors import InputError
from codedfl.parallel import Workers
from codedfl.schemes import SCHEMES, CurvatureCoded, make_scheme
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
from tests.problems import ALWAYS_DBM, NEVER_DBM, make_federation, make_setting

ROUNDS = 12
RATE = LearningRate(0.02)

OPTIONS: dict[str, dict[str, object]] = {"codedfedl": {"mini_batches": 3}, "scfl-fixed": {"batch": 4}}
"""Options that suit the small problem."""

pytestmark = pytest.mark.parametrize("name", [name for name in SCHEMES if not make_scheme(name).private])


def prepare(name: str, setting: Setting) -> PreparedScheme:
    return make_scheme(name, OPTIONS.get(name)).prepare(setting)


def run(name: str, setting: Setting) -> RunResult:
    return train(prepare(name, setting), RATE, ROUNDS, evaluate_every=5)


def assert_identical(a: RunResult, b: RunResult) -> None:
    assert np.array_equal(a.model, b.model)
    assert np.array_equal(a.progress.state.model, b.progress.state.model)
    assert [astuple(point) for point in a.curve] == [astuple(point) for point in b.curve]
    assert np.array_equal(a.progress.ledger.bits_up, b.progress.ledger.bits_up)
    assert np.array_equal(a.progress.ledger.device_macs, b.progress.ledger.device_macs)
    assert a.progress.ledger.server_macs == b.progress.ledger.server_macs
    assert (a.status, a.message) == (b.status, b.message)


def test_returns_models_curve_and_charges(name: str) -> None:
    setting = make_setting()
    result = run(name, setting)
    assert result.status == "completed"
    assert result.model.shape == result.progress.state.model.shape == (3, 2)
    assert [point.round for point in result.curve] == [0, 5, 10, 12]
    if result.scheme.one_shot:
        assert {point.loss for point in result.curve} == {result.final.loss}
        assert result.final.loss < 0.5, "the loss of the zero model"
    else:
        assert result.final.loss < result.curve[0].loss
    assert 0 <= result.final.score <= 1
    times = [point.simulated_time_s for point in result.curve]
    assert times == pytest.approx([k * result.prepared.device.arrivals.duration_s for k in (0, 5, 10, 12)])
    ledger = result.progress.ledger
    charged = times[-1] + ledger.preparation_s + ledger.aggregation_s
    assert result.final.everything_charged_s == pytest.approx(charged)
    assert (ledger.aggregation_s > 0) == isinstance(result.scheme, CurvatureCoded), "the others only add up"


def test_the_cost_of_the_upload_is_known_without_making_it(name: str) -> None:
    setting = make_setting()
    prepared = prepare(name, setting)
    cost = prepared.scheme.upload_cost(setting, prepared.device)
    assert (cost is None) == (prepared.upload_cost is None)
    if cost is not None and prepared.upload_cost is not None:
        for charged, known in zip(astuple(prepared.upload_cost), astuple(cost), strict=True):
            assert np.array_equal(charged, known)


def test_the_same_seed_gives_the_same_run_and_another_seed_another(name: str) -> None:
    setting = make_setting()
    assert_identical(run(name, setting), run(name, make_setting()))
    other = run(name, replace(setting, streams=Streams(1)))
    upload = make_scheme(name).upload
    exact = upload is not None and upload.name == "statistics"
    assert np.array_equal(other.progress.state.model, run(name, setting).progress.state.model) == exact


@pytest.mark.parametrize("encoder", ["direct", "gram"])
def test_the_number_of_workers_does_not_matter(name: str, encoder: str) -> None:
    setting = make_setting(make_federation(dtype=np.float32), encoder=encoder)
    with Workers(3) as workers:
        assert_identical(run(name, setting), run(name, replace(setting, workers=workers)))


class StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == self.rounds:
            raise StopTraining("enough")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_resumed_run_equals_an_uninterrupted_one(name: str, dtype: type, tmp_path: Path) -> None:
    def fresh() -> PreparedScheme:
        return prepare(name, make_setting(make_federation(dtype=dtype)))

    path = tmp_path / "checkpoint.npz"
    checkpoint = Checkpoint(path, "same", every_s=0.0)
    stopped = train(fresh(), RATE, ROUNDS, evaluate_every=5, callbacks=[checkpoint, StopAfter(7)])
    assert stopped.status == "interrupted"
    assert stopped.progress.state.round == 7

    run = Run(fresh(), RATE, ROUNDS, evaluate_every=5)
    run.progress, _ = load_checkpoint(path, run, "same")
    (resumed,) = train_together([run])
    assert_identical(resumed, train(fresh(), RATE, ROUNDS, evaluate_every=5))


def test_nobody_ever_arrives(name: str) -> None:
    result = run(name, make_setting(power_dbm=NEVER_DBM))
    assert result.status == "completed"
    assert result.progress.ledger.arrivals == 0
    assert result.progress.ledger.bits_up.sum() == 0
    if make_scheme(name).one_shot:
        assert np.array_equal(result.model, run(name, make_setting()).model), "nobody has to arrive"
    elif make_scheme(name).server is None and make_scheme(name).upload is None:
        assert np.all(result.model == 0), "without devices and server nothing is learnt"
    else:
        assert result.final.loss < result.curve[0].loss, "what was uploaded must teach something by itself"


def test_everybody_always_arrives(name: str) -> None:
    result = run(name, make_setting(make_federation((7, 12, 5, 4)), power_dbm=ALWAYS_DBM))
    assert result.status == "completed"
    if result.prepared.device.broadcasts:
        # A scheme that chooses a shorter deadline has devices that miss one in a million.
        shortfall = 1e-6 if result.prepared.device.arrivals.duration_s < result.prepared.setting.deadline_s else 0.0
        assert np.all(result.prepared.device.arrivals.probability >= 1 - shortfall)
        assert result.final.mean_arrivals == 4


def test_one_device(name: str) -> None:
    assert run(name, make_setting(make_federation((30,)), power_dbm=20.0)).final.loss < 0.5


def test_devices_with_one_sample_each(name: str) -> None:
    assert run(name, make_setting(make_federation((1, 1, 1)))).status == "completed"


@pytest.mark.parametrize("coded_samples", [1, 2, 24, 26, 200])
def test_fewer_and_more_coded_samples_than_data(name: str, coded_samples: int) -> None:
    setting = make_setting(coded_samples=coded_samples, server_batch=None)
    assert setting.federation.total_samples == 25
    if name == "one-shot" and coded_samples < 5:
        with pytest.raises(InputError, match=r"coding\.coded_samples = "):
            prepare(name, setting)
        return
    result = train(prepare(name, setting), LearningRate(0.002), ROUNDS)
    assert np.isfinite(result.progress.state.model).all()


@pytest.mark.parametrize("encoder", ["direct", "gram"])
def test_no_noise_and_all_data_coded_many_times_comes_close_to_gradient_descent(name: str, encoder: str) -> None:
    """With c large, no noise, full batches and everyone in time, all unbiased schemes are gradient descent, up to 1/sqrt(c).

    A one-shot scheme is at the end of gradient descent at once, and one that tunes itself comes close in as many steps.
    """
    setting = make_setting(
        power_dbm=ALWAYS_DBM,
        noise_variance=0.0,
        coded_samples=40_000,
        server_batch=40_000,
        local_steps=1,
        encoder=encoder,
        deadline_s=1e6,
    )
    plain: dict[str, dict[str, object]] = {
        "scfl-fixed": {"batch": 1000},
        "codedfedl": {"mini_batches": 1},
        "momentum": {"momentum": 0.0},
        "one-shot": {"ridge_share": 0.0},
    }
    scheme = make_scheme(name, plain.get(name))
    result = train(scheme.prepare(setting), LearningRate(1.0) if scheme.tunes_itself else RATE, ROUNDS)
    X, Y = setting.federation.features, setting.federation.labels
    W = np.zeros((3, 2))
    for k in range(2000 if scheme.tunes_itself else ROUNDS):
        W = W - RATE.at(k) * X.T @ (X @ W - Y)
    # H~ - H has entries of size ||H|| / sqrt(c) = L / 200, so after 12 steps of eta L ~ 0.2 the relative error is about 1%.
    assert np.linalg.norm(result.progress.state.model - W) < 0.05 * np.linalg.norm(W)


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_both_tasks(name: str, task: Task) -> None:
    result = run(name, make_setting(make_federation(task=task)))
    assert np.isfinite(result.final.score)


def test_different_noise_for_each_device_and_label_noise(name: str) -> None:
    setting = make_setting(noise_variance=(0.0, 0.1, 1.0, 0.3), label_noise_variance=0.2)
    result = run(name, setting)
    assert result.status == "completed"
    noisy = make_scheme(name).upload is not None and name in ("scfl", "scfl-fixed", "dp-cfl", "one-shot")
    assert result.prepared.coded_noise == pytest.approx(1.4 if noisy else 0.0)


def test_a_step_too_large_is_reported_as_divergence(name: str) -> None:
    result = train(prepare(name, make_setting(power_dbm=ALWAYS_DBM)), LearningRate(5.0), 200)
    if result.scheme.one_shot:
        assert (result.status, result.progress.state.round) == ("completed", 200)
        return
    if isinstance(result.scheme, CurvatureCoded):
        assert (result.status, result.progress.state.round) == ("completed", 200)
        assert getattr(result.progress.state, "dampings", 0) > 0, "it backs off by itself ..."
        assert result.final.gap < 0.01 * result.curve[0].gap, "... and gets there"
        return
    assert result.status == "diverged"
    assert "lower the learning rate" in result.message
    assert result.progress.state.round < 200


def test_divergence_in_threads_warns_no_one(name: str) -> None:
    with Workers(2) as workers:
        setting = replace(make_setting(make_federation(dtype=np.float32), power_dbm=ALWAYS_DBM), workers=workers)
        result = train(
            prepare(name, setting), LearningRate(1e18), 20, evaluate_every=20
        )  # a warning would be an error here
    assert result.status == ("completed" if result.scheme.tunes_itself else "diverged")


def test_a_norm_bound_keeps_the_model_bounded(name: str) -> None:
    prepared = prepare(name, make_setting(power_dbm=ALWAYS_DBM))
    result = train(prepared, LearningRate(5.0), 50, model_norm_bound=2.0)
    assert np.linalg.norm(result.progress.state.model) <= 2.0 * (1 + 1e-12)
