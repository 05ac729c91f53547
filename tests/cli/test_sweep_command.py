from __future__ import annotations

import json
from pathlib import Path

import pytest

from codedfl.training import StopOnInterrupt
from tests.support import CLI_SMALL, Cli

SMALL = ("sweep", *CLI_SMALL, "--rounds", "4")


@pytest.fixture(autouse=True)
def without_pictures_of_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes longer than these runs; other tests look at their pictures."""
    monkeypatch.setattr("codedfl.experiment._run_folder.curves_png", lambda *_: b"no picture")


def test_a_grid_on_the_command_line(cli: Cli) -> None:
    over = ("--over", "coding.noise_variance=0.1,5", "--over", "fleet.straggler_ratio=0.2,0.4")
    result = cli(*SMALL, *over, "--out", "out")
    assert result.code == 0, result.err
    assert max(map(len, result.out.splitlines())) <= 80
    assert "…" not in result.out
    rows = [line.split() for line in result.out.splitlines() if " FedAvg " in line or " SCFL " in line]
    assert len(rows) == 8
    assert rows[0][:3] == ["0.1", "0.2", "FedAvg"]
    assert rows[1][0] == "SCFL"
    for line in ("picture: out/sweep.png", "table: out/sweep.csv", "results: out, one run folder per point in it"):
        assert line in result.out
    assert len([path for path in Path("out").iterdir() if path.is_dir()]) == 4
    cli(*SMALL, *over, "--out", "out").assert_refused("out exists and is not empty", "--resume")


@pytest.mark.slow
def test_seeds_and_json(cli: Cli) -> None:
    over = ("--over", "coding.noise_variance=0.1,5", "--seeds", "2", "--set", 'schemes=["dp-cfl"]')
    result = cli(*SMALL, *over, "--out", "out", "--json")
    assert (result.code, result.err) == (0, "")
    found = json.loads(result.out)
    assert found == json.loads(Path("out/sweep.json").read_text())
    assert found["over"] == {"coding.noise_variance": [0.1, 5]}
    assert found["runs"] == {"complete": 4, "planned": 4}
    assert [mean["scheme"] for mean in found["means"]] == ["dp-cfl", "dp-cfl"]
    assert len(found["rows"]) == 4
    table = cli("sweep", "--resume", "--out", "out")
    assert table.code == 0, table.err
    assert "means over 2 seeds" in " ".join(table.out.split())
    assert "±" in table.out


def test_ctrl_c_keeps_what_is_complete(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    rounds = 0

    def stop_in_the_second(self: StopOnInterrupt, progress: object) -> None:
        nonlocal rounds
        rounds += 1
        self.requested = rounds >= 12
        on_round(self, progress)  # type: ignore[arg-type]

    on_round = StopOnInterrupt.on_round
    with monkeypatch.context() as patch:
        patch.setattr(StopOnInterrupt, "on_round", stop_in_the_second)
        stopped = cli(*SMALL, "--over", "fleet.straggler_ratio=0.2,0.4")
    assert stopped.code == 130
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith("-digits-sweep")
    text = " ".join(stopped.out.split())
    assert f"stopped after 1 of 2 runs; continue with: codedfl sweep --resume --out {folder}" in text
    resumed = cli("sweep", "--resume", "--out", str(folder), "--json")
    assert resumed.code == 0, resumed.err
    assert json.loads(resumed.out)["runs"] == {"complete": 2, "planned": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), ("at least one key", "--over")),
        (("--over", "training.tau=1,2"), ("training.tau: there is no such key",)),
        (("--over", "training.local_steps=1,0"), ("training.local_steps = 0",)),
        (("--over", "training.local_steps=1,two"), ("training.local_steps", "two")),
        (("--over", "training.total_time_s=10,20"), ("training.rounds", "training.total_time_s", "exclude")),
        (("--over", "seed=1,2", "--seeds", "2"), ("--seeds", "--over seed")),
        (("--over", "coding.noise_variance=1,[1, 2]"), ("2 value(s) for 6 device(s)",)),
        (("--over", "data.dataset=digits,missing.csv"), ("missing.csv",)),
        (("--resume",), ("--resume", "--out")),
    ],
)
def test_bad_input_is_refused_before_any_work(arguments: tuple[str, ...], words: tuple[str, ...], cli: Cli) -> None:
    cli(*SMALL, *arguments).assert_refused(*words)
    assert not any(Path().iterdir())


def test_resuming_needs_the_folder_of_a_sweep(cli: Cli) -> None:
    Path("empty").mkdir()
    cli("sweep", "--resume", "--out", "empty").assert_refused("empty holds no sweep")
