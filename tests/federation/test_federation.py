"""A federation of real processes, with TLS and authentication, and everything that can happen to it.

Every scenario starts a SuperLink, the server's program and four devices on loopback. Devices that die are started again, as a
service manager does.
"""

from __future__ import annotations

import math
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.federation import mechanism_of
from codedfl.federation._device_data import load_rows
from codedfl.federation._settings import pooled_setting
from codedfl.federation._setup import initialise
from codedfl.federation._store import ServerStore, state_folder
from codedfl.fleet import read_trace
from codedfl.models import Predictor
from codedfl.privacy import epsilon_of
from codedfl.schemes import make_scheme
from codedfl.training import LearningRate, WalkPlan, train
from tests.federation.device import EVERY
from tests.federation.faults import record
from tests.federation.processes import Processes, count
from tests.federation.support import NAMES

pytestmark = [pytest.mark.federation, pytest.mark.xdist_group("federation")]

ROUNDS = 7
TEST_ROWS = 400


def simulated(federation: Processes) -> tuple[np.ndarray[Any, Any], float]:
    """Return model and accuracy of the simulator, with the recorded arrivals and the devices' own generators."""
    config, folder = federation.config, federation.folder
    rows = {name: load_rows(folder / "devices" / name / "data.csv", config) for name in NAMES}
    setting = pooled_setting(config, rows, load_rows(folder / "test.csv", config))
    trace = read_trace(folder / "results" / "trace.csv", NAMES)
    checkpoint = ServerStore(state_folder(folder)).load()
    assert checkpoint is not None
    strides = np.array(checkpoint.values["strides"])
    scheme = make_scheme(config.scheme, config.options)
    plan = WalkPlan(setting.federation, setting.streams, 1, trace, strides=strides)
    result = train(scheme.prepare(setting, arrivals=trace, plan=plan), LearningRate(1.0), trace.rounds)
    return result.model, result.final.score


def require_no_worse(summary: dict[str, Any], undisturbed: float) -> None:
    """Refuse an accuracy below that of an undisturbed run by more than the noise of the test rows: three standard errors."""
    error = math.sqrt(2 * undisturbed * (1 - undisturbed) / TEST_ROWS)
    assert summary["score"] > undisturbed - 3 * error


def require_one_upload(federation: Processes) -> None:
    """Refuse a device that drew its upload more than once."""
    for name in NAMES:
        digests = {entry["digest"] for entry in federation.ledger(name) if entry["kind"] in ("upload", "repeat")}
        kinds = [entry["kind"] for entry in federation.ledger(name)]
        assert kinds.count("upload") == 1
        assert len(digests) == 1


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Processes, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("federation") / "undisturbed"
    seeded = dict.fromkeys(NAMES, ("--seeded", "sketch"))
    with Processes(folder, seeded, training={"rounds": ROUNDS, "deadline_s": 10.0, "first_batch": 90}) as federation:
        federation.start_server()
        return federation, federation.complete()


def test_the_model_is_that_of_the_simulator_with_the_same_arrivals_and_draws(
    undisturbed: tuple[Processes, dict[str, Any]],
) -> None:
    federation, summary = undisturbed
    expected, score = simulated(federation)
    model = Predictor.load(federation.folder / "results" / "model.safetensors").weights
    # Both sum the same terms, at most 400 rows a round and device, in float32: so much per round, relative to the model.
    bound = ROUNDS * 400 * np.finfo(np.float32).eps
    assert np.linalg.norm(model - expected) < bound * np.linalg.norm(expected)
    assert summary["score"] == pytest.approx(score, abs=1 / TEST_ROWS)
    assert summary["mean_arrivals"] == len(NAMES)
    require_one_upload(federation)
    record("nothing")


def test_devices_that_are_killed_come_back(tmp_path: Path, undisturbed: tuple[Processes, dict[str, Any]]) -> None:
    faults = dict(
        zip(NAMES, ("killed before its upload", "killed during its upload", "killed after its upload"), strict=False)
    )
    options = {name: ("--fault", fault) for name, fault in faults.items()}
    with Processes(tmp_path / "f", options, training={"rounds": ROUNDS, "deadline_s": 4.0}) as federation:
        federation.start_server()
        summary = federation.complete()
        for name, fault in faults.items():
            assert federation.started[name] == 2, fault
            assert summary["devices"][NAMES.index(name)]["uploaded"]
            record(fault)
        # Back within the deadline, it says that it has forgotten the request; otherwise it is late.
        missed = count(federation.events(), "late", NAMES[2]) + count(federation.events(), "failed", NAMES[2])
        assert missed >= 1, "the round of its death completes without it"
        assert any(NAMES[2] not in event["arrived"] for event in federation.events() if event["event"] == "round")
        assert summary["devices"][2]["arrivals"] >= ROUNDS - 4, "it rejoins"
        require_one_upload(federation)
        require_no_worse(summary, undisturbed[1]["score"])


