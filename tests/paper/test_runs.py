from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from codedfl.experiment import Config
from codedfl.paper._executor import content_key
from codedfl.paper._runs import SERIES, CurvePoint, RunOutcome, run_of, with_scale, with_seed
from codedfl.paper._setups import DIGITS, MNIST
from tests.paper.made_up import record

OTHER = "something else"


def leaves(config: Config) -> list[tuple[str, ...]]:
    """Return the way to every value of a configuration, options of schemes included."""
    found: list[tuple[str, ...]] = []

    def walk(values: dict[str, Any], way: tuple[str, ...]) -> None:
        for name, value in values.items():
            if isinstance(value, dict):
                walk(value, (*way, name))
            else:
                found.append((*way, name))

    walk(config.model_dump(), ())
    return found


def with_other(config: Config, way: tuple[str, ...]) -> Config:
    """Return a configuration that differs in one value, unchecked."""
    if way[0] == "options":
        scheme, option = way[1:]
        options = {**config.options, scheme: {**config.options[scheme], option: OTHER}}
        return config.model_copy(update={"options": options})
    if len(way) == 1:
        return config.model_copy(update={way[0]: OTHER})
    section, name = way
    return config.model_copy(update={section: getattr(config, section).model_copy(update={name: OTHER})})


@pytest.mark.parametrize("series", ["FedAvg", "CodedFedL, no noise"])
def test_what_has_no_noise_is_one_run_at_every_noise_level(series: str) -> None:
    keys = {content_key("train", run_of(MNIST, series, coding__noise_variance=v).config) for v in (0.0, 0.25, 10.0)}
    assert len(keys) == 1


@pytest.mark.parametrize("series", ["SCFL", "SCFL (b=32)", "DP-CFL", "CodedFedL"])
def test_what_has_noise_is_another_run_at_every_noise_level(series: str) -> None:
    keys = {content_key("train", run_of(MNIST, series, coding__noise_variance=v).config) for v in (0.0, 0.25, 10.0)}
    assert len(keys) == 3


def test_lines_of_figures_are_different_runs() -> None:
    assert len({content_key("train", run_of(DIGITS, series).config) for series in SERIES}) == len(SERIES)


@pytest.mark.parametrize(
    ("series", "scheme", "options"),
    [
        ("SCFL", "scfl", {"batch": "adaptive"}),
        ("SCFL (b=32)", "scfl-fixed", {"batch": 32}),
        ("FedAvg", "fedavg", {}),
        ("DP-CFL", "dp-cfl", {}),
        ("CodedFedL", "codedfedl", {"noise": True}),
        ("CodedFedL, no noise", "codedfedl", {"noise": False}),
    ],
)
def test_a_line_is_one_scheme_with_its_options(series: str, scheme: str, options: dict[str, Any]) -> None:
    run = run_of(DIGITS, series, 3.0, read_at_s=7.0, training__rounds=3)
    assert run.config.schemes == (scheme,)
    own = run.config.options.get(scheme, {})
    assert {name: own[name] for name in options} == options
    assert run.config.training.rounds == 3
    assert (run.panel, run.series, run.x, run.read_at_s) == ("digits", series, 3.0, 7.0)


@pytest.mark.parametrize("way", leaves(run_of(DIGITS, "SCFL").config), ids=".".join)
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")
def test_the_content_key_depends_on_everything_that_enters_results(way: tuple[str, ...]) -> None:
    config = run_of(DIGITS, "SCFL").config
    same = content_key("train", with_other(config, way)) == content_key("train", config)
    assert same == (way in {("data", "data_dir"), ("training", "workers")})


def test_the_content_key_depends_on_what_is_done() -> None:
    config = DIGITS.config
    assert len({content_key(kind, config) for kind in ("tune", "train", "attack")}) == 3
    assert content_key("train", config) == content_key("train", DIGITS.changed())


def test_the_content_key_of_an_older_format_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    now = content_key("train", DIGITS.config)
    monkeypatch.setattr("codedfl.paper._executor.FORMAT", 10_000)
    assert content_key("train", DIGITS.config) != now


def test_seed_and_step_size_of_a_configuration_are_set() -> None:
    config = DIGITS.config
    assert with_seed(config, 5).seed == 5
    assert with_scale(config, 0.3).learning_rate.scale == 0.3
    assert with_scale(with_seed(config, config.seed), 0.3).learning_rate.grid == config.learning_rate.grid


def test_runs_at_different_places_are_different() -> None:
    one, same, other = run_of(DIGITS, "SCFL", 1.0), run_of(DIGITS, "SCFL", 1.0), run_of(DIGITS, "SCFL", 2.0)
    assert {one: "a", same: "b", other: "c"} == {one: "b", other: "c"}
    assert run_of(DIGITS, "SCFL", 1.0, training__rounds=2) != one


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf, 1 / 3])
def test_a_record_survives_json(strange: float) -> None:
    accuracy = strange if math.isnan(strange) else 0.25
    point = CurvePoint(4, 40.0, 43.0, accuracy, accuracy, strange)
    kept = record(
        0.9,
        status="diverged",
        centralised=strange,
        config=with_scale(DIGITS.config, 0.5).model_dump(mode="json"),
        curve=(point,),
    )
    again = RunOutcome.from_dict(json.loads(json.dumps(kept.as_dict())))
    assert repr(again) == repr(kept)
    assert isinstance(again.curve[0], CurvePoint)


def test_the_accuracy_of_a_record_is_that_of_its_last_evaluation() -> None:
    assert record(0.9).accuracy() == 0.9
    assert record(0.9).scale == 0.5


@pytest.mark.parametrize("outputs", [2, 10])
def test_what_has_diverged_guesses(outputs: int) -> None:
    assert record(0.9, status="diverged", outputs=outputs).accuracy() == 1 / outputs
    assert record(math.nan, outputs=outputs).accuracy() == 1 / outputs


@pytest.mark.parametrize(
    ("time", "round_"), [(None, 4), (40.0, 4), (1e9, 4), (39.9, 3), (30.0 - 1e-9, 3), (10.0, 1), (9.9, 0), (0.0, 0)]
)
def test_at_a_time_counts_the_last_evaluation_before_it(time: float | None, round_: int) -> None:
    kept = record(0.9)
    shuffled = replace(kept, curve=kept.curve[::-1])
    assert kept.at(time) == shuffled.at(time) == kept.curve[round_]
    assert kept.accuracy(time) == kept.curve[round_].accuracy
