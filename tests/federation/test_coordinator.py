from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._client import Client
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._rounds import Rounds
from codedfl.federation._store import ServerStore, state_folder
from codedfl.federation.transport import Kind, Packet
from codedfl.training import record_arrays
from codedfl.uploads import Received
from tests.federation.support import (
    NAMES,
    InProcess,
    Killed,
    SeededRandomness,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    kill_at,
    missing,
    open_clients,
    purpose_of,
    run,
    simulated,
)
from tests.support import mostly_slow

pytestmark = pytest.mark.usefixtures("naps", "seeded_server")

ROUNDS = 6


def config(scheme: str, options: dict[str, Any] | None = None, **training: Any) -> FederationConfig:
    return digits_config(scheme=scheme, options=options or {}, training={"rounds": ROUNDS, **training})


CONFIGS = {
    "scfl": config("scfl"),
    "scfl, small server batch": config("scfl", server_batch=16),
    "scfl, factor": config("scfl", {"upload": "factor"}),
    "scfl-fixed": config("scfl-fixed"),
    "ccfl": config("ccfl"),
    "ccfl, bernoulli": config("ccfl", {"sampling": "bernoulli", "memory": "none"}),
    "ccfl, noise": config("ccfl", {"noise": True}),
    "ccfl, factor": config("ccfl", {"upload": "factor"}),
    "fedavg": config("fedavg"),
    "momentum": config("momentum"),
    "dp-cfl": config("dp-cfl"),
    "one-shot": config("one-shot"),
    "one-shot, rows": config("one-shot", {"upload": "rows"}),
}


# One algorithm, two runtimes -------------------------------------------------------------------------------------------
#
# With the same draws, both compute the same products of the same numbers in the same order: not even rounding differs.


QUICK = ("scfl, factor", "ccfl, noise", "fedavg", "dp-cfl", "one-shot")
"""One of every kind of upload, and of those without one."""


@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize("name", mostly_slow(CONFIGS, *QUICK))
def test_the_model_is_that_of_the_simulator(made: Callable[..., Path], name: str) -> None:
    given = CONFIGS[name]
    folder = made(given)
    clients = open_clients(folder, purpose_of(given))
    rounds = run(folder, clients, missing)
    np.testing.assert_array_equal(rounds.model, simulated(folder, given, clients, rounds))
    assert np.abs(rounds.model).max() > 0.01, "it has learnt something"
    if given.scheme not in ("dp-cfl", "one-shot"):
        assert rounds.arrivals.probability.tolist() == [4 / 7, 5 / 7, 5 / 7, 6 / 7], "devices were missing"
        sizes = rounds.arrivals.arrays()["batch_sizes"]
        assert (sizes < rounds.roster.sizes).all(), "batches are drawn"


def test_all_rows_are_used_where_there_is_time(made: Callable[..., Path]) -> None:
    given = CONFIGS["scfl"]
    folder = made(given)
    clients = open_clients(folder, "coding")
    rounds = run(folder, clients)
    assert (rounds.arrivals.arrays()["batch_sizes"] == rounds.roster.sizes).all()
    np.testing.assert_array_equal(rounds.model, simulated(folder, given, clients, rounds))


@pytest.mark.parametrize(
    "name", mostly_slow(["scfl", "scfl, factor", "ccfl, noise", "ccfl, factor", "dp-cfl"], "scfl", "ccfl, factor")
)
def test_noise_that_devices_choose_and_devices_that_do_not_upload_are_the_simulators(
    made: Callable[..., Path], name: str
) -> None:
    given = CONFIGS[name]
    folder = made(given)
    change_client(folder, "east", "# noise_variance =", "noise_variance = 0.05")
    change_client(folder, "south", "most_uploads = 1", "most_uploads = 0")
    clients = open_clients(folder, purpose_of(given))
    rounds = run(folder, clients, missing)
    code = rounds.prepared.setting.code
    assert code.uploading.tolist() == [True, True, False, True]
    assert code.noise_variance[1] == 0.05
    assert code.noise_variance[2] == 0.0
    np.testing.assert_array_equal(rounds.model, simulated(folder, given, clients, rounds))


