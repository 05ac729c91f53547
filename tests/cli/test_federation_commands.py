"""The commands of a federation, without starting one; tests/federation/test_federation.py does that."""

from __future__ import annotations

import json
from dataclasses import asdict
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from codedfl.cli import federation_commands
from codedfl.cli.federation_tables import ledger_table, privacy_sentence, sentence
from codedfl.federation import read_client, read_federation
from codedfl.federation._store import ServerStore
from codedfl.privacy import CodedMechanism, GaussianMechanism, epsilon_of, gaussian_epsilon
from tests.federation.support import NAMES, digits_config, make_federation, open_clients
from tests.support import Cli

SAMPLE = "age,dose,ill\n30,0.5,no\n55,2.0,yes\n41,1.0,no\n"


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(monkeypatch, capsys)


@pytest.fixture
def sample() -> Path:
    path = Path("sample.csv")
    path.write_text(SAMPLE)
    return path


def test_init_makes_a_federation_from_a_public_sample(cli: Cli, sample: Path) -> None:
    devices = ("--device", "a", "--device", "b")
    made = cli("federation", "init", "f", "--sample", str(sample), "--target", "ill", *devices, "--scheme", "scfl",
               "--address", "192.0.2.7:4433", "--set", "training.rounds=7", "--set", "options.device_weight=0.25")  # fmt: skip
    assert made.code == 0
    config = read_federation("f/federation.toml")
    assert (config.scheme, config.options["device_weight"], config.training.rounds) == ("scfl", 0.25, 7)
    assert (config.data.columns, config.data.classes) == (("age", "dose"), ("no", "yes"))
    client = read_client("f/devices/b/client.toml")
    assert (client.name, client.server, client.insecure) == ("b", "192.0.2.7:4433", False)
    assert "federation server f" in made.out


def test_insecure_must_be_asked_for_and_is_said(cli: Cli, sample: Path) -> None:
    made = cli("federation", "init", "f", "--sample", str(sample), "--target", "ill", "--device", "a", "--insecure")
    assert made.code == 0
    assert "Nothing is encrypted" in made.out
    assert read_client("f/devices/a/client.toml").insecure


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give either --sample"),
        (("--sample", "sample.csv"), "--sample needs --target"),
        (("--sample", "nowhere.csv", "--target", "ill", "--device", "a"), "nowhere.csv"),
        (("--sample", "sample.csv", "--target", "ill", "--device", "../a"), "devices"),
        (
            ("--sample", "sample.csv", "--target", "ill", "--device", "a", "--scheme", "cfl-fb"),
            "not offered over a network",
        ),
        (
            ("--sample", "sample.csv", "--target", "ill", "--device", "a", "--set", "training.roundz=3"),
            "training.roundz",
        ),
        (("--sample", "sample.csv", "--target", "ill", "--device", "a", "--address", "here"), "server.address"),
    ],
)
@pytest.mark.usefixtures("sample")
def test_wrong_options_of_init_end_in_one_sentence(cli: Cli, options: tuple[str, ...], message: str) -> None:
    refused = cli("federation", "init", "f", *options)
    assert refused.code == 2
    assert message in refused.err
    assert refused.err.count("\n") == 1
    assert not Path("f").exists()


def test_a_device_can_be_added(cli: Cli, sample: Path) -> None:
    cli("federation", "init", "f", "--sample", str(sample), "--target", "ill", "--device", "a")
    added = cli("federation", "add-device", "f", "b")
    assert added.code == 0
    assert read_federation("f/federation.toml").devices == ("a", "b")
    assert "roster/b.pub" in added.out.replace("\n", "")


def test_server_and_resume_refuse_the_wrong_moment(cli: Cli) -> None:
    make_federation(Path("f"), digits_config())
    refused = cli("federation", "resume", "f")
    assert (refused.code, "codedfl federation server" in refused.err) == (2, True)
    store = ServerStore("f/server/state")
    store.folder.mkdir(parents=True)
    store.write_status({"phase": "training", "round": 3, "rounds": 9})
    refused = cli("federation", "server", "f")
    assert (refused.code, "codedfl federation resume" in refused.err) == (2, True)
    store.write_status({"phase": "completed"})
    for command in ("server", "resume"):
        refused = cli("federation", command, "f")
        assert (refused.code, "is complete" in refused.err) == (2, True)


def test_what_could_not_be_trained_is_refused_before_anything_starts(cli: Cli) -> None:
    few = digits_config(scheme="scfl", options={"upload": "factor"}, coding={"coded_samples": 59})
    make_federation(Path("few"), few)
    cli("federation", "server", "few").assert_refused("coding.coded_samples = 59", "60 columns")
    make_federation(Path("none"), digits_config())
    Path("none/test.csv").unlink()
    cli("federation", "server", "none").assert_refused("test.csv")
    for folder in ("few", "none"):
        assert not Path(folder, "server/state").exists()


def test_folders_that_are_none_are_refused(cli: Cli) -> None:
    for command in ("server", "resume", "client", "status", "ledger"):
        refused = cli("federation", command, "nowhere")
        assert refused.code == 2, command
        assert "nowhere" in refused.err


