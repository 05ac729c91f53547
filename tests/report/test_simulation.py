from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from codedfl.report import read_runs, render_page
from tests.report.conftest import NAMES
from tests.support import refusal_of


def test_a_completed_run(finished: Path) -> None:
    (record,) = read_runs([finished])
    summary = json.loads((finished / "summary.json").read_text())
    assert (record.state, record.metric, record.name) == ("completed", "accuracy", "first")
    assert sorted(record.names) == sorted(NAMES)
    assert [curve.scheme for curve in record.curves] == ["fedavg", "scfl", "ccfl"]
    assert [curve.score[-1] for curve in record.curves] == [scheme["accuracy"] for scheme in summary["schemes"]]
    assert record.reference == summary["centralised"]["accuracy"]
    assert record.verdict == summary["verdict"]
    assert record.config["training.rounds"] == 15
    assert record.environment["python"]


def test_a_run_in_progress(unfinished: Path) -> None:
    (record,) = read_runs([unfinished])
    assert record.state == "going"
    assert [(scheme["title"], scheme["status"], scheme.get("rounds")) for scheme in record.schemes] == [
        ("FedAvg", "trained", "15 of 15"),
        ("SCFL", "training", "6 of 15"),
        ("CCFL", "waiting", None),
    ]
    assert record.reference is not None
    assert sorted(record.names) == sorted(NAMES)


def test_a_run_without_news_is_not_called_in_progress(unfinished: Path) -> None:
    long_ago = time.time() - 3600
    for path in unfinished.rglob("*"):
        os.utime(path, (long_ago, long_ago))
    (record,) = read_runs([unfinished])
    assert record.state == "silent"
    assert "60 minutes" in record.told


def test_a_run_that_has_not_begun(unfinished: Path) -> None:
    for path in (*unfinished.glob("curves/*"), unfinished / "details.json"):
        path.unlink()
    (record,) = read_runs([unfinished])
    assert (record.state, record.curves) == ("waiting", ())
    assert "fedavg" in render_page([record])


def test_an_interrupted_run_says_how_to_go_on(finished: Path) -> None:
    summary = json.loads((finished / "summary.json").read_text())
    summary["schemes"][-1]["status"] = "interrupted"
    (finished / "summary.json").write_text(json.dumps(summary))
    (record,) = read_runs([finished])
    assert record.state == "interrupted"
    assert f"codedfl run --resume --out {finished}" in record.told


def test_a_resumed_run_is_in_progress_although_it_has_a_summary(finished: Path) -> None:
    now = time.time()
    os.utime(finished / "summary.json", (now - 10, now - 10))
    os.utime(finished / "curves/ccfl.csv", (now, now))
    (record,) = read_runs([finished])
    assert record.state == "going"


def test_a_run_of_an_earlier_version_without_details(finished: Path) -> None:
    (finished / "details.json").unlink()
    (record,) = read_runs([finished])
    assert record.state == "completed"
    assert len(record.names) == len(NAMES)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("summary.json", "{"),
        ("summary.json", "[]"),
        ("details.json", "[" * 100_000),
        ("config.toml", "a = "),
        ("curves/scfl.csv", "round\n1\n"),
        ("curves/scfl.csv", "round,simulated_time_s,everything_charged_s,score,mean_arrivals,bytes_up\nx,0,0,0,0,0\n"),
    ],
)
def test_a_damaged_file_is_named(finished: Path, name: str, content: str) -> None:
    (finished / name).write_text(content)
    sentence = refusal_of(lambda: read_runs([finished]))
    assert name.split("/")[-1] in sentence
    assert "cannot be read" in sentence
    assert "\n" not in sentence
