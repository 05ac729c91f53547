"""The one place that turns what goes wrong into a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from tests.support import Cli

QUICK = ("--scheme", "fedavg", "--rounds", "2", "--set", "learning_rate.scale=0.3")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            OSError(28, "No space left on device", "here/curves.csv"),
            "here/curves.csv cannot be read or written (No space",
        ),
        (OSError("odd"), "the operating system refused (odd)"),
        (OverflowError("too large"), "too extreme to compute with (too large)"),
        (ZeroDivisionError("division by zero"), "too extreme to compute with (division by zero)"),
        (RecursionError("maximum depth"), "nested too deeply"),
        (UnicodeEncodeError("ascii", "ü", 0, 1, "not there"), "text could not be read or written"),
        (MemoryError(), "out of memory: lower features.dimension"),
    ],
)
def test_what_remains_ends_in_one_sentence_and_leaves_no_trace(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("codedfl.experiment._build.fit_feature_map", fail)
    cli("run", *QUICK, "--json").assert_refused(words)
    assert list(Path().iterdir()) == []


def test_a_defect_of_the_program_is_not_hidden(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AttributeError("a defect")

    monkeypatch.setattr("codedfl.experiment._build.fit_feature_map", fail)
    with pytest.raises(AttributeError, match="a defect"):
        cli("run", *QUICK)


def test_an_interrupt_ends_with_130(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("codedfl.experiment._build.fit_feature_map", interrupt)
    result = cli("run", *QUICK, "--json")
    assert (result.code, result.out, result.err) == (130, "", "")


@pytest.mark.slow
def test_a_reader_who_leaves_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "codedfl", "config"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False
    )
    os.close(writing)
    assert done.stderr == ""


@pytest.mark.slow
def test_names_that_the_terminal_cannot_show_are_escaped() -> None:
    rows = [(i % 7, i % 5, "größer" if i % 3 else "kleiner", f"gerät-{i % 2}") for i in range(60)]
    pd.DataFrame(rows, columns=["x", "z", "size", "device"]).to_csv("own.csv", index=False)
    arguments = ("run", *QUICK, "--dataset", "own.csv", "--target", "size", "--set", "data.device_column=device")
    done = subprocess.run(
        [sys.executable, "-m", "codedfl", *arguments],
        env={**os.environ, "LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert b"ger\\xe4t-1" in done.stdout


@pytest.mark.parametrize("text", ["x" * 100_000, "a\nb\n" * 3000, "=" * 5000])
def test_messages_do_not_repeat_thousands_of_characters(cli: Cli, text: str) -> None:
    for arguments in (("--set", text), ("--set", f"{text}=3"), ("--set", f"seed={text}"), ("--scheme", text), (text,)):
        result = cli("run", *arguments)
        assert result.code == 2
        assert result.err.count("\n") == 1
        assert len(result.err) < 400


def test_the_package_runs_as_a_module() -> None:
    output = subprocess.run(
        [sys.executable, "-m", "codedfl", "--version"], capture_output=True, text=True, check=True, timeout=60
    ).stdout
    assert output.startswith("codedfl ")