def test_a_federation_of_those_who_joined_is_that_of_the_simulator(made: Callable[..., Path]) -> None:
    """Weights are those of three devices; the fourth is away from the start."""
    given = config("scfl", least_devices=3)
    folder = made(given)
    clients = open_clients(folder, "coding")
    exchange = InProcess(clients)
    exchange.away = {"west"}
    rounds = coordinator(folder, exchange).run()
    assert rounds.roster.names == ("north", "east", "south")
    three = given.model_copy(update={"devices": rounds.roster.names})
    np.testing.assert_array_equal(rounds.model, simulated(folder, three, clients, rounds))


@pytest.mark.slow
def test_the_learning_rate_is_relative_to_the_curvature(made: Callable[..., Path]) -> None:
    given = config("fedavg", rounds=1)
    folder = made(given)
    clients = open_clients(folder, "coding")
    largest = [np.linalg.norm(np.asarray(clients[name].rows.features, np.float64), 2) ** 2 for name in NAMES]
    assert run(folder, clients).learning_rate.initial == pytest.approx(0.25 / sum(largest), rel=1e-6)


def test_the_learning_rate_of_coded_data_does_not_count_the_noise(made: Callable[..., Path]) -> None:
    given = digits_config(scheme="scfl", coding={"noise_variance": 5.0}, training={"rounds": 1})
    folder = made(given)
    rounds = run(folder, open_clients(folder, "coding"))
    (coded,) = rounds.prepared.held
    eigenvalues = np.linalg.eigvalsh(coded.features.T.astype(np.float64) @ coded.features / 200)
    assert coded.noise_variance == 20.0
    assert rounds.learning_rate.initial == pytest.approx(0.25 / (eigenvalues[-1] - 20.0), rel=1e-5)


# Killed and resumed ----------------------------------------------------------------------------------------------------


def seeded(folder: Path, given: FederationConfig) -> dict[str, Client]:
    return open_clients(folder, purpose_of(given))


def draws(*processes: dict[str, Client]) -> list[int]:
    """Return how often every device drew an upload, over all processes that it ran in."""
    return [sum(cast(SeededRandomness, clients[name].randomness).drawn for clients in processes) for name in NAMES]


def assert_same_end(one: Rounds, other: Rounds) -> None:
    ended = record_arrays("state", other.state)
    for name, value in record_arrays("state", one.state).items():
        np.testing.assert_array_equal(ended[name], value, err_msg=name)
    assert other.arrivals.rounds == one.arrivals.rounds
    for name, array in one.arrivals.arrays().items():
        np.testing.assert_array_equal(other.arrivals.arrays()[name], array)
    assert [point["score"] for point in other.curve] == [point["score"] for point in one.curve]
    assert other.strides == one.strides


MESSAGES = 4 + 4 + 3 * 4
"""Of a run of three rounds: greetings, uploads and updates."""


@pytest.fixture(scope="module")
def uninterrupted(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[FederationConfig], Rounds]:
    done: dict[str, Rounds] = {}

    def of(given: FederationConfig) -> Rounds:
        key = repr(given)
        if key not in done:
            folder = copy_federation(digits, tmp_path_factory.mktemp("uninterrupted") / "federation", given)
            done[key] = run(folder, seeded(folder, given), missing)
        return done[key]

    return of


@pytest.mark.slow
@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize("scheme", ["ccfl", "scfl"])
@pytest.mark.parametrize("count", [0, 2, 4, 5, 7, 8, 11, 12, 15, 19])
def test_a_server_killed_at_any_message_ends_as_if_it_had_not_been(
    made: Callable[..., Path], uninterrupted: Callable[[FederationConfig], Rounds], scheme: str, count: int
) -> None:
    given = config(scheme, rounds=3)
    expected = uninterrupted(given)
    folder = made(given)
    clients = seeded(folder, given)
    exchange = InProcess(clients, kill_at(count, missing))
    with pytest.raises(Killed):
        coordinator(folder, exchange).run()
    held = [name for name in NAMES if ServerStore(state_folder(folder)).has_upload(name)]
    again = InProcess(clients, missing)
    resumed = coordinator(folder, again).run()
    assert_same_end(expected, resumed)
    assert draws(clients) == [1, 1, 1, 1], "nothing was drawn twice"
    assert {device for device, kind in again.asked if kind == "coded"}.isdisjoint(held)
    assert all(len(client.ledger.uploads()) == 1 for client in clients.values())


