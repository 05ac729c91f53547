from __future__ import annotations

import io
import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from codedfl.cli.runs import latest_run, new_run_path, print_comparison, run_with_progress
from codedfl.errors import InputError
from codedfl.experiment import RunFolder, run
from tests.support import small_config


def test_a_new_path_is_named_by_time_and_dataset() -> None:
    assert new_run_path("digits").match("runs/[0-9]*-[0-9]*-digits")
    assert new_run_path("/far/away/own.data.csv").name.endswith("-own.data")


def test_the_latest_run_is_the_one_started_last() -> None:
    for age, name in enumerate(("newest", "older", "oldest")):
        folder = RunFolder.create(Path("runs") / name, small_config())
        os.utime(folder.path / "config.toml", (1e9 - age, 1e9 - age))
    Path("runs/not a run").mkdir()
    assert latest_run() == Path("runs/newest")


def test_without_a_run_there_is_no_latest() -> None:
    with pytest.raises(
        InputError, match=r"--resume: there is no run in runs/ to go on with, give its folder with --out\."
    ):
        latest_run()


@pytest.mark.parametrize("quiet", [True, False])
def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str], quiet: bool) -> None:
    comparison = run_with_progress(RunFolder.create(Path("run"), small_config()), quiet=quiet)
    captured = capsys.readouterr()
    assert not comparison.interrupted
    assert captured.out == ""
    assert ("SCFL: completed" in captured.err) is not quiet


def test_a_comparison_that_never_began_is_printed_too() -> None:
    comparison = replace(run(small_config(schemes=["dp-cfl"])), results=())
    console = Console(file=io.StringIO(), width=80)
    print_comparison(comparison, RunFolder(Path("[b]run"), comparison.config), console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[-2:] == ["stopped early; go on with: codedfl run --resume --out '[b]run'", "results: [b]run"]
