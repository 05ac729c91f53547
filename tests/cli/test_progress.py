from __future__ import annotations

import io

import pytest
from rich.console import Console

from codedfl.cli.progress import ProgressDisplay
from codedfl.experiment import run
from codedfl.training import Callback
from tests.support import StopAfter, small_config


def shown(*, terminal: bool, verbose: bool = True, callbacks: tuple[Callback, ...] = (), **changes: object) -> str:
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=120)
    with ProgressDisplay(console, verbose=verbose) as display:
        run(small_config(**changes), observer=display, callbacks=callbacks)
    return output.getvalue()


def test_without_a_terminal_there_is_a_line_for_each_scheme() -> None:
    lines = shown(terminal=False).splitlines()
    assert lines[0].startswith("1258 samples on 6 devices, 30 features; centralised accuracy 0.")
    assert [line.split(",")[0] for line in lines[1:]] == ["FedAvg: completed", "SCFL: completed"]
    assert lines[1].endswith(" after 12 rounds")
    assert all("\x1b" not in line for line in lines)


def test_chosen_step_sizes_are_told() -> None:
    assert "SCFL: step size 0.4 / L\n" in shown(
        terminal=False, learning_rate__scale="grid", learning_rate__grid=[1e-6, 0.4]
    )


def test_without_a_terminal_and_not_verbose_there_is_silence() -> None:
    assert shown(terminal=False, verbose=False) == ""


def test_on_a_terminal_there_are_bars() -> None:
    text = shown(terminal=True, learning_rate__scale="grid", learning_rate__grid=[0.1, 0.4])
    assert "FedAvg" in text
    assert "12/12" in text
    assert "SCFL: completed" not in text


def test_an_interrupted_bar_says_so() -> None:
    assert "interrupted" in shown(terminal=True, callbacks=(StopAfter(3),))


def test_a_diverged_bar_says_so() -> None:
    assert "diverged" in shown(terminal=True, learning_rate__scale=50)
    assert "FedAvg: diverged" in shown(terminal=False, learning_rate__scale=50)


@pytest.mark.parametrize("text", ["loading [/a] [b].csv", "loading {0} %s", "x" * 500])
def test_names_of_files_are_taken_literally(text: str) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=700)
    with ProgressDisplay(console) as display:
        display.on_stage(text)
        display.on_trial()
    assert isinstance(console.file, io.StringIO)
    assert text in console.file.getvalue()
