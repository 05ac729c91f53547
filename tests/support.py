"""What the tests of experiments and of the command line share: a small fast comparison, and ways to interrupt it."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from _pytest.mark import ParameterSet

from codedfl.cli import main
from codedfl.errors import InputError
from codedfl.experiment import Config, load_config
from codedfl.progress import Progress
from codedfl.training import Callback, RunProgress, StopTraining

SMALL: dict[str, Any] = {
    "schemes": ["fedavg", "scfl"],
    "data.devices": 6,
    "features.dimension": 30,
    "coding.coded_samples": 60,
    "training.rounds": 12,
    "training.evaluations": 6,
    "learning_rate.scale": 0.5,
}
"""A comparison that takes a fifth of a second."""

CLI_SMALL = (
    *("--scheme", "fedavg", "--scheme", "scfl", "--devices", "6", "--coded-samples", "60", "--rounds", "12"),
    *("--set", "features.dimension=30", "--set", "training.evaluations=6", "--set", "learning_rate.scale=0.5"),
)
"""The same on the command line."""


def small_config(**changes: Any) -> Config:
    """Return the small configuration with changes; ``data__devices=3`` stands for ``data.devices``."""
    given = {key.replace("__", "."): value for key, value in changes.items()}
    return load_config(overrides=list({**SMALL, **given}.items()))


def mostly_slow(values: Iterable[str], *quick: str) -> list[ParameterSet]:
    """Return parameters of which all but those named are left to the slow tests."""
    return [pytest.param(value, marks=[] if value in quick else [pytest.mark.slow]) for value in values]


class Diary(Progress):
    """Writes down what it is told."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str, float, float | None]] = []
        self.said: list[str] = []
        self.closed: list[str] = []

    def update(self, task: str, done: float = 0.0, total: float | None = None, note: str = "") -> None:  # noqa: ARG002
        self.entries.append(("update", task, done, total))

    def close(self, task: str, note: str = "") -> None:
        self.entries.append(("close", f"{task} {note}".strip(), 0.0, None))
        self.closed.append(task)

    def say(self, text: str) -> None:
        self.entries.append(("say", text, 0.0, None))
        self.said.append(text)

    @property
    def tasks(self) -> list[str]:
        """The tasks in their order, each once in a row."""
        names = [task for kind, task, _, _ in self.entries if kind == "update"]
        return [name for place, name in enumerate(names) if place == 0 or names[place - 1] != name]

    @property
    def latest(self) -> dict[str, tuple[float, float | None]]:
        """How far each task got."""
        return {task: (done, total) for kind, task, done, total in self.entries if kind == "update"}


class StopAfter(Callback):
    """Stops everything after so many rounds, counted over all runs."""

    def __init__(self, rounds: int) -> None:
        self.rounds_left = rounds

    def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
        self.rounds_left -= 1
        if self.rounds_left == 0:
            raise StopTraining("stopped by a test")


def without_wall_times(value: Any) -> Any:
    """Leave out what no two runs have in common."""
    if isinstance(value, dict):
        return {key: without_wall_times(item) for key, item in value.items() if key != "wall_time_s"}
    if isinstance(value, list):
        return [without_wall_times(item) for item in value]
    return value


def refusal_of(action: Callable[[], object]) -> str:
    """Return the sentence with which bad input was refused, empty if it was accepted; whatever else is raised passes."""
    try:
        action()
    except InputError as error:
        return str(error) or "no sentence\nat all"
    return ""


def folder_contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_results(folder: Path, reference: Path) -> None:
    """Compare two run folders, byte for byte where nothing measures real time."""
    assert (folder / "curves.csv").read_text() == (reference / "curves.csv").read_text()
    names = sorted(path.name for path in (reference / "models").iterdir())
    assert sorted(path.name for path in (folder / "models").iterdir()) == names
    for name in (*(f"models/{name}" for name in names), "curves.png", "curves-charged.png"):
        assert (folder / name).read_bytes() == (reference / name).read_bytes(), name
    ours, theirs = (json.loads((path / "summary.json").read_text()) for path in (folder, reference))
    assert without_wall_times(ours) == without_wall_times(theirs)


@dataclass(frozen=True)
class CliResult:
    """How a command ended."""

    code: int
    out: str
    err: str

    def assert_refused(self, *words: str) -> str:
        """Check for exit code 2 and one sentence on standard error, and return that."""
        assert self.code == 2, (self.out, self.err)
        assert self.out == ""
        assert "Traceback" not in self.err
        lines = [line for line in self.err.splitlines() if line.startswith("codedfl: ")]
        assert len(lines) == 1
        assert self.err.endswith(f"{lines[0]}\n")
        for word in words:
            assert word in lines[0]
        return lines[0]


built_once = functools.cache(typer.main.get_command)
"""Building the commands takes longer than most of them run."""


class Cli:
    """Runs commands in this process, through the real entry point."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys
        monkeypatch.setattr(typer.main, "get_command", built_once)

    def __call__(self, *arguments: str) -> CliResult:
        self.monkeypatch.setattr(sys, "argv", ["codedfl", *arguments])
        self.capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        captured = self.capsys.readouterr()
        return CliResult(code, captured.out, captured.err)
