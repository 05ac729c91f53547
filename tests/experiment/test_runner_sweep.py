from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import codedfl
from codedfl.errors import InputError
from codedfl.experiment import (
    Comparison,
    Config,
    Experiment,
    RunFolder,
    build_experiment,
    run,
    summarise,
    sweep,
    tune,
)
from codedfl.training import validation_setting
from tests.support import Diary, StopAfter, small_config

SCHEMES = ["fedavg", "scfl", "dp-cfl"]


def assert_same(ours: Comparison, theirs: Comparison) -> None:
    """Compare up to what rounding can do in float32 in 12 rounds of 5 steps, with sums over 30 features and at most 236 rows."""
    limit = 12 * 5 * (30 + 236) * float(np.finfo(np.float32).eps)
    assert ours.config == theirs.config
    assert [o.scheme.name for o in ours.results] == [o.scheme.name for o in theirs.results]
    assert [o.scale for o in ours.results] == [o.scale for o in theirs.results]
    for a, b in zip(ours.results, theirs.results, strict=True):
        assert (a.status, a.message) == (b.status, b.message)
        np.testing.assert_allclose(a.model, b.model, rtol=0, atol=limit * np.abs(b.model).max())
        assert [point.round for point in a.curve] == [point.round for point in b.curve]
        assert a.final.loss == pytest.approx(b.final.loss, rel=limit)
        assert a.final.bytes_up == b.final.bytes_up
        assert a.prepared.setting is ours.setting
    assert np.array_equal(ours.setting.code.noise_variance, theirs.setting.code.noise_variance)


def check(*configs: Config) -> list[Comparison]:
    comparisons = sweep(configs)
    for comparison, config in zip(comparisons, configs, strict=True):
        assert_same(comparison, run(config))
    return comparisons


def test_noise_levels() -> None:
    quiet, noisy, none = check(
        *(small_config(schemes=[*SCHEMES, "ccfl"], coding__noise_variance=level) for level in (0.1, 5.0, 0.0))
    )
    for name in ("fedavg", "ccfl"):  # no coded data, and a sketch without noise
        assert quiet[name].progress is noisy[name].progress is none[name].progress, "trained once"
    assert quiet["scfl"].final.loss < noisy["scfl"].final.loss
    assert quiet.setting.federation is noisy.setting.federation
    assert quiet.setting.gram is noisy.setting.gram
    assert quiet["scfl"].prepared.held is quiet["dp-cfl"].prepared.held


def test_draws_of_the_coded_data() -> None:
    first, second, again = check(*(small_config(schemes=SCHEMES, coding__draw=draw) for draw in (0, 1, 1)))
    assert not np.array_equal(first["scfl"].prepared.held[0].features, second["scfl"].prepared.held[0].features)
    assert first["fedavg"].progress is second["fedavg"].progress
    assert second["scfl"].progress is again["scfl"].progress


@pytest.mark.parametrize("encoder", ["direct", "gram"])
def test_a_draw_changes_the_coded_data_and_nothing_else(encoder: str) -> None:
    runs = [run(small_config(schemes=SCHEMES, coding__draw=draw, coding__encoder=encoder)) for draw in (0, 3)]
    assert np.array_equal(runs[0]["fedavg"].model, runs[1]["fedavg"].model)
    assert runs[0]["scfl"].final.mean_arrivals == runs[1]["scfl"].final.mean_arrivals
    assert not np.array_equal(runs[0]["scfl"].prepared.held[0].features, runs[1]["scfl"].prepared.held[0].features)
    assert not np.array_equal(runs[0]["scfl"].model, runs[1]["scfl"].model)


def test_step_sizes_and_options() -> None:
    check(
        small_config(learning_rate__scale=0.2),
        small_config(learning_rate__scale=0.4, training__model_norm_bound=2.0),
        small_config(options__scfl={"device_weight": 0.3}, training__rounds=9),
        small_config(options__scfl={"batch": 8}, training__server_batch=20, training__evaluations=3),
        small_config(training__initial_std=0.1, training__rounds=0, training__total_time_s=7.5),
    )


@pytest.mark.slow
def test_every_scheme_with_incentives_and_code() -> None:
    schemes = ["fedavg", "cfl-fb", "codedfedl", "dp-cfl", "scfl-fixed", "scfl"]
    first, second, third = check(
        small_config(schemes=schemes),
        small_config(schemes=schemes, incentive__mechanism="contract", incentive__total_reward=50.0),
        small_config(
            schemes=schemes, coding__coded_samples=40, coding__clip_norm=0.8, coding__label_noise_variance=0.1
        ),
    )
    for scheme in ("fedavg", "cfl-fb", "codedfedl"):
        assert first[scheme].progress is second[scheme].progress, "of which noise plays no part"
    assert first["codedfedl"].progress is not third["codedfedl"].progress


@pytest.mark.slow
def test_step_sizes_from_a_grid() -> None:
    tuned: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [1e-6, 0.3, 1e6]}
    quiet, noisy, fixed = check(
        small_config(schemes=SCHEMES, **tuned),
        small_config(schemes=SCHEMES, coding__noise_variance=3.0, **tuned),
        small_config(schemes=["scfl"]),
    )
    assert all(result.choice is not None and result.choice.scale == 0.3 for result in quiet.results)
    assert len({id(result.choice) for result in (*quiet.results, *noisy.results)}) == 5, "FedAvg was tuned once"
    assert fixed.results[0].choice is None


