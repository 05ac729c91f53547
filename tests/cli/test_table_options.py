"""Options and messages for users' own tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import CLI_SMALL, Cli


def write(name: str = "wards.csv") -> None:
    rows = "".join(f"{row};{row % 7},5;{'ab'[row % 2]};{row % 3};{int(row % 5 > 1)}\n" for row in range(60))
    Path(name).write_text(f"id;dose;ward;site;ill\n{rows}")


ROLES = ("--target", "ill", "--device-column", "site", "--drop", "id", "--task", "classification")


@pytest.mark.parametrize("command", ["run", "audit", "theory", "plan"])
def test_the_roles_of_columns_have_options(cli: Cli, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    text = cli(command, "--help").out
    for option in ("--target", "--device-column", "--drop", "--task"):
        assert option in text


@pytest.mark.slow
def test_a_table_is_run_with_options_alone(cli: Cli) -> None:
    write()
    result = cli("run", "--dataset", "wards.csv", *ROLES, *CLI_SMALL, "--out", "r", "--json")
    assert result.code == 0, result.err
    summary = json.loads(result.out)
    assert summary["task"] == "classification"
    assert [device["name"] for device in summary["devices"]] == ["0", "1", "2"]
    assert summary["notes"][0] == "categories have a column each: ward (2)."
    # Dose, two wards and the intercept.
    assert summary["dimension"] == 4


def test_all_problems_are_printed_one_per_line(cli: Cli) -> None:
    write()
    result = cli("run", "--dataset", "wards.csv", "--target", "sick", "--drop", "idd", "--device-column", "side")
    assert result.code == 2
    first, *lines = result.err.splitlines()
    assert first == "codedfl: 'wards.csv' has 3 problems:"
    assert [line.split(" is not")[0] for line in lines] == [
        "- data.target = 'sick'",
        "- data.device_column = 'side'",
        "- data.drop = 'idd'",
    ]
    assert lines[1].endswith("Did you mean 'site'?")
    assert not Path("runs").exists()


def test_long_problems_are_cut_line_by_line(cli: Cli) -> None:
    Path("wide.csv").write_text(",".join(f"{'c' * 50}{i}" for i in range(30)) + "\n" + ",".join(["1"] * 30) + "\n")
    result = cli("run", "--dataset", "wide.csv", "--target", "y", "--drop", "z")
    first, *lines = result.err.splitlines()
    assert first.endswith("has 2 problems:")
    assert len(lines) == 2
    assert max(map(len, lines)) <= 360