def test_status_says_how_far_it_is(cli: Cli) -> None:
    make_federation(Path("f"), digits_config())
    assert "not started" in cli("federation", "status", "f").out
    store = ServerStore("f/server/state")
    store.folder.mkdir(parents=True)
    store.write_status({"phase": "training", "round": 3, "rounds": 9, "score": 0.75})
    for event in (
        {"event": "joined", "device": "north"},
        {"event": "round", "arrived": ["north", "east"]},
        {"event": "late", "device": "west"},
    ):
        store.append_event(event)
    shown = cli("federation", "status", "f").out
    assert "round 3 of 9" in shown
    assert "0.7500" in shown
    told = json.loads(cli("federation", "status", "f", "--json").out)
    assert told["status"]["round"] == 3
    assert tuple(told["devices"]) == NAMES


def test_the_ledger_of_a_device_is_shown_and_an_altered_one_refused(cli: Cli) -> None:
    make_federation(Path("f"), digits_config())
    assert "released nothing yet" in cli("federation", "ledger", "f/devices/north").err
    client = open_clients(Path("f"))["north"]
    from codedfl.federation.transport import Packet

    client.answer("coded", Packet({}, {"prescription": client.federation.prescription()}))
    (entry,) = json.loads(cli("federation", "ledger", "f/devices/north", "--json").out)
    assert entry["kind"] == "upload"
    assert "upload" in cli("federation", "ledger", "f/devices/north").out
    path = Path("f/devices/north/state/ledger.jsonl")
    path.write_text(path.read_text().replace('"upload"', '"answer"'))
    assert cli("federation", "ledger", "f/devices/north").code == 2


def told_of(ledger: list[dict[str, object]]) -> str:
    console = Console(file=StringIO(), width=200)
    console.print(ledger_table(ledger, 1e-5))
    file = console.file
    assert isinstance(file, StringIO)
    return file.getvalue()


def test_private_releases_are_composed() -> None:
    common = {"time": "now", "federation": "wards", "size_bytes": 10, "noise_variance": 4.0, "epsilon": 0.5}
    updates = [{**common, "kind": "update", "mu": 0.3} for _ in range(4)]
    upload, repeat = {**common, "kind": "upload", "mu": 0.8}, {**common, "kind": "repeat", "mu": 0.3}
    shown = told_of([upload, *updates, repeat])
    assert f"{gaussian_epsilon(0.6, 1e-5):.4g}" in shown, "the updates in one line"
    (repeated,) = (line for line in shown.splitlines() if "repeat" in line)
    assert repeated.split()[-1] == "0"
    assert f"uploads and updates together: epsilon = {gaussian_epsilon(1.0, 1e-5):.6g} at delta = 1e-05" in shown
    clear = told_of([{**common, "kind": "update", "mu": None, "epsilon": None}])
    assert "no bound" in clear
    assert "together" not in clear


def test_coded_releases_are_composed_with_them() -> None:
    common = {"time": "now", "federation": "wards", "size_bytes": 10, "noise_variance": 4.0, "epsilon": 0.9}
    mechanisms = CodedMechanism(300, 0.02), GaussianMechanism(2.0)
    coded = asdict(mechanisms[0])
    told = told_of([{**common, "kind": "upload", "mu": None, "coded": coded}, {**common, "kind": "update", "mu": 0.5}])
    assert f"uploads and updates together: epsilon = {epsilon_of(mechanisms, 1e-5):.6g} at delta = 1e-05" in told
    (upload,) = (line for line in told.splitlines() if " upload " in line)
    assert upload.split()[-1] == f"{epsilon_of(mechanisms[:1], 1e-5):.4g}"


def test_exact_statistics_are_announced(cli: Cli, sample: Path) -> None:
    options = ("--sample", str(sample), "--target", "ill", "--device", "a", "--scheme", "fed3r")
    made = cli("federation", "init", "f", *options)
    assert "learns exact second moments of every device" in made.out.replace("\n", " ")
    assert json.loads(cli("federation", "init", "g", *options, "--json").out)["upload_has_noise"] is False


def test_a_federation_says_what_may_be_claimed() -> None:
    statement = {"covers": "upload", "epsilon": 2.5, "delta": 1e-5, "threat_model": "sums only"}
    assert privacy_sentence(statement) == (
        "privacy: epsilon = 2.5 at delta = 1e-05 covers the uploads, and not the updates, against a server that sees sums only"
    )
    assert privacy_sentence({**statement, "covers": "nothing"}) == "privacy: no epsilon covers what devices sent"


def test_without_the_extra_the_command_says_what_to_install(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(federation_commands, "find_spec", lambda _: None)
    refused = cli("federation", "demo")
    assert refused.code == 2
    assert 'pip install "codedfl[flower]"' in refused.err


def test_events_are_told_in_words() -> None:
    event = {"event": "round", "round": 2, "rounds": 9, "arrived": [], "seconds": 1.25, "score": None}
    assert sentence(event) == "round 2 of 9: nobody in 1.2 s"
    assert sentence({"event": "summed", "devices": ["a", "b"]}).startswith("the sum over a, b is complete")
    assert sentence({"event": "something else"}) == ""
