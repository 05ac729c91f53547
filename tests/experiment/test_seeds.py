from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from codedfl.config import Config
from codedfl.errors import InputError
from codedfl.experiment import (
    SeedRuns,
    create_seed_folders,
    over_seeds,
    reopen_seed_folders,
    run,
    run_seeds,
    seed_configs,
    summarise,
)
from codedfl.streams import MAX_SEED
from tests.support import StopAfter, assert_same_results, small_config, without_wall_times


@pytest.fixture(scope="module", autouse=True)
def without_pictures_of_runs() -> Iterator[None]:
    """Drawing takes longer than these runs; other tests look at their pictures."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codedfl.experiment._run_folder.curves_png", lambda *_: b"no picture")
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("seeds") / "runs"


@pytest.fixture(scope="module")
def runs(folder: Path) -> SeedRuns:
    found = run_seeds(create_seed_folders(folder, small_config(seed=4), 3))
    found.write(folder)
    return found


def test_every_seed_is_a_run_of_its_own(runs: SeedRuns, folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == [
        *("curves-charged.png", "curves.png", "seed-4", "seed-5", "seed-6", "summary.json")
    ]
    assert [each.seed for each in runs.evidence] == [4, 5, 6]
    alone = summarise(run(small_config(seed=5)))
    assert without_wall_times(runs.summaries[1]) == without_wall_times(alone)
    assert json.loads((folder / "seed-5" / "summary.json").read_text())["schemes"] == runs.summaries[1]["schemes"]
    assert (folder / "curves.png").read_bytes() != (folder / "curves-charged.png").read_bytes()


def test_the_summary_has_means_with_intervals_and_all_runs(runs: SeedRuns, folder: Path) -> None:
    summary = json.loads((folder / "summary.json").read_text())
    assert summary == runs.summary()
    assert summary["seeds"] == [4, 5, 6]
    assert [each["seed"] for each in summary["runs"]] == [4, 5, 6]
    assert summary["verdict"] == list(runs.verdict.sentences)
    assert "over 3 seeds" in summary["verdict"][0]
    for scheme in summary["schemes"]:
        score = scheme["accuracy"]
        own = [s["accuracy"] for each in summary["runs"] for s in each["schemes"] if s["scheme"] == scheme["scheme"]]
        assert score["values"] == own
        assert score["mean"] == pytest.approx(sum(own) / 3)
        assert score["low"] < score["mean"] < score["high"]


def test_a_stopped_repetition_continues_where_it_was(runs: SeedRuns, folder: Path, tmp_path: Path) -> None:
    stopped = run_seeds(create_seed_folders(tmp_path, small_config(seed=4), 3), callbacks=(StopAfter(30),))
    assert stopped.interrupted
    assert len(stopped.evidence) == 2
    assert stopped.verdict.sentences == ("Training was stopped early, so there is no verdict yet.",)
    again = run_seeds(reopen_seed_folders(tmp_path))
    assert not again.interrupted
    assert without_wall_times(again.summary()) == without_wall_times(runs.summary())
    for name in ("seed-4", "seed-5", "seed-6"):
        assert_same_results(tmp_path / name, folder / name)


def test_seeds_are_opened_in_their_order(tmp_path: Path) -> None:
    create_seed_folders(tmp_path, small_config(seed=9), 3)
    assert [each.config.seed for each in reopen_seed_folders(tmp_path)] == [9, 10, 11]
    assert reopen_seed_folders(tmp_path / "seed-9") == []
    with pytest.raises(InputError, match="no run folder"):
        run_seeds([])


@pytest.mark.parametrize("seeds", [0, -1, 1001])
def test_too_few_or_too_many_seeds_are_refused(seeds: int) -> None:
    with pytest.raises(InputError, match=f"--seeds = {seeds}"):
        seed_configs(Config(), seeds)


def test_seeds_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InputError, match="leaves no room"):
        seed_configs(Config(seed=MAX_SEED), 2)


def test_a_mean_needs_every_seed() -> None:
    assert over_seeds([0.5])["low"] is None
    assert over_seeds([0.5, float("nan")])["mean"] is None
    assert over_seeds([])["mean"] is None
