from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.experiment import Comparison, RunFolder, build_experiment, curves_csv, run, sweep
from codedfl.native import backend
from codedfl.training import AllocatedGradient, Callback, Idle, LocalSGD, RunProgress, StepSizeChoice, Trial
from tests.support import CLI_SMALL, Cli, StopAfter, assert_same_results, small_config


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out what takes most of the time of a small run."""
    monkeypatch.setattr("codedfl.plotting._curves.draw_curves", lambda *_, **__: b"a picture")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that was not interrupted."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codedfl.plotting._curves.draw_curves", lambda *_, **__: b"a picture")
        run_in(path)
    return path


def rows_of(comparison: Comparison, scheme: str) -> list[str]:
    return [line for line in curves_csv(comparison).splitlines() if line.startswith(f"{scheme},")]


def run_in(path: Path, *, stop_after: int | None = None, **changes: Any) -> Comparison:
    """Start a run in a folder, or go on with it."""
    folder = RunFolder.reopen(path) if path.exists() else RunFolder.create(path, small_config(**changes))
    return run(folder.config, folder=folder, callbacks=() if stop_after is None else (StopAfter(stop_after),))


def test_the_same_configuration_gives_the_same_numbers(comparison: Comparison) -> None:
    again = run(comparison.config)
    assert curves_csv(again) == curves_csv(comparison)
    for ours, theirs in zip(again.results, comparison.results, strict=True):
        assert np.array_equal(ours.model, theirs.model)


def test_another_seed_gives_other_numbers(comparison: Comparison) -> None:
    assert rows_of(run(small_config(seed=1)), "scfl") != rows_of(comparison, "scfl")


@pytest.mark.parametrize("workers", [1, 3])
def test_the_number_of_workers_does_not_matter(comparison: Comparison, workers: int) -> None:
    config = small_config(schemes=comparison.config.schemes, training__workers=workers)
    assert curves_csv(run(config)) == curves_csv(comparison)


def test_neither_the_order_nor_the_company_of_schemes_matters(comparison: Comparison) -> None:
    other = run(small_config(schemes=["scfl", "codedfedl", "fedavg"]))
    assert [result.scheme.name for result in other.results] == ["scfl", "codedfedl", "fedavg"]
    for scheme in other.config.schemes:
        assert rows_of(other, scheme) == rows_of(comparison, scheme)


def test_schemes_meet_the_same_channel(comparison: Comparison) -> None:
    fedavg, scfl = comparison["fedavg"], comparison["scfl"]
    for k in range(12):
        ours, theirs = (result.prepared.device.arrivals.attend(k) for result in (fedavg, scfl))
        assert np.array_equal(ours.arrived, theirs.arrived)
        assert np.array_equal(ours.batch_sizes, theirs.batch_sizes)
    assert fedavg.final.mean_arrivals == scfl.final.mean_arrivals > 0
    assert np.array_equal(fedavg.progress.ledger.bits_up, scfl.progress.ledger.bits_up)


def test_the_first_model_is_the_same_for_all_schemes() -> None:
    started = run(small_config(training__initial_std=0.1))
    first = [result.curve[0].loss for result in started.results]
    assert first[0] == first[1] != run(small_config()).results[0].curve[0].loss


def test_rounds_follow_from_the_total_time() -> None:
    timed = run(small_config(training__rounds=0, training__total_time_s=7.9, training__deadline_s=0.5))
    assert timed["scfl"].final.round == 15
    assert timed["scfl"].final.simulated_time_s == 7.5


def test_the_curve_has_about_as_many_points_as_wanted() -> None:
    points = [point.round for point in run(small_config(training__rounds=20, training__evaluations=7))["scfl"].curve]
    assert points == [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20]


def test_decay_and_options_reach_the_schemes() -> None:
    changed = run(small_config(learning_rate__decay_rounds=5.0, options__scfl={"batch": 4, "device_weight": 0.2}))
    assert changed["scfl"].learning_rate.at(5) == pytest.approx(changed["scfl"].learning_rate.at(0) / 2)
    assert changed["scfl"].scheme.title == "SCFL (b=4)"


@pytest.mark.parametrize("rounds", [13, *(pytest.param(r, marks=pytest.mark.slow) for r in (1, 12, 17, 24))])
def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(tmp_path: Path, whole: Path, rounds: int) -> None:
    stopped = run_in(tmp_path / "parts", stop_after=rounds)
    assert stopped.interrupted
    assert stopped.results[-1].status == "interrupted"
    assert stopped.results[-1].progress.ledger.rounds == (rounds - 1) % 12 + 1
    assert len(stopped.results) == 1 + (rounds > 12)
    assert json.loads((tmp_path / "parts/summary.json").read_text())["schemes"][-1]["status"] == "interrupted"
    assert (tmp_path / "parts/curves.csv").read_text() == curves_csv(stopped)
    assert not run_in(tmp_path / "parts").interrupted
    assert_same_results(tmp_path / "parts", whole)


@pytest.mark.slow
def test_many_interruptions_change_nothing_either(tmp_path: Path) -> None:
    schemes = ["codedfedl", "scfl", "dp-cfl"]
    run_in(tmp_path / "whole", schemes=schemes)
    for _ in range(100):
        if not run_in(tmp_path / "parts", stop_after=7, schemes=schemes).interrupted:
            break
    assert_same_results(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [2, 10, 22])
def test_tuning_goes_on_where_it_was_interrupted(tmp_path: Path, rounds: int) -> None:
    tuned: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [0.1, 0.4], "training__rounds": 8}
    run_in(tmp_path / "whole", **tuned)
    stopped = run_in(tmp_path / "parts", stop_after=rounds, **tuned)
    assert stopped.interrupted
    assert (tmp_path / "parts/summary.json").exists()
    assert not run_in(tmp_path / "parts").interrupted
    assert_same_results(tmp_path / "parts", tmp_path / "whole")


@pytest.mark.slow
def test_a_finished_run_is_not_run_again(tmp_path: Path) -> None:
    run_in(tmp_path / "whole")
    before = (tmp_path / "whole/curves.csv").read_bytes()
    assert not run_in(tmp_path / "whole", stop_after=1).interrupted
    assert (tmp_path / "whole/curves.csv").read_bytes() == before


@pytest.mark.slow
def test_the_workers_may_change_on_resume_but_nothing_else(tmp_path: Path, whole: Path) -> None:
    run_in(tmp_path / "parts", stop_after=15)
    config = tmp_path / "parts/config.toml"
    text = config.read_text()
    config.write_text(text.replace("workers = 0", "workers = 2"))
    run_in(tmp_path / "parts", stop_after=2)
    config.write_text(text.replace("seed = 0", "seed = 1"))
    with pytest.raises(InputError, match="written under another configuration"):
        run_in(tmp_path / "parts")
    config.write_text(text)
    run_in(tmp_path / "parts")
    assert_same_results(tmp_path / "parts", whole)


def test_each_scheme_gets_the_best_of_the_grid() -> None:
    tuned = run(small_config(learning_rate__scale="grid", learning_rate__grid=[1e-6, 0.3, 1e6]))
    for result in tuned.results:
        assert result.choice is not None
        assert result.scale == result.choice.scale == 0.3
        assert not result.choice.at_edge
        assert [trial.scale for trial in result.choice.trials] == [1e-6, 0.3, 1e6]
        assert result.choice.trials[2].score == -math.inf


def test_a_scheme_that_diverges_on_the_whole_grid_is_reported_and_the_comparison_goes_on() -> None:
    tuned = run(small_config(learning_rate__scale="grid", learning_rate__grid=[2e6, 1e6]))
    assert len(tuned.results) == len(tuned.config.schemes)
    assert {result.status for result in tuned.results} == {"diverged"}
    assert {result.scale for result in tuned.results} == {1e6}


def test_divergence_is_reported_and_leaves_the_others_alone(comparison: Comparison) -> None:
    noisy = run(small_config(coding__noise_variance=1e6))  # of which FedAvg does not know
    assert noisy["scfl"].status == "diverged"
    assert "coding.noise_variance" in noisy["scfl"].message
    assert noisy["fedavg"].status == "completed"
    assert rows_of(noisy, "fedavg") == rows_of(comparison, "fedavg")
    everything = run(small_config(learning_rate__scale=50))
    assert not everything.interrupted
    for result in everything.results:
        assert result.status == "diverged"
        assert "diverged" in result.message
        assert "lower the learning rate" in result.message


def test_a_bound_on_the_model_keeps_it_finite() -> None:
    bounded = run(small_config(learning_rate__scale=50, training__model_norm_bound=3.0))
    for result in bounded.results:
        assert np.linalg.norm(result.progress.state.model) <= 3.0 + 1e-5
        assert all(math.isfinite(point.loss) for point in result.curve)


class NeverTrain(Callback):
    """Fails if any scheme gets as far as its rounds."""

    def on_start(self, progress: RunProgress, rounds: int) -> None:
        raise AssertionError(f"round {progress.state.round} of {rounds} begins although another scheme cannot run")


@pytest.mark.parametrize("scale", [0.5, "grid"])
def test_a_scheme_that_cannot_run_is_refused_before_any_other_trains(scale: float | str) -> None:
    config = small_config(
        schemes=["fedavg", "codedfedl"],
        training__rounds=0,
        training__total_time_s=1.0,
        options__codedfedl={"deadline": "free"},
        coding__coded_samples=1,
        learning_rate__scale=scale,
    )
    with pytest.raises(InputError, match=r"codedfedl|deadline = 'free'"):
        run(config, callbacks=(NeverTrain(),))


def test_a_total_time_shorter_than_a_round_is_refused() -> None:
    with pytest.raises(
        InputError, match=r"training.total_time_s = 0.5 is shorter than one round of fedavg \(1 s\): raise"
    ):
        run(small_config(training__rounds=0, training__total_time_s=0.5), callbacks=(NeverTrain(),))


@pytest.mark.slow
def test_a_run_is_a_sweep_of_one_configuration() -> None:
    """Up to what rounding can do in float32 in 12 rounds of 5 steps, with sums over 30 features and at most 236 rows."""
    limit = 12 * 5 * (30 + 236) * float(np.finfo(np.float32).eps)
    for changes in ({}, {"learning_rate__scale": "grid", "learning_rate__grid": [0.2, 0.4, 1e4]}):
        config = small_config(schemes=["fedavg", "scfl", "dp-cfl", "codedfedl"], **changes)
        ours, (theirs,) = run(config), sweep([config])
        assert ours.remarks == theirs.remarks == ()
        for a, b in zip(ours.results, theirs.results, strict=True):
            assert (a.scheme, a.scale, a.status, a.message) == (b.scheme, b.scale, b.status, b.message)
            np.testing.assert_allclose(a.model, b.model, rtol=0, atol=limit * np.abs(b.model).max())
            assert [point.round for point in a.curve] == [point.round for point in b.curve]
            assert a.final.loss == pytest.approx(b.final.loss, rel=limit)
            assert a.final.everything_charged_s == b.final.everything_charged_s


@pytest.mark.parametrize("how", ["run", "sweep"])
def test_the_work_of_the_devices_is_planned_once(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    planned: list[str] = []
    for rule in (LocalSGD, Idle, AllocatedGradient):

        def counting(self: Any, *args: Any, plan: Any = rule.plan, **options: Any) -> Any:
            planned.append(type(self).__name__)
            return plan(self, *args, **options)

        monkeypatch.setattr(rule, "plan", counting)
    config = small_config(schemes=["fedavg", "cfl-fb", "codedfedl", "dp-cfl", "scfl"])
    if how == "run":
        run(config)
    else:
        sweep([config, config])
    assert sorted(planned) == ["AllocatedGradient", "AllocatedGradient", "Idle", "LocalSGD", "LocalSGD"]


@pytest.mark.slow
def test_a_run_resumed_on_another_backend_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.training.run._checkpoint.backend", lambda: "abacus")
    stopped = run_in(tmp_path / "parts", stop_after=15)
    assert stopped.remarks == ()
    monkeypatch.undo()
    monkeypatch.setattr("codedfl.plotting._curves.draw_curves", lambda *_, **__: b"a picture")
    resumed = run_in(tmp_path / "parts")
    assert [remark.split(":")[0] for remark in resumed.remarks] == [
        f"{title} was begun on the abacus backend and resumed on {backend()}" for title in ("FedAvg", "SCFL")
    ]
    assert all("differs in rounding" in remark for remark in resumed.remarks)
    run_in(tmp_path / "same", stop_after=15)
    assert run_in(tmp_path / "same").remarks == (), "on the same backend there is nothing to say"


def test_the_threads_of_an_experiment_may_be_used_again() -> None:
    experiment = build_experiment(small_config(training__workers=3))
    before = threading.active_count()
    first, second = (run(experiment.config, experiment=experiment) for _ in range(2))
    assert curves_csv(first) == curves_csv(second)
    assert threading.active_count() == before, "none is left"


@pytest.mark.slow
def test_a_chosen_step_that_diverges_all_the_same_is_given_up_for_a_smaller_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With the look ahead blinded, and a search too short to see what is coming."""
    monkeypatch.setattr("codedfl.experiment._family.unstable_steps", lambda *_: set())
    grid = {
        "learning_rate__scale": "grid",
        "learning_rate__grid": [0.1, 0.4, 20.0],
        "learning_rate__tuning_share": 0.01,
    }
    choice = StepSizeChoice(20.0, tuple(Trial(scale, scale, 0.1) for scale in (0.1, 0.4, 20.0)))
    folder = RunFolder.create(tmp_path / "run", small_config(schemes=["fedavg"], training__rounds=40, **grid))
    folder.keep_step_sizes({"fedavg": choice})
    result = run(folder.config, folder=folder)["fedavg"]
    assert (result.status, result.progress.back_offs) == ("completed", 1)
    assert result.learning_rate.initial == pytest.approx(0.4 / result.prepared.setting.gram.smoothness)
    assert "backed off to" in result.message
    assert result.final.loss < result.curve[0].loss