def test_a_server_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, undisturbed: tuple[Processes, dict[str, Any]]
) -> None:
    options = {"west": ("--slow", "1.5")}
    with Processes(tmp_path / "f", options, training={"rounds": ROUNDS, "deadline_s": 6.0}) as federation:
        federation.start_server()
        federation.wait(lambda events: count(events, "uploaded") >= 1)
        federation.kill_program()
        assert 1 <= count(federation.events(), "uploaded") < len(NAMES), "killed in the middle of the uploads"

        federation.start_server("resume", path=_dying_in_a_checkpoint(tmp_path, "checkpoint-3.npz"))
        federation.wait(lambda _: (tmp_path / "died").exists())
        assert federation.server is not None
        assert federation.server.wait(timeout=30) == 2
        assert not (state_folder(federation.folder) / "checkpoint-3.npz").exists()

        federation.start_server("resume")
        federation.wait(lambda events: count(events, "round") >= 4)
        time.sleep(0.5)
        federation.kill_command()
        completed = max(event["round"] for event in federation.events() if event["event"] == "round")
        newest = max(state_folder(federation.folder).glob("checkpoint-*.npz"), key=_round_of)
        assert _round_of(newest) >= completed
        newest.write_bytes(newest.read_bytes()[:-200])

        federation.start_server("resume")
        summary = federation.complete()
        assert count(federation.events(), "older checkpoint") == 1
        resumed = [event["round"] for event in federation.events() if event["event"] == "resumed"]
        assert resumed == [2, _round_of(newest) - 1]
        assert summary["rounds"] == ROUNDS
        for name in NAMES:
            assert count(federation.events(), "uploaded", name) == 1, "no device is asked to encode again"
        require_one_upload(federation)
        require_no_worse(summary, undisturbed[1]["score"])
    for fault in ("during upload", "in a checkpoint", "in a round"):
        record(f"server killed {fault}")
    record("truncated checkpoint", again=1)  # the one before it is of the round before


def _round_of(checkpoint: Path) -> int:
    return int(checkpoint.stem.partition("-")[2])


def _dying_in_a_checkpoint(folder: Path, name: str) -> Path:
    """Return a folder whose code kills the process that is about to give a checkpoint its name, once."""
    place = folder / "site"
    place.mkdir()
    mark = folder / "died"
    (place / "sitecustomize.py").write_text(
        f"""import os, pathlib, signal
real = pathlib.Path.replace
def replace(self, target):
    if pathlib.Path(target).name == {name!r} and not os.path.exists({str(mark)!r}):
        open({str(mark)!r}, "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    return real(self, target)
pathlib.Path.replace = replace
"""
    )
    return place


def test_broken_messages_are_refused_and_the_round_goes_on(
    tmp_path: Path, undisturbed: tuple[Processes, dict[str, Any]]
) -> None:
    faults = dict(
        zip(
            NAMES,
            ("NaN in its update", "update of a wrong width", "update ten times too large", "update of a wrong round"),
            strict=True,
        )
    )
    options = {name: ("--fault", fault) for name, fault in faults.items()}
    training = {"rounds": ROUNDS, "deadline_s": 6.0, "norm_bound": 3.0}
    with Processes(tmp_path / "f", options, training=training) as federation:
        federation.start_server()
        summary = federation.complete()
        broken = len(range(1, ROUNDS, EVERY))
        for i, (name, fault) in enumerate(faults.items()):
            kind = "bounded" if fault == "update ten times too large" else "refused"
            assert count(federation.events(), kind, name) == broken, fault
            assert not summary["devices"][i]["excluded"]
            record(fault, tried=broken)
        require_one_upload(federation)
        require_no_worse(summary, undisturbed[1]["score"])


