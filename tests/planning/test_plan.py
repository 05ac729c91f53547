from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.config import Config, load_config
from codedfl.errors import InputError
from codedfl.experiment import Experiment, build_experiment, privacy_of, run
from codedfl.planning import Outcome, Promise, Target, make_plan, outcome_of, plan_to_toml, read_promise
from codedfl.planning._forecast import Forecast, reason_against
from codedfl.schemes import SCHEMES, make_scheme
from tests.problems import make_federation
from tests.support import Diary

PAPERS_FLEET: dict[str, Any] = {"fleet.transmit_power_dbm": (15.0, 25.0)}


def config_of(*schemes: str, **changes: Any) -> Config:
    given = PAPERS_FLEET | {key.replace("__", "."): value for key, value in changes.items()}
    return load_config(overrides=given | ({"schemes": list(schemes)} if schemes else {}))


@pytest.mark.slow
def test_every_scheme_is_forecast_and_the_soonest_chosen() -> None:
    plan = make_plan(config_of())
    public = {name for name in SCHEMES if not make_scheme(name).private}
    assert {each.scheme for each in plan.forecasts} == public
    assert plan.choice is not None
    assert plan.choice.time_s == min(each.time_s for each in plan.forecasts if each.time_s is not None)
    assert plan.forecasts[0] is plan.choice
    assert [bool(each.reason) for each in plan.forecasts] == [False] + [True] * (len(public) - 1)
    assert plan.centralised == pytest.approx(0.96, abs=0.02)


@pytest.mark.slow
def test_costs_clock_and_privacy_are_exactly_those_of_a_run() -> None:
    names = ("fedavg", "codedfedl", "scfl", "ccfl", "one-shot", "fed3r")
    config = config_of(*names, training__rounds=2, learning_rate__scale=0.5, coding__clip_norm=1.0)
    plan, comparison = make_plan(config), run(config)
    for name in names:
        result, forecast = comparison[name], plan[name]
        assert forecast.preparation_total_s == pytest.approx(result.progress.ledger.preparation_s)
        assert forecast.upload_bytes == pytest.approx(float(result.progress.ledger.coded_bits.sum()) / 8)
        assert forecast.privacy == privacy_of(result, config.privacy.delta)
        if not result.scheme.one_shot:
            assert forecast.round_s == result.prepared.device.arrivals.duration_s
            assert forecast.arrivals == pytest.approx(float(result.prepared.device.arrivals.probability.sum()))


@pytest.mark.slow
def test_the_test_data_plays_no_part() -> None:
    config = config_of("fedavg", "one-shot")
    experiment = build_experiment(config)
    federation = experiment.setting.federation
    other = replace(federation, test_labels=federation.test_labels[::-1].copy())
    swapped = Experiment(config, replace(experiment.setting, federation=other), experiment.feature_map)
    assert make_plan(config, experiment=swapped).as_dict() == make_plan(config, experiment=experiment).as_dict()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["momentum", pytest.param("ccfl", marks=pytest.mark.slow)])
def test_a_planned_run_takes_about_as_long_as_predicted(name: str, tmp_path: Path) -> None:
    """Within the range that the plan gives, on the seed that the rule of CCFL was fitted to."""
    plan = make_plan(config_of(name))
    path = tmp_path / "plan.toml"
    path.write_text(plan_to_toml(plan))
    config, promise = load_config(path), read_promise(path)
    assert config == plan.planned_config()
    assert config.schemes == (name,)
    comparison = run(config)
    outcome = outcome_of(promise, comparison[name], comparison.evaluator)
    assert outcome.measured_s is not None
    assert outcome.in_interval


@pytest.mark.slow
def test_a_time_asks_who_is_closest_by_then() -> None:
    config = config_of("fedavg", "momentum", "codedfedl")
    plan = make_plan(config, Target(time_s=60.0))
    assert plan.chosen == "momentum"
    assert plan["codedfedl"].below_in_time is None
    assert plan["codedfedl"].reason == "preparation alone takes 124 s"
    assert plan["fedavg"].reason.endswith("points below by then")
    assert plan.planned_config().training.total_time_s == pytest.approx(60.0)


