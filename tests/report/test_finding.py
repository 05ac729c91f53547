from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from codedfl.errors import InputError
from codedfl.report import read_runs
from codedfl.report._finding import MOST_RUNS


def test_runs_below_a_folder_are_found_in_natural_order(finished: Path) -> None:
    for place in (10, 2, 1):
        shutil.copytree(finished, finished.parent / f"sweep/points/seed-{place}")
    records = read_runs([finished.parent / "sweep"])
    assert [record.name for record in records] == ["seed-1", "seed-2", "seed-10"]


def test_runs_of_the_same_name_are_told_apart(finished: Path) -> None:
    shutil.copytree(finished, finished.parent / "other/first")
    records = read_runs([finished, finished.parent / "other/first"])
    assert [record.name for record in records] == [f"{finished.parent.name}/first", "other/first"]


def test_a_folder_given_twice_is_one_run(finished: Path) -> None:
    assert len(read_runs([finished, finished])) == 1


def test_what_is_no_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "audit").mkdir()
    (tmp_path / "audit/config.toml").write_text("seed = 0\n")
    for path, reason in (
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "file", "holds no run"),
        (tmp_path / "audit", "holds no run"),
    ):
        with pytest.raises(InputError, match=f"{path.name}.* {reason}.*: give the folder"):
            read_runs([path])


def test_scores_that_cannot_be_compared_are_refused(finished: Path) -> None:
    other = Path(shutil.copytree(finished, finished.parent / "second"))
    for name in ("summary.json", "details.json"):
        content = json.loads((other / name).read_text())
        (other / name).write_text(json.dumps(content | {"metric": "r2"}))
    with pytest.raises(InputError, match="first is scored by accuracy and second by r2"):
        read_runs([finished, other])


def test_too_many_runs_are_refused(tmp_path: Path) -> None:
    for place in range(MOST_RUNS + 1):
        (tmp_path / f"{place}/curves").mkdir(parents=True)
        (tmp_path / f"{place}/config.toml").write_text("")
    with pytest.raises(InputError, match="201 runs do not fit on one page"):
        read_runs([tmp_path])