def test_a_slow_device_holds_nobody_up_and_a_stranger_is_kept_out(
    tmp_path: Path, undisturbed: tuple[Processes, dict[str, Any]]
) -> None:
    with Processes(
        tmp_path / "f", {"east": ("--slow", "3.5")}, training={"rounds": ROUNDS, "deadline_s": 2.5}
    ) as federation:
        stranger = tmp_path / "stranger"
        initialise(stranger, federation.config, hosts=[])
        folder = stranger / "devices" / "north"
        own = federation.folder / "devices" / "north"
        shutil.copy(own / "data.csv", folder / "data.csv")
        shutil.copy(own / "ca.crt", folder / "ca.crt")  # it trusts the server, but the server does not know its key
        federation.start_device("stranger", folder)
        federation.start_server()
        summary = federation.complete()
        assert count(federation.events(), "late", "east") >= 1
        assert summary["devices"][0]["arrivals"] >= ROUNDS - 1, "the stranger does not take the place of the real one"
        assert not (folder / "state" / "node").exists(), "it was never connected"
        assert "no connection" in (folder / "client.log").read_text()
        require_one_upload(federation)
        require_no_worse(summary, undisturbed[1]["score"])
    record("slow", tried=count(federation.events(), "late", "east"))
    record("unregistered")


@pytest.mark.parametrize("scheme", ["dp-gd", "scfl-private"])
def test_one_epsilon_covers_a_private_federation_whose_devices_are_killed(tmp_path: Path, scheme: str) -> None:
    epsilon = 4.0
    options = {"east": ("--fault", "killed during its upload"), "south": ("--fault", "killed after its upload")}
    training = {"deadline_s": 6.0}
    private: dict[str, Any] = {"scheme": scheme, "options": {"rounds": ROUNDS}, "privacy": {"epsilon": epsilon}}
    with Processes(tmp_path / "f", options, training=training, **private) as federation:
        federation.start_server()
        summary = federation.complete()
        assert federation.started["east"] == federation.started["south"] == 2
        require_one_upload(federation)
        statement = summary["privacy"]
        assert (statement["covers"], statement["threat_model"]) == ("everything", "each message")
        for name in NAMES:
            sent = [entry for entry in federation.ledger(name) if entry["kind"] in ("upload", "update")]
            mechanisms = [mechanism_of(entry["mu"], entry.get("coded")) for entry in sent]
            released = epsilon_of([each for each in mechanisms if each is not None], 1e-5)
            assert released <= epsilon * (1 + 1e-9), name
            assert released <= statement["devices"][name] * (1 + 1e-9), name
            rounds = [entry["round"] for entry in sent if entry["kind"] == "update"]
            assert len(rounds) == len(set(rounds)), "the same round is the same update"
        assert statement["epsilon"] == pytest.approx(epsilon, rel=1e-4)
        assert summary["score"] > 0.3, "a constant answer is right for a tenth of the digits"


def test_a_masked_upload_survives_the_death_of_a_device(tmp_path: Path) -> None:
    options: dict[str, tuple[str, ...]] = {"east": ("--fault", "killed during its upload", "--seeded", "coding")}
    for name in ("north", "south", "west"):
        options[name] = ("--seeded", "coding")
    coding, training = {"sums_only": True, "coded_samples": 200}, {"rounds": 2, "deadline_s": 6.0, "upload_s": 80.0}
    with Processes(tmp_path / "f", options, scheme="scfl", coding=coding, training=training) as federation:
        federation.start_server()
        summary = federation.complete()
        assert federation.started["east"] == 2
        assert all(device["uploaded"] for device in summary["devices"])
        require_one_upload(federation)
        config, folder = federation.config, federation.folder
        rows = {name: load_rows(folder / "devices" / name / "data.csv", config) for name in NAMES}
        setting = pooled_setting(config, rows, load_rows(folder / "test.csv", config))
        (expected,) = make_scheme("scfl").prepare(setting).held
        held = ServerStore(state_folder(folder)).upload("sum", "rows").arrays["features"]
        # Four devices in fixed point with 24 binary digits, and float32 on both sides.
        largest = float(np.abs(expected.features).max())
        assert np.abs(held - expected.features).max() < 4 * 2.0**-25 + 8 * np.finfo(np.float32).eps * largest
        assert [path.stem for path in (state_folder(folder) / "uploads").iterdir()] == ["sum"]
    record("masked")
