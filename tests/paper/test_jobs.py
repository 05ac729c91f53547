from __future__ import annotations

import json
from collections.abc import Hashable
from itertools import groupby
from typing import Any

import numpy as np
import pytest

import codedfl
from codedfl.experiment import Config, build_experiment, family_key, tune
from codedfl.paper import FIGURES, Scope
from codedfl.paper import _attack as attack
from codedfl.paper import _limits as limits
from codedfl.paper._executor import content_key
from codedfl.paper._jobs import RUNS_PER_JOB, TRAIN, TUNE, Job, _data, execute, plan_jobs, read_choice
from codedfl.paper._runs import RunOutcome, with_scale, with_seed
from codedfl.paper._setups import DIGITS, changed
from codedfl.parallel import one_blas_thread
from codedfl.schemes import make_scheme
from tests.paper.made_up import small_run

ROUNDING = 5 * 5 * (30 + 236) * float(np.finfo(np.float32).eps)
"""What rounding can do in five rounds of five steps, with sums over 30 features and at most 236 rows."""


def keyed(configs: list[Config], kind: str = "train") -> dict[str, Config]:
    return {content_key(kind, config): config for config in configs}


def all_runs(scope: Scope) -> dict[str, Config]:
    """Return what all figures ask for, by key."""
    runs = [run for figure in FIGURES.values() for run in figure.runs(scope)]
    return keyed([with_seed(run.config, seed) for run in runs for seed in scope.seeds])


def small_configs() -> list[Config]:
    runs = [small_run("SCFL"), small_run("SCFL", coding__noise_variance=1.0), small_run("FedAvg")]
    return [with_seed(run.config, 0) for run in runs]


@pytest.fixture(scope="module", params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["quick", "full"])
def planned(request: pytest.FixtureRequest) -> tuple[dict[str, Config], list[Job]]:
    runs = all_runs(Scope(quick=request.param, seeds=(0, 1)))
    return runs, plan_jobs(TRAIN, runs)


Planned = tuple[dict[str, Config], list[Job]]


def test_a_plan_has_every_run_once(planned: Planned) -> None:
    runs, jobs = planned
    placed = [(key, config) for job in jobs for key, config in job.runs.items()]
    assert len(placed) == len(runs) > 50
    assert dict(placed) == runs


