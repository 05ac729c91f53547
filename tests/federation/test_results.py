from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.federation._results import picture, write_results
from codedfl.federation._rounds import Rounds
from codedfl.federation.transport import Kind, Packet
from codedfl.fleet import read_trace
from codedfl.models import Predictor
from codedfl.privacy import rounding_delta
from tests.federation.support import NAMES, copy_federation, digits_config, digits_split, open_clients, run

CONFIG = digits_config(scheme="ccfl", training={"rounds": 5, "evaluate_every": 2})


def disturb(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
    round = request.values.get("round")
    if kind == "train" and (device, round) == ("east", 3):
        return None
    return Packet() if kind == "train" and (device, round) == ("west", 1) else reply


@pytest.fixture(scope="module")
def done(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Rounds]:
    folder = copy_federation(digits, tmp_path_factory.mktemp("results") / "federation", CONFIG)
    return folder / "results", run(folder, open_clients(folder, "sketch"), disturb)


def test_the_saved_model_predicts_from_raw_columns(done: tuple[Path, Rounds]) -> None:
    results, rounds = done
    _, (pixels, labels) = digits_split()
    model = Predictor.load(results / "model.safetensors")
    predicted = model.predict(pixels)
    assert np.mean(predicted == labels.astype(str)) == pytest.approx(rounds.curve[-1]["score"], abs=1e-12)
    np.testing.assert_array_equal(model.weights, rounds.model)
    reordered = pd.DataFrame(pixels, columns=list(CONFIG.data.columns)).iloc[:, ::-1]
    np.testing.assert_array_equal(model.predict_frame(reordered), predicted)
    assert model.target_columns == CONFIG.data.target
    assert (model.provenance["federation"], model.provenance["rounds"]) == ("digits", 5)


def test_the_curve_has_the_start_the_rounds_that_are_due_and_the_end(done: tuple[Path, Rounds]) -> None:
    results, rounds = done
    header, *rows = (results / "curve.csv").read_text().splitlines()
    assert header == "round,seconds,score,mean_arrivals"
    cells = [row.split(",") for row in rows]
    assert [int(row[0]) for row in cells] == [0, 2, 4, 5]
    assert [float(row[2]) for row in cells] == [point["score"] for point in rounds.curve]
    assert [float(row[3]) for row in cells] == [0.0, 7 / 2, 14 / 4, 18 / 5]
    seconds = [float(row[1]) for row in cells]
    assert seconds == sorted(seconds)


def test_the_simulator_reads_the_trace(done: tuple[Path, Rounds]) -> None:
    results, rounds = done
    trace = read_trace(results / "trace.csv", NAMES)
    assert trace.rounds == 5
    assert np.argwhere(~trace.arrived).tolist() == [[1, 3], [3, 1]]
    for k in range(5):
        recorded, read = rounds.arrivals.attend(k), trace.attend(k)
        np.testing.assert_array_equal(recorded.batch_sizes, read.batch_sizes)
        np.testing.assert_array_equal(recorded.probability, read.probability)


def test_the_summary_tells_about_every_device(done: tuple[Path, Rounds]) -> None:
    results, rounds = done
    summary = json.loads((results / "summary.json").read_text())
    devices: list[dict[str, Any]] = summary.pop("devices")
    privacy = summary.pop("privacy")
    assert (privacy["covers"], privacy["epsilon"], list(privacy["devices"])) == ("nothing", None, list(NAMES))
    assert summary == {
        "federation": "digits",
        "scheme": "ccfl",
        "rounds": 5,
        "seconds": round(rounds.trained_s, 3),
        "metric": "accuracy",
        "score": rounds.curve[-1]["score"],
        "mean_arrivals": 18 / 5,
    }
    columns = ("device", "samples", "arrivals", "uploaded", "refused", "late", "excluded")
    assert [tuple(device[name] for name in columns) for device in devices] == [
        ("north", 250, 5, True, 0, 0, False),
        ("east", 350, 4, True, 0, 1, False),
        ("south", 400, 5, True, 0, 0, False),
        ("west", 397, 4, True, 1, 0, False),
    ]


def test_there_is_a_picture(done: tuple[Path, Rounds]) -> None:
    results, _ = done
    assert (results / "federation.png").read_bytes().startswith(b"\x89PNG\r\n")


@pytest.mark.parametrize(
    "make",
    [
        lambda: digits_config(scheme="one-shot"),
        lambda: digits_config(scheme="fedavg", server={"test_file": ""}, training={"rounds": 1}),
    ],
    ids=["without rounds", "without test rows"],
)
def test_results_without_rounds_or_without_scores(
    digits: Path, tmp_path: Path, make: Callable[[], Any], naps: list[float]
) -> None:
    given = make()
    folder = copy_federation(digits, tmp_path / "federation", given)
    rounds = run(folder, open_clients(folder, "coding-factor"))
    summary = json.loads((folder / "results" / "summary.json").read_text())
    assert naps == []
    if given.scheme == "one-shot":
        assert not (folder / "results" / "trace.csv").exists()
        assert summary["mean_arrivals"] == 0.0
        assert summary["score"] > 0.8
    else:
        assert summary["score"] is None
        assert (folder / "results" / "curve.csv").read_text().splitlines()[1] == "0,0.0,,0.0"
        assert [device["uploaded"] for device in summary["devices"]] == [False] * 4
    write_results(folder, given, rounds)
    assert json.loads((folder / "results" / "summary.json").read_text()) == summary, "writing again changes nothing"


def test_a_picture_needs_neither_rounds_nor_scores(digits: Path, tmp_path: Path, naps: list[float]) -> None:  # noqa: ARG001
    given = digits_config(scheme="one-shot", server={"test_file": ""})
    folder = copy_federation(digits, tmp_path / "federation", given)
    rounds = run(folder, open_clients(folder, "coding-factor"))
    assert picture(given, rounds).startswith(b"\x89PNG\r\n")


def test_the_ledger_of_a_device_and_the_guarantee_of_the_federation_agree(digits: Path, tmp_path: Path) -> None:
    """Rounding is part of the delta that is stated, and the same object is in the summary and in the model."""
    coding = {"noise_variance": 400.0, "label_noise_variance": 300.0, "clip_norm": 1.5}
    folder = copy_federation(digits, tmp_path / "federation", digits_config(scheme="one-shot", coding=coding))
    clients = open_clients(folder)
    run(folder, clients)
    privacy = json.loads((folder / "results" / "summary.json").read_text())["privacy"]
    assert privacy["covers"] == "everything"
    for name, client in clients.items():
        assert privacy["devices"][name] == pytest.approx(client.ledger.upload_epsilon(), rel=1e-12)
    largest = rounding_delta(50 * 60 // 2, 1e-6, privacy["epsilon"])
    assert 1e-5 < privacy["delta"] < 1e-5 + largest
    assert Predictor.load(folder / "results" / "model.safetensors").privacy == privacy