def test_other_data_is_loaded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[Config] = []

    def build(config: Config, *, like: Experiment | None = None) -> Experiment:
        built.append(config)
        return build_experiment(config, like=like)

    monkeypatch.setattr(import_module("codedfl.experiment._family"), "build_experiment", build)
    configs = [
        small_config(seed=seed, coding__noise_variance=v) for seed, v in ((0, 0.1), (1, 0.1), (0, 2.0), (1, 2.0))
    ]
    comparisons = sweep([*configs, small_config(training__local_steps=2)])
    assert [comparison.config for comparison in comparisons] == [*configs, small_config(training__local_steps=2)]
    assert built == [configs[0], configs[1], small_config(training__local_steps=2)]
    assert_same(comparisons[3], run(configs[3]))
    assert_same(comparisons[4], run(small_config(training__local_steps=2)))


def test_data_that_is_at_hand_is_not_loaded_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grid: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [0.2, 0.4]}
    configs = [small_config(**grid), small_config(training__local_steps=2, fleet__straggler_ratio=0.5, **grid)]
    expected = sweep(configs)
    first = build_experiment(small_config(coding__noise_variance=3.0))
    monkeypatch.setattr("codedfl.experiment._build._build", None)
    again = sweep(configs, like=first)
    for comparison, other in zip(again, expected, strict=True):
        assert_same(comparison, other)
        assert comparison.setting.federation is first.setting.federation
        assert [result.choice for result in comparison.results] == [result.choice for result in other.results]
    held_out = validation_setting(first.setting, small_config().learning_rate.validation_fraction)
    assert validation_setting(again[0].setting, 0.15).federation is held_out.federation
    assert validation_setting(again[1].setting, 0.15).gram is held_out.gram


def test_step_sizes_are_chosen_without_training_with_them() -> None:
    grid: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [0.2, 0.4]}
    configs = [small_config(**grid), small_config(training__local_steps=2, **grid), small_config()]
    expected = [
        {result.scheme.name: result.choice for result in comparison.results if result.choice}
        for comparison in sweep(configs)
    ]
    assert tune(configs) == expected
    assert expected[0]
    assert not expected[2]


def test_a_run_that_diverges_leaves_the_others_alone() -> None:
    good, bad = check(small_config(), small_config(coding__noise_variance=1e6))
    assert (good["scfl"].status, bad["scfl"].status, bad["fedavg"].status) == ("completed", "diverged", "completed")


@pytest.mark.parametrize("tuning", [False, True])
def test_an_interrupted_sweep_keeps_what_it_has(tuning: bool) -> None:
    changes = {"learning_rate__scale": "grid"} if tuning else {}
    configs = [small_config(coding__noise_variance=v, **changes) for v in (0.1, 1.0)] + [small_config(seed=1)]
    comparisons = sweep(configs, callbacks=(StopAfter(7),))
    assert all(comparison.interrupted for comparison in comparisons)
    assert [len(comparison.results) for comparison in comparisons] == ([0, 0, 0] if tuning else [2, 2, 0])


def test_each_run_is_reported_once() -> None:
    diary = Diary()
    grid: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [0.2, 0.4]}
    sweep([small_config(coding__noise_variance=v, **grid) for v in (0.1, 1.0)], progress=diary)
    runs = ["FedAvg", "SCFL", "SCFL"]
    sizes, *said = diary.said
    assert sizes.startswith("1258 samples on 6 devices, 30 features; centralised accuracy 0.")
    assert [line.split(" / L")[0].rstrip("0123456789.") for line in said[:3]] == [
        f"{name}: step size " for name in runs
    ]
    assert [line.split(",")[0] for line in said[3:]] == [f"{name}: completed" for name in runs]
    assert [task for _, task, _, _ in diary.entries if task.startswith("preparing ")] == [
        *(f"preparing the search for the step size of {name}" for name in runs),
        *(f"preparing {name}" for name in runs),
    ]
    assert diary.latest["3 step sizes"] == (3 * 2 * 6, 3 * 2 * 6), "two steps of the grid, half of 12 rounds each"
    assert diary.closed == ["3 step sizes", *runs]


def test_a_scheme_that_cannot_run_is_refused_before_any_other_trains() -> None:
    diary = Diary()
    with pytest.raises(InputError, match="shorter than one round"):
        sweep([small_config(), small_config(training__rounds=0, training__total_time_s=0.5)], progress=diary)
    assert diary.tasks == ["loading digits"]
    assert diary.said == []


@pytest.mark.slow
def test_results_can_be_summarised_and_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.plotting._curves.draw_curves", lambda *_, **__: b"a picture")
    comparison = codedfl.sweep([small_config(), small_config(coding__noise_variance=1.0)])[1]
    assert json.loads(json.dumps(summarise(comparison)))["schemes"][1]["scheme"] == "scfl"
    RunFolder.create(tmp_path / "run", comparison.config).write_results(comparison)
    assert (tmp_path / "run/models/scfl.safetensors").exists()
    assert sweep([]) == []


def test_configurations_that_ask_other_cohorts_or_score_other_rows_share_no_run() -> None:
    configs = [
        small_config(schemes=["fedavg"], **changes)
        for changes in ({}, {"training__cohort": 2}, {"training__evaluation_samples": 50})
    ]
    for config, swept in zip(configs, sweep(configs), strict=True):
        assert swept["fedavg"].final == run(config)["fedavg"].final
