"""Whatever is given to a command, it does its work or says in one line why it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support import Cli, CliResult

SMALL = (
    *("--devices", "3", "--coded-samples", "20", "--set", "features.dimension=8", "--set", "training.evaluations=2"),
    *("--set", "learning_rate.scale=0.3"),
)
COMMANDS: dict[str, tuple[str, ...]] = {
    "run": ("run", *SMALL, "--scheme", "scfl", "--set", "training.total_time_s=3"),
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
    "run": ("--total-time", "--noise-variance"),
    "audit": ("--noise-variance", "--label-noise-variance", "--clip-norm", "--known-ratio"),
    "theory": ("--noise-variance", "--radius"),
    "privacy": ("--noise-variance", "--delta", "--norm-bound", "--label-noise-variance", "--label-norm-bound"),
    "noise": ("--epsilon", "--delta"),
    "budget": ("--budget",),
    "contract": ("--lambda",),
    "reward": ("--reward",),
    "stackelberg": ("--lambda",),
}
PATHS = {
    "run": ("", "--dataset", "--data-dir", "--out", "--record-trace"),
    "audit": ("", "--dataset", "--out"),
    "theory": ("", "--dataset", "--out"),
    "budget": ("--devices-file", "--plot"),
    "reward": ("--devices-file",),
}

NEVER = ("nan", "inf", "-inf", "-1", "true", "", "1_x", "0x10", "9" * 5000, "many" * 2000, "\udcff", "1;2")
EXTREME = ("0", "1e308", "1e-308", "1e400", str(10**400), str(2**63), "1e30", "5e-324")
BAD_PATHS = (
    *("nowhere/file.csv", "folder", "file/below.csv", "pipe", "/proc/x/y.csv", "/dev/null/z.csv", "n" * 300 + ".csv"),
    *("\udcff.csv", "long" * 1000, "binary.csv", "locked/x.csv"),
)


def cases(options: dict[str, tuple[str, ...]], values: tuple[str, ...]) -> list[object]:
    return [
        pytest.param(command, option, value, id=f"{command}{option}={ascii(value)[1:-1]:.16}")
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
        assert "nan" not in result.out.lower().split()


@pytest.mark.parametrize(("command", "option", "value"), cases(COUNTS | {}, (*NEVER, "0.5")) + cases(NUMBERS, NEVER))
def test_what_is_no_such_number_is_refused(cli: Cli, command: str, option: str, value: str) -> None:
    assert_one_line(cli(*COMMANDS[command], option, value))
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize(("command", "option", "value"), cases(COUNTS, EXTREME) + cases(NUMBERS, EXTREME))
def test_extreme_numbers_are_worked_with_or_refused(cli: Cli, command: str, option: str, value: str) -> None:
    assert_done_or_one_line(cli(*COMMANDS[command], option, value))


@pytest.mark.parametrize(("command", "option", "value"), cases(PATHS, BAD_PATHS))
def test_paths_that_cannot_be_used_are_refused(cli: Cli, command: str, option: str, value: str) -> None:
    Path("folder/full").mkdir(parents=True)
    Path("file").write_text("")
    Path("binary.csv").write_bytes(bytes(range(256)))
    os.mkfifo("pipe")
    before = sorted(Path().rglob("*"))
    if option in ("--out", "--record-trace", "--plot") and value in (
        "binary.csv",
        "locked/x.csv",
        "\udcff.csv",
        "nowhere/file.csv",
    ):
        return
    assert_one_line(cli(*COMMANDS[command], *filter(None, (option,)), value))
    assert sorted(Path().rglob("*")) == before
