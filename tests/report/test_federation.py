from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from codedfl.files import plain
from codedfl.privacy import GaussianMechanism, Release, guarantee_of
from codedfl.report import read_runs, render_page


def finish(folder: Path, privacy: dict[str, Any] | None = None) -> None:
    """Write what the server writes at the end."""
    results = folder / "results"
    results.mkdir()
    (results / "curve.csv").write_text(
        "round,seconds,score,mean_arrivals\n0,0,0.1,0\n1,2,0.5,1\n2,3.5,0.75,1.5\n3,5,0.8,2\n"
    )
    (results / "trace.csv").write_text(
        "round,device,batch_size,arrived,late_bits\n0,north,5,1,0\n0,south,5,0,0\n1,north,5,1,0\n1,south,0,0,0\n"
        "2,north,5,1,0\n2,south,5,1,0\n"
    )
    devices = [
        {"device": "north", "samples": 30, "arrivals": 3, "uploaded": True, "noise_variance": 0.0, "excluded": False},
        {"device": "south", "samples": 40, "arrivals": 1, "uploaded": True, "noise_variance": 0.5, "excluded": True},
    ]
    summary = {
        **{"federation": "wards", "scheme": "ccfl", "rounds": 3, "seconds": 5.0, "metric": "accuracy", "score": 0.8},
        **{"mean_arrivals": 4 / 3, "devices": devices, "privacy": privacy},
    }
    (results / "summary.json").write_text(json.dumps(summary))
    (folder / "server/state/status.json").write_text(json.dumps({"phase": "completed", "round": 3}))


def test_a_federation_in_progress(federation: Path) -> None:
    (record,) = read_runs([federation])
    assert (record.kind, record.state) == ("federation", "going")
    assert "round 2 of 3" in record.told
    (curve,) = record.curves
    assert (curve.round, curve.training_s, curve.score) == ([1, 2], [2.0, 3.5], [0.5, 0.75])
    assert record.details["arrivals"][0]["attendance"] == ["11", "01"]
    assert record.devices == [
        {"device": "north", "samples": 30, "uploaded": True, "arrivals": 2},
        {"device": "south", "samples": 40, "late": 1, "refused": 1, "arrivals": 1},
    ]
    assert record.notes == ["refused south: update has NaN."]


def test_a_completed_federation(federation: Path) -> None:
    finish(federation)
    (record,) = read_runs([federation])
    assert record.state == "completed"
    assert record.curves[0].score == [0.1, 0.5, 0.75, 0.8]
    assert record.details["arrivals"][0]["attendance"] == ["111", "0-1"]
    page = render_page([record])
    assert "Excluded: south" in page
    assert "<strong>north</strong>: uploads without noise" in page


def test_the_guarantee_of_a_completed_federation_is_on_its_page(federation: Path) -> None:
    upload = Release("subspace sketch", GaussianMechanism(4.0))
    late = Release("updates", GaussianMechanism(8.0), upload=False)
    guarantee = guarantee_of([(upload, late), (upload,)], 1e-5, outside=["noise is as the devices declared it"])
    finish(federation, guarantee.as_dict(["north", "south"]))
    (record,) = read_runs([federation])
    assert record.schemes[0]["privacy"] == guarantee.as_dict()
    page = render_page([record])
    assert "everything that devices send" in page
    assert "each message" in page
    assert "noise is as the devices declared it" in page
    assert "MI-DP" not in page
    for epsilon in guarantee.devices:
        assert f">{epsilon:.4g}<" in page or f">{epsilon:.3g}<" in page
    assert "<strong>north</strong>: uploads without noise" in page


def test_a_federation_without_a_bound_says_so(federation: Path) -> None:
    clear = Release("updates", None, upload=False)
    finish(federation, plain(guarantee_of([(clear,), (clear,)], 1e-5).as_dict(["north", "south"])))
    page = render_page(read_runs([federation]))
    assert "<strong>ccfl</strong>: nothing bounds what devices reveal" in page


def test_its_results_alone_suffice(federation: Path, tmp_path: Path) -> None:
    finish(federation)
    assert read_runs([federation / "results"])[0].path == federation
    (federation / "results").rename(tmp_path / "copy")
    (record,) = read_runs([tmp_path / "copy"])
    assert (record.state, record.metric, record.title) == ("completed", "accuracy", "wards: ccfl on 2 devices")


def test_a_server_that_is_silent_or_stopped_or_not_started(federation: Path) -> None:
    status = federation / "server/state/status.json"
    long_ago = time.time() - 3600
    os.utime(status, (long_ago, long_ago))
    assert read_runs([federation])[0].state == "silent"
    status.write_text(json.dumps({"phase": "stopped", "reason": "the disk is full."}))
    (record,) = read_runs([federation])
    assert record.state == "interrupted"
    assert "federation resume" in record.told
    assert "the disk is full." in record.told
    for path in (status, federation / "server/state/events.jsonl"):
        path.unlink()
    (record,) = read_runs([federation])
    assert (record.state, record.curves) == ("waiting", ())
    assert "not been started" in render_page([record])
