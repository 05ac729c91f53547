from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import Cli

SMALL = ("plan", "--scheme", "fedavg", "--scheme", "momentum", "--scheme", "fed3r", "--set", "features.dimension=60")


@pytest.mark.slow
def test_tables_and_reasons(cli: Cli) -> None:
    result = cli(*SMALL)
    words = " ".join(result.out.split())
    for expected in (
        "plan: ",
        "upload: ",
        "privacy of the upload: ",
        "held-out rows",
        "not Momentum: ",
        "not FedAvg: ",
    ):
        assert expected in words
    table = [line for line in result.out.splitlines() if not line.startswith(("plan:", "upload:", "not ", "rounds:"))]
    assert max(map(len, table)) <= 80
    assert not list(Path().iterdir()), "it only prints"


def test_json(cli: Cli) -> None:
    plan = json.loads(cli(*SMALL, "--within", "1", "--json").out)
    assert plan["target"] == {"within": 1.0, "time_s": None}
    assert {each["scheme"] for each in plan["schemes"]} == {"fedavg", "momentum", "fed3r"}
    chosen = next(each for each in plan["schemes"] if each["scheme"] == plan["chosen"])
    assert chosen["low_s"] <= chosen["time_s"] <= (chosen["high_s"] or float("inf"))


@pytest.mark.slow
def test_a_plan_can_be_run_and_is_held_against_the_outcome(cli: Cli) -> None:
    cli("plan", "--scheme", "momentum", "--set", "features.dimension=60", "--out", "plan.toml")
    result = cli("run", "--plan", "plan.toml", "--out", "here")
    assert "predicted: within 0.5 points after" in result.out
    assert "measured: " in result.out
    summary = json.loads(cli("run", "--plan", "plan.toml", "--out", "there", "--json").out)
    assert summary["plan"]["promise"]["scheme"] == "momentum"
    assert summary["plan"]["measured_s"] is None or summary["plan"]["measured_s"] > 0
    cli("run", "plan.toml", "--out", "as-a-configuration", "--rounds", "3")


@pytest.mark.slow
def test_closest_by_a_time(cli: Cli) -> None:
    result = cli(*SMALL, "--time", "30")
    assert "closest to the optimum after 30 s" in result.out
    assert "by then" in result.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("plan", "--within", "0"), "--within = 0"),
        (("plan", "--time", "-1"), "--time = -1"),
        (("plan", "--time", "5", "--within", "1"), "exclude each other"),
        (("plan", "--out", "none/plan.toml"), "--out"),
        (("plan", "--scheme", "sclf"), "there is no 'sclf'"),
        (("run", "--plan", "none.toml"), "cannot be read"),
        (("run", "--plan", "none.toml", "--resume"), "only one of them"),
    ],
)
def test_refusals(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    cli(*arguments).assert_refused(words)