@pytest.mark.slow
@pytest.mark.usefixtures("parts_of_rows")
def test_server_and_devices_killed_again_and_again_end_as_if_they_had_not_been(
    made: Callable[..., Path], uninterrupted: Callable[[FederationConfig], Rounds]
) -> None:
    given = config("ccfl", rounds=3)
    folder = made(given)
    processes = []
    for lives in range(2 * MESSAGES):
        processes.append(seeded(folder, given))
        try:
            rounds = run(folder, processes[-1], kill_at(4 + lives % 3, missing))
        except Killed:
            continue
        break
    assert len(processes) > 3
    assert_same_end(uninterrupted(given), rounds)
    assert draws(*processes) == [1, 1, 1, 1]


@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize(
    "at",
    mostly_slow(
        ["roster.json", "uploaded.txt", "checkpoint-1.npz", "checkpoint-3.npz", "summary.json"], "checkpoint-3.npz"
    ),
)
def test_a_server_killed_while_it_writes_a_file_ends_as_if_it_had_not_been(
    made: Callable[..., Path],
    uninterrupted: Callable[[FederationConfig], Rounds],
    monkeypatch: pytest.MonkeyPatch,
    at: str,
) -> None:
    """The content is written, and the name is not yet given: that is one step, in which nothing is lost."""
    given = config("ccfl", rounds=3)
    folder = made(given)
    clients = seeded(folder, given)
    replace = Path.replace

    def kill(self: Path, target: Path) -> Path:
        if target.name == at:
            os.link(self, f"{self}.left")  # what a killed process leaves behind
            raise Killed
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", kill)
        with pytest.raises(Killed):
            run(folder, clients, missing)
    assert_same_end(uninterrupted(given), run(folder, clients, missing))
    assert draws(clients) == [1, 1, 1, 1]