def test_jobs_are_small_and_full_enough(planned: Planned) -> None:
    runs, jobs = planned
    sizes = [len(job.runs) for job in jobs]
    assert 1 <= min(sizes) <= max(sizes) <= RUNS_PER_JOB
    families = [family_key(config) for config in runs.values()]
    fewest = sum(-(-families.count(family) // RUNS_PER_JOB) for family in set(families))
    assert len(jobs) == fewest


def test_the_runs_of_a_job_can_advance_in_lock_step(planned: Planned) -> None:
    for job in planned[1]:
        assert len({family_key(config) for config in job.runs.values()}) == 1


def data_of(job: Job) -> Hashable:
    first = next(iter(job.runs.values()))
    return first.seed, first.data.model_dump_json(), first.features.model_dump_json()


def test_jobs_on_the_same_data_come_one_after_the_other(planned: Planned) -> None:
    data = [data_of(job) for job in planned[1]]
    assert len(set(data)) > 1
    assert [key for key, _ in groupby(data)] == list(dict.fromkeys(data))


def test_on_the_same_data_longer_jobs_come_first(planned: Planned) -> None:
    jobs = planned[1]
    for _, group in groupby(jobs, data_of):
        costs = [job.cost for job in group]
        assert costs == sorted(costs, reverse=True)


def test_nothing_is_planned_for_nothing() -> None:
    assert plan_jobs(TRAIN, {}) == []


def test_a_job_that_tunes_costs_the_share_of_the_run_for_every_step_size() -> None:
    config = small_run(learning_rate__tuning_share=0.25, learning_rate__grid=(0.1, 0.2, 0.4)).config
    train, search = (Job(task, {"a": config, "b": config}) for task in (TRAIN, TUNE))
    assert search.cost == pytest.approx(0.75 * train.cost)
    longer = Job(TRAIN, {"a": small_run(training__total_time_s=50.0).config})
    assert longer.cost == pytest.approx(10 * train.cost / 2)
    assert train.title == "train 2 on digits, seed 0"


def test_a_job_can_be_sent_as_json() -> None:
    configs = keyed(small_configs())
    plain = Job(TRAIN, configs).plain_runs()
    assert json.loads(json.dumps(plain)) == plain
    assert list(plain) == list(configs)


def train(configs: list[Config]) -> list[RunOutcome]:
    """Execute a job as another process would, with everything passed on as JSON."""
    plain = json.loads(json.dumps(Job(TRAIN, keyed(configs)).plain_runs()))
    found = json.loads(json.dumps(execute(TRAIN, plain, "")))
    assert list(found) == list(keyed(configs))
    return [RunOutcome.from_dict(values) for values in found.values()]


def test_a_training_job_gives_what_each_run_gives_alone() -> None:
    configs = [with_scale(config, 0.5) for config in small_configs()]
    records = train(configs)
    assert len({kept.at().gap for kept in records}) == 3
    for config, kept in zip(configs, records, strict=True):
        alone = codedfl.run(config)
        result = alone[config.schemes[0]]
        assert kept.config == config.model_dump(mode="json")
        assert kept.status == result.status == "completed"
        assert kept.accuracy() == kept.at().accuracy == result.final.score
        assert kept.at().last_accuracy == result.final.last_score
        assert [point.round for point in kept.curve] == [point.round for point in result.curve]
        assert [point.time_s for point in kept.curve] == [point.simulated_time_s for point in result.curve]
        assert [point.charged_s for point in kept.curve] == [point.everything_charged_s for point in result.curve]
        assert [p.gap for p in kept.curve] == pytest.approx([p.gap for p in result.curve], rel=ROUNDING)
        assert kept.coded_bytes + kept.training_bytes == pytest.approx(result.final.bytes_up)
        assert (kept.dimension, kept.outputs, kept.scale) == (30, 10, 0.5)
        assert kept.centralised == (alone.evaluator.reference.score if alone.evaluator.reference else None)
    assert records[0].coded_bytes > 0
    assert records[2].coded_bytes == 0, "FedAvg has no coded upload"


def test_the_expected_share_of_stragglers_is_the_one_asked_for() -> None:
    (kept,) = train([with_scale(small_run("FedAvg", fleet__straggler_ratio=0.4).config, 0.5)])
    assert kept.stragglers == pytest.approx(0.4, abs=1e-3)


def test_a_diverging_run_is_recorded_as_such_and_leaves_the_others_alone() -> None:
    good, bad = (small_run(coding__noise_variance=noise, training__total_time_s=12.0) for noise in (0.1, 1e6))
    records = train([with_scale(run.config, 0.5) for run in (good, bad)])
    assert [kept.status for kept in records] == ["completed", "diverged"]
    assert records[1].message
    assert records[1].accuracy() == 0.1 < records[0].accuracy()


def test_a_tuning_job_chooses_what_tune_chooses() -> None:
    configs = keyed(small_configs(), "tune")
    found = json.loads(json.dumps(execute(TUNE, Job(TUNE, configs).plain_runs(), "")))
    with one_blas_thread():
        expected = [choice for own in tune(list(configs.values())) for choice in own.values()]
    assert [read_choice(found[key]) for key in configs] == expected
    assert [[trial.scale for trial in choice.trials] for choice in expected] == [[0.25, 0.5]] * 3


def test_jobs_on_the_same_data_load_it_once() -> None:
    _data.cache_clear()
    for steps in (5, 2):
        config = with_scale(small_run(training__local_steps=steps).config, 0.5)
        execute(TRAIN, Job(TRAIN, {"a": config}).plain_runs(), "")
    assert (_data.cache_info().misses, _data.cache_info().hits) == (1, 1)
    execute(TRAIN, Job(TRAIN, {"a": with_seed(config, 1)}).plain_runs(), "")
    assert _data.cache_info().misses == 2


def test_a_job_looks_for_data_in_the_folder_given() -> None:
    config = changed(DIGITS.changed(data__dataset="mnist", learning_rate__scale=0.5), {"data.data_dir": "/not/this"})
    with pytest.raises(codedfl.InputError, match="/nowhere/mnist"):
        execute(TRAIN, Job(TRAIN, {"a": config}).plain_runs(), "/nowhere")


def test_an_attack_is_measured_with_and_without_noise() -> None:
    changes: dict[str, Any] = {"data__devices": 6, "features__dimension": 30, "coding__coded_samples": 400}
    configs = {str(noise): DIGITS.changed(coding__noise_variance=noise, **changes) for noise in (0.0, 20.0)}
    found = execute(attack.MEASUREMENT, Job(attack.MEASUREMENT, configs).plain_runs(), "")
    assert [row["series"] for row in found["0.0"]] == ["no noise"] * 5
    assert [row["series"] for row in found["20.0"]] == ["with noise"] * 5
    assert [row["x"] for row in found["0.0"]] == [0.05, 0.25, 0.5, 0.75, 0.95]
    for quiet, noisy in zip(found["0.0"], found["20.0"], strict=True):
        assert (quiet["panel"], quiet["seed"], quiet["baseline"]) == ("digits", 0, noisy["baseline"])
        assert (quiet["feasible"], quiet["oracle"]) != (noisy["feasible"], noisy["oracle"])
    assert found["0.0"][0]["oracle"] < 0.5 * found["20.0"][0]["oracle"], "where there is most left to find out"


def test_limits_are_measured_where_the_mean_update_vanishes() -> None:
    """Against the update itself: all rows of devices, weighted by arrival, and the coded data that the run would draw."""
    changes: dict[str, Any] = {"data__devices": 6, "features__dimension": 20, "coding__coded_samples": 400}
    for name in ("scfl", "dp-cfl", "fedavg"):
        config = DIGITS.changed(schemes=[name], **changes)
        ((found,),) = execute(limits.MEASUREMENT, Job(limits.MEASUREMENT, {"a": config}).plain_runs(), "").values()
        setting = build_experiment(config).setting
        prepared = make_scheme(name).prepare(setting)
        p = prepared.device.arrivals.probability if name == "fedavg" else np.full(6, {"scfl": 0.5, "dp-cfl": 0.0}[name])
        hessian, target = np.zeros((20, 20)), np.zeros((20, 10))
        for device in range(6):
            X, Y = (matrix.astype(float) for matrix in setting.federation.device(device))
            hessian += p[device] * X.T @ X
            target += p[device] * X.T @ Y
        if name != "fedavg":
            (coded,) = prepared.held
            X, Y, share = coded.features.astype(float), coded.labels.astype(float), {"scfl": 0.5, "dp-cfl": 1.0}[name]
            made_up_for = coded.noise_variance * np.eye(20) if name == "scfl" else 0.0
            hessian += share * (X.T @ X / 400 - made_up_for)
            target += share * X.T @ Y / 400
        W = np.linalg.solve(hessian, target)
        test_X, test_Y = setting.federation.test_features, setting.federation.test_labels
        assert found["limit_accuracy"] == np.mean((test_X @ W).argmax(1) == test_Y.argmax(1))
        X, Y = (getattr(setting.federation, part).astype(float) for part in ("features", "labels"))
        loss, least = np.sum((X @ W - Y) ** 2), np.sum((X @ np.linalg.lstsq(X, Y)[0] - Y) ** 2)
        assert found["excess_loss"] == pytest.approx(loss / least - 1, rel=1e-5)
        assert found["least_eigenvalue"] == pytest.approx(np.linalg.eigvalsh(hessian)[0], rel=1e-5)
        assert found["smoothness"] == pytest.approx(np.linalg.eigvalsh(X.T @ X)[-1], rel=1e-6)
        assert (found["guessing"], found["steps"]) == (0.1, 5 * 100)