def test_strong_noise_is_recognised() -> None:
    plan = make_plan(config_of("scfl", "dp-cfl", "one-shot", coding__noise_variance=50.0))
    assert plan["scfl"].status == "runs away"
    assert "diverges at this noise" in plan["scfl"].reason
    assert plan["dp-cfl"].best_below > 10
    assert plan["one-shot"].best_below > 2
    assert plan.choice is not None
    assert plan.choice.time_s is None, "nothing gets there, so the closest is chosen"


def test_a_scheme_that_cannot_run_says_why() -> None:
    plan = make_plan(config_of("fedavg", "one-shot", coding__coded_samples=20))
    assert plan["one-shot"].status == "impossible"
    assert "coded" in plan["one-shot"].reason


def test_a_regression_is_planned_in_hundredths_of_r2() -> None:
    config = config_of("fedavg", "fed3r")
    experiment = build_experiment(config)
    federation = make_federation((60,) * 20, 8, task="regression", dtype=np.float32)
    federation = replace(federation, device_names=experiment.setting.federation.device_names)
    fleet = replace(experiment.setting.fleet, names=federation.device_names)
    setting = replace(experiment.setting, federation=federation, fleet=fleet)
    plan = make_plan(config, experiment=Experiment(config, setting, experiment.feature_map))
    assert plan.metric == "r2"
    assert 0.3 < plan.centralised < 1.0
    assert plan["fed3r"].best_below == pytest.approx(0.0, abs=1e-6)


def test_progress_is_reported() -> None:
    diary = Diary()
    make_plan(config_of("fedavg"), progress=diary)
    assert {"eigenvectors", "predicting"} <= set(diary.closed)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"learning_rate.decay_rounds": 5.0}, "learning_rate.decay_rounds = 5"),
        ({"training.model_norm_bound": 2.0}, "training.model_norm_bound = 2"),
        ({"training.initial_std": 1.0}, "training.initial_std = 1"),
        ({"features.dimension": 5000, "training.deadline_s": 1000.0}, "features.dimension = 5000"),
    ],
)
def test_what_cannot_be_planned_for_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        make_plan(load_config(overrides=changes))


@pytest.mark.parametrize(
    ("within", "time_s"), [(0.0, None), (101.0, None), (math.nan, None), (0.5, -1.0), (0.5, math.inf)]
)
def test_targets_out_of_range_are_refused(within: float, time_s: float | None) -> None:
    with pytest.raises(InputError):
        Target(within, time_s)


def test_a_file_without_a_prediction_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.toml"
    path.write_text("seed = 1\n")
    with pytest.raises(InputError, match="holds no prediction"):
        read_promise(path)
    with pytest.raises(InputError, match="cannot be read"):
        read_promise(tmp_path / "none.toml")


def test_outcomes() -> None:
    promise = Promise("scfl", 0.5, 100.0, 50.0, 200.0)
    assert Outcome(promise, 60.0).in_interval
    assert not Outcome(promise, 40.0).in_interval
    assert not Outcome(promise, 300.0).in_interval
    assert not Outcome(promise, None).in_interval
    assert Outcome(replace(promise, high_s=None), None).in_interval
    assert Outcome(Promise("scfl", 0.5, None, None, None), None).in_interval


@pytest.mark.parametrize(
    ("other", "words"),
    [
        (Forecast("a", "A", "impossible", reason="it cannot"), "it cannot"),
        (Forecast("a", "A", "falls short", best_below=1.234, end_below=1.25), "its limit is 1.23 points below"),
        (Forecast("a", "A", "falls short", best_below=1.2, end_below=3.0), "in the end 3.00"),
        (
            Forecast("a", "A", "reaches", time_s=90.0, rounds=80, step_size_scale=0.5, round_s=1.0, condition=2e3),
            "80 rounds",
        ),
        (Forecast("a", "A", "reaches", time_s=90.0), "takes 3 times as long"),
        (Forecast("a", "A", "runs away", stable=False), "no step size"),
    ],
)
def test_reasons(other: Forecast, words: str) -> None:
    assert words in reason_against(other, Forecast("b", "B", "reaches", time_s=30.0), Target())