@pytest.mark.usefixtures("parts_of_rows")
@pytest.mark.parametrize("damage", ["truncated", "flipped", "empty"])
def test_a_damaged_checkpoint_is_noticed_and_the_older_one_used(
    made: Callable[..., Path], uninterrupted: Callable[[FederationConfig], Rounds], damage: str
) -> None:
    given = config("ccfl", rounds=3)
    folder = made(given)
    clients = seeded(folder, given)
    with pytest.raises(Killed):
        run(folder, clients, kill_at(4 + 4 + 2 * 4 + 1, missing))
    newest = state_folder(folder) / "checkpoint-2.npz"
    content = bytearray(newest.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 1
    else:
        del content[len(content) // 2 if damage == "truncated" else 0 :]
    newest.write_bytes(content)
    assert_same_end(uninterrupted(given), run(folder, clients, missing))
    (note,) = events(folder, "older checkpoint")
    assert "checkpoint-2.npz" in note["reason"]
    assert "continues from checkpoint-1.npz" in note["reason"]
    assert [event["round"] for event in events(folder, "resumed")] == [1]


def test_a_completed_federation_is_not_trained_again(made: Callable[..., Path]) -> None:
    given = config("scfl", rounds=2)
    folder = made(given)
    clients = seeded(folder, given)
    first = run(folder, clients)
    again = InProcess(clients)
    assert_same_end(first, coordinator(folder, again).run())
    assert again.asked == []


def test_more_rounds_may_be_added(made: Callable[..., Path]) -> None:
    folder = made(config("ccfl", rounds=2))
    clients = seeded(folder, config("ccfl", rounds=2))
    run(folder, clients)
    path = folder / "federation.toml"
    path.write_text(path.read_text().replace("rounds = 2\n", "rounds = 4\n"))
    exchange = InProcess(clients)
    assert coordinator(folder, exchange).run().state.round == 4
    assert {kind for _, kind in exchange.asked} == {"train"}


def test_a_federation_that_was_changed_is_refused(made: Callable[..., Path]) -> None:
    given = config("ccfl", rounds=3)
    folder = made(given)
    clients = seeded(folder, given)
    with pytest.raises(Killed):
        run(folder, clients, kill_at(10))
    path = folder / "federation.toml"
    path.write_text(path.read_text().replace("coded_samples = 200", "coded_samples = 300"))
    with pytest.raises(InputError, match=r"federation\.toml has been changed since the devices joined"):
        run(folder, clients)


def test_once_training_has_begun_nobody_joins_the_uploads(made: Callable[..., Path]) -> None:
    """Coded data that came later would change what the rounds before stand for."""
    given = config("scfl", rounds=3)
    folder = made(given)
    clients = seeded(folder, given)

    def no_upload(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        if request.values.get("round") == 1:
            raise Killed
        return None if (device, kind) == ("west", "coded") else reply

    with pytest.raises(Killed):
        run(folder, clients, no_upload)
    exchange = InProcess(clients)
    rounds = coordinator(folder, exchange).run()
    assert rounds.prepared.setting.code.uploading.tolist() == [True, True, True, False]
    assert ("west", "coded") not in exchange.asked


def test_without_a_single_upload_there_is_no_training(made: Callable[..., Path]) -> None:
    given = config("scfl", rounds=3)
    folder = made(given)
    for name in NAMES:
        change_client(folder, name, "most_uploads = 1", "most_uploads = 0")
    with pytest.raises(InputError, match="no device uploaded anything"):
        run(folder, seeded(folder, given))
    for name in NAMES:
        change_client(folder, name, "most_uploads = 0", "most_uploads = 1")
    assert run(folder, seeded(folder, given)).state.round == 3, "mended and resumed"


def test_standing_outlives_the_server(made: Callable[..., Path]) -> None:
    given = config("scfl", rounds=4)

    def bad(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        return Packet() if (device, kind) == ("east", "train") else reply

    folder = made(given)
    clients = seeded(folder, given)
    with pytest.raises(Killed):
        run(folder, clients, kill_at(4 + 4 + 2 * 4 + 1, bad))
    exchange = InProcess(clients, bad)
    rounds = coordinator(folder, exchange).run()
    assert rounds.standing.excluded == ("east",)
    assert exchange.asked.count(("east", "train")) == 1, "two bad updates were counted before"


def test_what_happens_is_written_down(made: Callable[..., Path]) -> None:
    given = config("ccfl", rounds=2)
    folder = made(given)
    run(folder, seeded(folder, given))
    names = [event["event"] for event in events(folder)]
    assert names == ["started", *["joined"] * 4, *["uploaded"] * 4, "round", "round", "completed"]
    status = ServerStore(state_folder(folder)).read_status()
    assert status is not None
    assert (status["phase"], status["round"]) == ("completed", 2)


def test_every_upload_is_read_once_in_the_order_of_names(
    made: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config("scfl", rounds=1)
    folder = made(given)
    read: list[str] = []
    upload = ServerStore.upload

    def noted(self: ServerStore, device: str, kind: str) -> Received:
        read.append(device)
        return upload(self, device, kind)

    monkeypatch.setattr(ServerStore, "upload", noted)
    run(folder, seeded(folder, given))
    assert read == sorted(NAMES)


def test_events_are_read_once(tmp_path: Path) -> None:
    store = ServerStore(tmp_path)
    reader = store.read_events()
    assert reader.read_new() == []
    store.append_event({"event": "one"})
    assert [event["event"] for event in reader.read_new()] == ["one"]
    path = tmp_path / "events.jsonl"
    with path.open("ab") as file:
        file.write(b'{"event": "tw')
    assert reader.read_new() == [], "it is still being written"
    with path.open("ab") as file:
        file.write(b'o"}\n')
    assert [event["event"] for event in reader.read_new()] == ["two"]
    assert reader.read_new() == []
    assert [event["event"] for event in store.events()] == ["one", "two"]