SLOW_SECOND_SCHEME = """
import time
from codedfl.cli import main
from codedfl.training import Checkpoint

write = Checkpoint.on_round

def on_round(self, progress):
    self.every_s = 0.0
    write(self, progress)
    if self.path.stem == "scfl":
        time.sleep(0.05)

Checkpoint.on_round = on_round
main()
"""
"""The command line, with a checkpoint after every round and a second scheme that takes its time."""

MANY_ROUNDS = "200"


def start_and_signal(out: Path, number: signal.Signals) -> subprocess.CompletedProcess[str]:
    """Start a run, and send the signal in the middle of its second scheme."""
    command = [sys.executable, "-c", SLOW_SECOND_SCHEME, "run", *CLI_SMALL, "--rounds", MANY_ROUNDS, "--out", str(out)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 120
        while not (out / "checkpoints/scfl.npz").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, number)
        output, errors = process.communicate(timeout=60)
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT], ids=lambda number: number.name)
def test_a_killed_run_resumes_bit_for_bit(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    run_in(tmp_path / "whole", training__rounds=int(MANY_ROUNDS))
    ended = start_and_signal(tmp_path / "parts", number)
    if number == signal.SIGKILL:
        assert ended.returncode == -signal.SIGKILL
        assert not (tmp_path / "parts/curves.csv").exists()
    else:
        assert ended.returncode == 130
        assert "Traceback" not in ended.stderr
        assert f"stopped early; continue with: codedfl run --resume --out {tmp_path / 'parts'}\n" in ended.stdout
        summary = json.loads((tmp_path / "parts/summary.json").read_text())
        assert [scheme["status"] for scheme in summary["schemes"]] == ["completed", "interrupted"]
        assert 0 < summary["schemes"][1]["rounds"] < int(MANY_ROUNDS)
        whole = (tmp_path / "whole/curves.csv").read_text()
        assert whole.startswith((tmp_path / "parts/curves.csv").read_text())
    assert Cli(monkeypatch, capsys)("run", "--resume", "--out", str(tmp_path / "parts")).code == 0
    assert_same_results(tmp_path / "parts", tmp_path / "whole")
