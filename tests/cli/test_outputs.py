from __future__ import annotations

import os
from pathlib import Path

import pytest

from codedfl.cli.outputs import latest_run, new_run_path, require_writable, results_folder
from codedfl.errors import InputError
from codedfl.experiment import RunFolder
from tests.support import Cli, small_config


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
        InputError, match=r"--resume: there is no run in runs/ to continue; give its folder with --out\."
    ):
        latest_run()


@pytest.mark.slow
def test_an_audit_or_a_theory_report_is_no_run_to_continue(cli: Cli) -> None:
    older = RunFolder.create(Path("runs/run"), small_config()).path
    os.utime(older / "config.toml", (1e9, 1e9))
    small = ("--devices", "2", "--coded-samples", "20", "--set", "features.dimension=10")
    assert cli("audit", *small, "--known-ratio", "0", "--json").code == 0
    assert cli("theory", *small, "--rounds", "3", "--set", "learning_rate.scale=0.5", "--json").code == 0
    assert len(list(Path("runs").glob("*/config.toml"))) == 3
    assert latest_run() == older


def test_a_folder_for_results_is_tried_and_not_left_behind() -> None:
    assert results_folder(Path("a/b/c"), "x") == Path("a/b/c")
    assert not Path("a").exists()
    Path("empty").mkdir()
    assert results_folder(Path("empty"), "x") == Path("empty")
    assert list(Path("empty").iterdir()) == []


@pytest.mark.parametrize("out", ["file", "file/below", "full", "/proc/here", "/dev/null/x", "n" * 300])
def test_a_folder_that_cannot_be_made_is_refused(out: str) -> None:
    Path("file").write_text("")
    Path("full/x").mkdir(parents=True)
    with pytest.raises(InputError, match=r"give another --out\.$"):
        results_folder(Path(out), "x")


def test_a_file_that_can_be_written_is_left_alone() -> None:
    require_writable("--plot", Path("new.png"))
    Path("old.png").write_text("mine")
    require_writable("--plot", Path("old.png"))
    assert [path.name for path in Path().iterdir()] == ["old.png"]
    assert Path("old.png").read_text() == "mine"


@pytest.mark.parametrize("name", ["nowhere/x.png", "file/x.png", "folder", "pipe", "/proc/x.png", "n" * 300, ""])
def test_a_file_that_cannot_be_written_is_refused(name: str) -> None:
    Path("file").write_text("")
    Path("folder").mkdir()
    os.mkfifo("pipe")
    with pytest.raises(InputError, match=r"^--plot = .* cannot be written \(.*\): give another path\.$"):
        require_writable("--plot", Path(name))
