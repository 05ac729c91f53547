from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from codedfl.experiment import RunFolder, _run_folder, load_config, run

HOSTILE = "</script><img src=x onerror=alert(1)>"
"""The name of a device in the runs of these tests, and of a column."""

NAMES = ("St Mary", "Klinikum Süd", HOSTILE, "Lakeside & Sons")


def write_table(path: Path) -> None:
    rng = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["age", "stay", "hospital", "outcome"])
        for row in range(160):
            age, stay = rng.normal(60, 12), rng.exponential(5)
            outcome = "yes" if age - 60 + 3 * (stay - 5) + 10 * rng.normal() > 0 else "no"
            writer.writerow([f"{age:.1f}", f"{stay:.1f}", NAMES[row % len(NAMES)], outcome])


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a completed run, of which every section has something to show; tests work on copies."""
    folder = tmp_path_factory.mktemp("made")
    write_table(folder / "table.csv")
    config = load_config(
        overrides=[
            ("schemes", ["fedavg", "scfl", "ccfl"]),
            ("data.dataset", str(folder / "table.csv")),
            ("data.target", ["outcome"]),
            ("data.device_column", "hospital"),
            ("coding.coded_samples", 40),
            ("incentive.mechanism", "contract"),
            ("training.rounds", 15),
            ("training.evaluations", 15),
            ("learning_rate.scale", 0.5),
        ]
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_run_folder, "curves_png", lambda *_: b"")  # pictures take longer than all the rest
        run(config, folder=RunFolder.create(folder / "first", config))
    return folder


@pytest.fixture
def finished(made: Path, tmp_path: Path) -> Path:
    """The folder of a completed run."""
    return Path(shutil.copytree(made / "first", tmp_path / "first"))


@pytest.fixture
def unfinished(finished: Path) -> Path:
    """The folder of a run that trains its second scheme and has no results yet."""
    for name in ("summary.json", "curves.csv", "versions.json", "curves.png", "curves-charged.png"):
        (finished / name).unlink()
    (finished / "curves/ccfl.csv").unlink()
    half = (finished / "curves/scfl.csv").read_text().splitlines(keepends=True)[:8]
    (finished / "curves/scfl.csv").write_text("".join(half))
    return finished


@pytest.fixture
def federation(tmp_path: Path) -> Path:
    """The folder of a federation whose server trains: two rounds of three are complete."""
    folder = tmp_path / "wards"
    (folder / "server/state").mkdir(parents=True)
    (folder / "federation.toml").write_text(
        'name = "wards"\nscheme = "ccfl"\ndevices = ["north", "south"]\n[data]\ncolumns = ["a", "b"]\ntask = "classification"\n'
        "[training]\nrounds = 3\ndeadline_s = 2.0\n"
    )
    events = [
        {"event": "started", "scheme": "ccfl", "devices": ["north", "south"]},
        {"event": "joined", "device": "north", "samples": 30, "uploads": True},
        {"event": "joined", "device": "south", "samples": 40, "uploads": True},
        {"event": "uploaded", "device": "north", "bytes": 1000, "seconds": 0.5},
        {"event": "late", "device": "south", "round": 0},
        {"event": "round", "round": 1, "rounds": 3, "arrived": ["north"], "seconds": 2.0, "score": 0.5},
        {"event": "refused", "device": "south", "reason": "update has NaN."},
        {"event": "round", "round": 2, "rounds": 3, "arrived": ["north", "south"], "seconds": 1.5, "score": 0.75},
    ]
    lines = [json.dumps(event) for event in events]
    (folder / "server/state/events.jsonl").write_text("\n".join([*lines, '{"event": "rou']))
    status = {"phase": "training", "round": 2, "rounds": 3}
    (folder / "server/state/status.json").write_text(json.dumps(status))
    return folder
