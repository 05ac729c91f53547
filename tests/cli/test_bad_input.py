"""Whatever is given to a command, it does its work or says in one line why it cannot."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.support import Cli, CliResult

SMALL = (
    *("--devices", "3", "--coded-samples", "20", "--set", "features.dimension=8", "--set", "training.evaluations=2"),
    *("--set", "learning_rate.scale=0.3", "--json"),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", *SMALL, "--scheme", "scfl", "--set", "training.total_time_s=3"),
    "clock": ("run", *SMALL, "--scheme", "scfl"),
    "audit": ("audit", *SMALL, "--known-ratio", "0"),
    "theory": ("theory", *SMALL, "--set", "training.total_time_s=3"),
    "check": ("theory", "--check", "--draws", "100"),
    "privacy": ("privacy", "--coded-samples", "100", "--noise-variance", "5", "--delta", "1e-5"),
    "noise": ("privacy", "--coded-samples", "100", "--epsilon", "5", "--delta", "1e-5"),
    "budget": ("contract", "--budget", "5"),
    "contract": ("contract", "--lambda", "100"),
    "reward": ("stackelberg", "--reward", "5"),
    "stackelberg": ("stackelberg", "--lambda", "1e-9"),
}
"""A small piece of work for every command."""

TRAINING = ("run", "clock", "audit", "theory", "check")

COUNTS = {
    "run": ("--devices", "--rounds", "--tau", "--coded-samples", "--seed"),
    "audit": ("--devices", "--coded-samples", "--seed"),
    "theory": ("--devices", "--rounds", "--tau", "--coded-samples", "--seed"),
    "check": ("--draws", "--seed"),
    "privacy": ("--coded-samples", "--devices-in-sum"),
    "budget": ("--devices", "--coded-samples"),
    "stackelberg": ("--devices", "--coded-samples"),
}
NUMBERS = {
    "clock": ("--total-time",),
    "run": ("--noise-variance",),
    "audit": ("--noise-variance", "--label-noise-variance", "--clip-norm", "--known-ratio"),
    "theory": ("--noise-variance", "--radius"),
    "privacy": ("--noise-variance", "--delta", "--norm-bound", "--label-noise-variance", "--label-norm-bound"),
    "noise": ("--epsilon", "--delta"),
    "budget": ("--budget",),
    "contract": ("--lambda",),
    "reward": ("--reward",),
    "stackelberg": ("--lambda",),
}
INPUT_PATHS = {
    "run": ("", "--dataset"),
    "audit": ("--dataset",),
    "theory": ("",),
    "budget": ("--devices-file",),
}
OUTPUT_PATHS = {
    "run": ("--out", "--record-trace"),
    "audit": ("--out",),
    "theory": ("--out",),
    "budget": ("--plot",),
}

NEVER = ("nan", "inf", "-1", "true", "", "9" * 5000, "many" * 2000, "\udcff")
EXTREME = ("0", "1e308", "1e-308", "1e400", str(10**400), str(2**63), "1e30", "5e-324")
UNWRITABLE = ("folder", "file/below", "pipe", "/proc/x/y", "/dev/null/z", "n" * 300, "long" * 2000)
UNREADABLE = (*UNWRITABLE, "nowhere/file.csv", "binary.csv", "\udcff.csv")


def cases(
    options: dict[str, tuple[str, ...]], values: tuple[str, ...], *, slow: tuple[str, ...] = ()
) -> list[ParameterSet]:
    """Return every option of every command with every value; commands in ``slow`` train or draw pictures where they accept it."""
    return [
        pytest.param(
            *(command, option, value),
            id=f"{command}{option}={ascii(value)[1:-1]:.16}",
            marks=[pytest.mark.slow] if command in slow else [],
        )
        for command, names in options.items()
        for option in names
        for value in values
    ]


def assert_one_line(result: CliResult) -> None:
    assert result.code == 2, (result.out[-200:], result.err[-300:])
    assert result.out == ""
    assert result.err.count("\n") == 1, result.err
    assert result.err.startswith("codedfl: ")
    assert len(result.err) < 400


def assert_done_or_one_line(result: CliResult) -> None:
    if result.code == 2:
        assert_one_line(result)
    else:
        assert result.code == 0, (result.out[-200:], result.err[-300:])
        assert "Traceback" not in result.err
        if result.out.startswith(("{", "[")):  # a note may say that a loss became nan; no number may be
            json.loads(result.out, parse_constant=lambda constant: pytest.fail(f"{constant} is no JSON"))
        else:
            assert "nan" not in result.out.lower().split()


@pytest.mark.parametrize(("command", "option", "value"), cases(COUNTS, (*NEVER, "0.5")) + cases(NUMBERS, NEVER))
def test_what_is_no_such_number_is_refused(cli: Cli, command: str, option: str, value: str) -> None:
    assert_one_line(cli(*COMMANDS[command], option, value))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(
    ("command", "option", "value"), cases(COUNTS, EXTREME, slow=TRAINING) + cases(NUMBERS, EXTREME, slow=TRAINING)
)
def test_extreme_numbers_are_worked_with_or_refused(cli: Cli, command: str, option: str, value: str) -> None:
    assert_done_or_one_line(cli(*COMMANDS[command], option, value))


@pytest.mark.parametrize(
    ("command", "option", "value"), cases(INPUT_PATHS, UNREADABLE) + cases(OUTPUT_PATHS, UNWRITABLE)
)
def test_paths_that_cannot_be_used_are_refused(cli: Cli, command: str, option: str, value: str) -> None:
    Path("folder/full").mkdir(parents=True)
    Path("file").write_text("")
    Path("binary.csv").write_bytes(bytes(range(256)))
    os.mkfifo("pipe")
    before = sorted(Path().rglob("*"))
    assert_one_line(cli(*COMMANDS[command], *filter(None, (option,)), value))
    assert sorted(Path().rglob("*")) == before
