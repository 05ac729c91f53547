from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from codedfl.errors import InputError
from codedfl.experiment import Point, SweepFolder, grid_points, load_config, parse_axes, run, summarise
from codedfl.experiment import _sweep_folder as sweep_folder_module
from tests.support import SMALL, Diary, StopAfter, folder_contents, without_wall_times

OVER = ("coding.noise_variance=0.1,5", "fleet.straggler_ratio=0.2,0.4")


def points_of(over: tuple[str, ...], seeds: int = 1, **changes: Any) -> tuple[dict[str, list[Any]], list[Point]]:
    axes = parse_axes(over)
    base = SMALL | {"training.rounds": 4} | {key.replace("__", "."): value for key, value in changes.items()}
    return axes, grid_points(lambda given: load_config(overrides=[*base.items(), *given]), axes, seeds)


@pytest.fixture(scope="module", autouse=True)
def without_pictures_of_runs() -> Iterator[None]:
    """Drawing takes longer than these runs; other tests look at their pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codedfl.experiment._run_folder.curves_png", lambda *_: b"no picture")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> SweepFolder:
    found = SweepFolder.create(tmp_path_factory.mktemp("sweep") / "runs", *points_of(OVER))
    found.run()
    return found


def test_every_point_is_a_run_folder_with_the_numbers_of_a_run(folder: SweepFolder) -> None:
    assert len(folder.points) == 4
    point = folder.points[1]
    written = json.loads((folder.path / point.folder / "summary.json").read_text())
    alone = summarise(run(point.config))
    for ours, theirs in zip(written["schemes"], alone["schemes"], strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)  # lock-step sums in another order, in float32
        assert ours["everything_charged_s"] == theirs["everything_charged_s"]
    assert (folder.path / point.folder / "models").is_dir()
    assert load_config(folder.path / point.folder / "config.toml") == point.config


def test_the_table_has_one_row_per_point_and_scheme(folder: SweepFolder) -> None:
    results = folder.results()
    assert (results.complete, results.planned, results.seeds, results.interrupted) == (4, 4, 1, False)
    rows = list(csv.DictReader(io.StringIO((folder.path / "sweep.csv").read_text())))
    assert len(rows) == 8
    assert list(rows[0])[:5] == ["coding.noise_variance", "fleet.straggler_ratio", "seed", "scheme", "title"]
    frame = pd.read_csv(folder.path / "sweep.csv")
    for row in results.rows:
        keys = (frame["coding.noise_variance"] == row["values"]["coding.noise_variance"]) & (
            frame["fleet.straggler_ratio"] == row["values"]["fleet.straggler_ratio"]
        )
        (mine,) = frame[keys & (frame["scheme"] == row["scheme"])].to_dict("records")
        assert mine["accuracy"] == row["score"]
        assert mine["folder"] == row["folder"]
    fedavg = frame[frame["scheme"] == "fedavg"]
    assert fedavg.groupby("fleet.straggler_ratio")["accuracy"].nunique().max() == 1  # noise is nothing to FedAvg
    written = json.loads((folder.path / "sweep.json").read_text())
    assert written == results.as_dict()
    assert (folder.path / "sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_complete_points_are_not_run_again(
    folder: SweepFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep_folder_module, "MOST_TOGETHER", 1)
    mine = SweepFolder.create(tmp_path / "mine", *points_of(OVER))
    stopped = mine.run(callbacks=(StopAfter(14),))  # a point has four rounds of two schemes
    assert (stopped.complete, stopped.interrupted) == (1, True)
    (kept,) = [point for point in mine.points if mine.is_complete(point)]
    before = folder_contents(mine.path / kept.folder)
    again, diary = SweepFolder.reopen(mine.path), Diary()
    assert [point.folder for point in again.points] == [point.folder for point in mine.points]
    assert again.axes == mine.axes
    results = again.run(progress=diary)
    assert "1 of 4 runs are complete already" in diary.said
    assert diary.latest["sweep"] == (4, 4)
    assert not results.interrupted
    assert folder_contents(mine.path / kept.folder) == before
    for ours, theirs in zip(results.rows, folder.results().rows, strict=True):
        assert ours["values"] == theirs["values"]
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
    unchanged = without_wall_times(results.as_dict())
    assert without_wall_times(SweepFolder.reopen(mine.path).run().as_dict()) == unchanged  # nothing is left to do


def test_a_point_without_its_last_file_is_run_again(tmp_path: Path) -> None:
    mine = SweepFolder.create(tmp_path / "mine", *points_of(("coding.noise_variance=0.1",), schemes=["dp-cfl"]))
    first = mine.run()
    (mine.path / mine.points[0].folder / "point.json").unlink()
    assert len(mine.pending) == 1
    assert without_wall_times(mine.run().as_dict()) == without_wall_times(first.as_dict())


def test_seeds_have_rows_of_their_own_and_a_mean(tmp_path: Path) -> None:
    mine = SweepFolder.create(tmp_path / "mine", *points_of(("coding.noise_variance=0.1,5",), 2, schemes=["dp-cfl"]))
    results = mine.run()
    assert (results.seeds, len(results.rows), len(results.means())) == (2, 4, 2)
    for mean in results.means():
        own = [row["score"] for row in results.rows if row["values"] == mean["values"]]
        assert mean["score"]["values"] == own
        assert mean["score"]["mean"] == pytest.approx(sum(own) / 2)


def test_a_sweep_over_seeds_has_one_column_for_them(tmp_path: Path) -> None:
    mine = SweepFolder.create(tmp_path / "mine", *points_of(("seed=3,4",), schemes=["dp-cfl"]))
    results = mine.run()
    assert results.seeds == 1
    assert [row["seed"] for row in results.rows] == [3, 4]
    assert results.to_csv().splitlines()[0].split(",").count("seed") == 1


def test_a_point_that_cannot_run_is_refused_before_any_work(tmp_path: Path) -> None:
    """The number of variances fits the devices of the first point alone, which only shows once the data is there."""
    over = ("data.devices=6,7", "coding.noise_variance=[1,1,1,1,1,1]")
    mine = SweepFolder.create(tmp_path / "mine", *points_of(over))
    with pytest.raises(InputError, match=r"6 value\(s\) for 7 device\(s\)"):
        mine.run(callbacks=(StopAfter(1),))
    assert not any(mine.is_complete(point) for point in mine.points)
    mine.discard_unused()
    assert not mine.path.exists()


def test_scores_of_two_kinds_are_not_put_in_one_table(tmp_path: Path) -> None:
    frame = pd.DataFrame({"a": range(40), "y": [0, 1, 2, 3] * 10})
    frame.to_csv(tmp_path / "own.csv", index=False)
    over = ("data.task=regression,classification",)
    axes, points = points_of(over, data__dataset=str(tmp_path / "own.csv"), data__target=["y"], schemes=["dp-cfl"])
    with pytest.raises(InputError, match="scores cannot be compared"):
        SweepFolder.create(tmp_path / "mine", axes, points).run()


@pytest.mark.parametrize(
    "content", [None, "", "[]", "{}", '{"over": {}, "points": [{"folder": "../x", "values": {}}]}']
)
def test_a_folder_that_holds_no_sweep_is_refused(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "grid.json").write_text(content)
    with pytest.raises(InputError, match="holds no sweep to continue"):
        SweepFolder.reopen(tmp_path)


def test_more_keys_than_a_picture_can_show(tmp_path: Path) -> None:
    over = ("coding.noise_variance=0.1", "coding.draw=1", "training.server_batch=5", "coding.coded_samples=50")
    SweepFolder.create(tmp_path / "mine", *points_of(over, schemes=["dp-cfl"])).run()
    assert (tmp_path / "mine" / "sweep.csv").is_file()
    assert not (tmp_path / "mine" / "sweep.png").exists()
