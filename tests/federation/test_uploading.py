from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from codedfl.federation._client import Client
from codedfl.federation._coordinator import Coordinator
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._joining import Joining
from codedfl.federation._requests import UploadTask
from codedfl.federation._uploading import Uploading
from codedfl.federation.transport import Kind, Packet
from tests.federation.support import (
    NAMES,
    Clock,
    InProcess,
    Killed,
    SeededRandomness,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    open_clients,
    purpose_of,
)

SCFL = digits_config(scheme="scfl", training={"upload_s": 60.0})
CCFL = digits_config(scheme="ccfl", training={"upload_s": 60.0})
OTHERS = ("east", "south", "west")


class Collecting:
    """A server whose devices have joined, on a clock that nobody has to wait for."""

    def __init__(self, folder: Path, config: FederationConfig, clients: dict[str, Client]) -> None:
        self.folder, self.clock = folder, Clock()
        self.exchange = InProcess(clients)
        self.server: Coordinator = coordinator(folder, self.exchange, self.clock)
        roster = Joining(self.server.context).roster()
        self.exchange.asked.clear()
        task = UploadTask.of(config)
        assert task is not None
        self.uploading = Uploading(self.server.context, roster, task)


@pytest.fixture
def collecting(digits: Path, tmp_path: Path) -> Callable[..., Collecting]:
    def make(config: FederationConfig = SCFL, policies: dict[str, tuple[str, str]] | None = None) -> Collecting:
        folder = copy_federation(digits, tmp_path / "federation", config)
        for name, change in (policies or {}).items():
            change_client(folder, name, *change)
        return Collecting(folder, config, open_clients(folder, purpose_of(config)))

    return make


def draws(clients: dict[str, Client]) -> list[int]:
    return [cast(SeededRandomness, clients[name].randomness).drawn for name in NAMES]


def test_every_upload_is_kept_as_it_was_sent(collecting: Callable[..., Collecting]) -> None:
    run = collecting()
    assert run.uploading.collect() == NAMES
    assert run.clock.naps == [], "there is nothing to wait for"
    assert run.exchange.asked == [(name, "coded") for name in NAMES]
    for name in NAMES:
        stored = run.server.store.upload(name, "rows")
        again = run.exchange.clients[name].answer("coded", Packet({}, {"prescription": SCFL.prescription()}))
        assert (stored.kind, stored.noise_variance, stored.label_noise_variance) == ("rows", 0.01, 0.0)
        for key, array in again.arrays.items():
            np.testing.assert_array_equal(stored.arrays[key], array)
    assert [event["device"] for event in events(run.folder, "uploaded")] == list(NAMES)
    assert draws(run.exchange.clients) == [1, 1, 1, 1]


def test_a_device_that_is_away_is_waited_for(collecting: Callable[..., Collecting]) -> None:
    run = collecting()
    run.exchange.away = {"north"}

    def sleep(seconds: float) -> None:
        run.clock.sleep(seconds)
        if len(run.clock.naps) == 4:
            run.exchange.away.clear()

    run.server.context.sleep = sleep
    assert run.uploading.collect() == NAMES
    assert run.exchange.asked == [*((name, "coded") for name in OTHERS), ("north", "coded")]
    assert run.clock.naps == [0.5] * 4


def test_after_the_time_for_uploads_training_starts_without(collecting: Callable[..., Collecting]) -> None:
    run = collecting()
    run.exchange.away = {"north"}
    assert run.uploading.collect() == OTHERS
    assert 160.0 <= run.clock.now < 161.0
    assert [event["device"] for event in events(run.folder, "no upload")] == ["north"]
    assert run.server.context.standing.of("north").late == 1
    assert not run.server.context.standing.is_excluded("north")


def test_a_device_whose_policy_refuses_is_asked_once_and_never_excluded(collecting: Callable[..., Collecting]) -> None:
    run = collecting(SCFL, {"north": ("\nleast_noise_variance = 0.0", "\nleast_noise_variance = 1.0")})
    assert run.uploading.collect() == OTHERS
    assert run.clock.naps == []
    assert run.exchange.asked.count(("north", "coded")) == 1
    (declined,) = events(run.folder, "declined")
    assert declined["device"] == "north"
    assert "policy.least_noise_variance = 1.0" in declined["reason"]
    assert not run.server.context.standing.is_excluded("north")
    assert run.server.context.standing.of("north").late == 0, "it missed no deadline"
    assert draws(run.exchange.clients) == [0, 1, 1, 1]


def test_a_device_that_declined_the_contract_is_not_asked(digits: Path, tmp_path: Path) -> None:
    config = digits_config(scheme="scfl", incentive={"total_reward": 10.0})
    folder = copy_federation(digits, tmp_path / "federation", config)
    for name in NAMES:
        change_client(folder, name, "sensitivity = 0.0", f"sensitivity = {1e6 if name == 'north' else 0.1}")
    run = Collecting(folder, config, open_clients(folder, "coding"))
    assert run.uploading.collect() == OTHERS
    assert ("north", "coded") not in run.exchange.asked
    assert events(folder, "no upload") == []
    noise = [run.server.store.upload(name, "rows").noise_variance for name in OTHERS]
    assert all(variance > 0 for variance in noise), "the contract asks for noise"


def changed(**arrays: Callable[[Any], Any]) -> Callable[[Packet], Packet]:
    return lambda reply: Packet(
        {**reply.arrays, **{name: f(reply.arrays[name]) for name, f in arrays.items()}}, reply.values
    )


def valued(**values: Any) -> Callable[[Packet], Packet]:
    return lambda reply: Packet(reply.arrays, {**reply.values, **values})


ROWS_FAULTS: dict[str, tuple[Callable[[Packet], Packet], str]] = {
    "not finite": (changed(features=lambda x: np.where(x > 0, np.nan, x)), "features has"),
    "wrong width": (changed(features=lambda x: x[:, :-1]), "features has the shape"),
    "ten times the rows": (
        changed(features=lambda x: np.tile(x, (10, 1)), labels=lambda y: np.tile(y, (10, 1))),
        "features has the shape",
    ),
    "another dtype": (changed(features=lambda x: x.astype(np.float64)), "features has the type"),
    "integers": (changed(labels=lambda y: y.astype(np.int32)), "labels has the type"),
    "negative noise": (valued(noise_variance=-0.1), "noise_variance = -0.1"),
    "infinite noise": (valued(noise_variance=float("inf")), "noise_variance = inf"),
    "other name": (valued(device="east"), "device = 'east', expected 'north'"),
    "other kind": (valued(kind="factor"), "kind = 'factor', expected 'rows'"),
    "other count": (valued(coded_samples=2000), "coded_samples = 2000"),
    "absurd values": (changed(features=lambda x: x * np.float32(1e30)), "features has"),
    "nothing": (lambda _: Packet(), "the array 'features' is missing"),
    "more": (lambda reply: Packet({**reply.arrays, "model": np.zeros(3)}, reply.values), "'model' is unknown"),
    "unreadable": (lambda _: Packet({}, {"unreadable": "pickle"}), "the array 'features' is missing"),
}


@pytest.mark.parametrize("fault", ROWS_FAULTS)
def test_a_bad_upload_is_refused_counted_and_never_kept(collecting: Callable[..., Collecting], fault: str) -> None:
    run = collecting()
    spoil, reason = ROWS_FAULTS[fault]

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        return spoil(reply) if device == "north" else reply

    run.exchange.tamper = tamper
    assert run.uploading.collect() == OTHERS
    refused = events(run.folder, "refused")
    assert [event["excluded"] for event in refused] == [False, False, True], "asked until it is excluded"
    assert all(event["device"] == "north" and event["what"] == "upload" for event in refused)
    assert all(reason in event["reason"] for event in refused), refused[0]["reason"]
    assert not run.server.store.has_upload("north")
    assert draws(run.exchange.clients) == [1, 1, 1, 1], "asked three times, it drew once"


def test_an_upload_that_was_spoilt_on_its_way_is_made_good(collecting: Callable[..., Collecting]) -> None:
    run = collecting(CCFL)
    bad = iter([True])

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:  # noqa: ARG001
        return Packet() if device == "north" and next(bad, False) else reply

    run.exchange.tamper = tamper
    assert run.uploading.collect() == NAMES
    conduct = run.server.context.standing.of("north")
    assert (conduct.refused, conduct.refused_in_a_row, conduct.excluded) == (1, 0, False)
    assert run.server.store.upload("north", "subspace").rows == 100


def test_sketches_of_more_rows_than_a_device_has_are_refused(collecting: Callable[..., Collecting]) -> None:
    run = collecting(CCFL)
    run.exchange.tamper = lambda *message: valued(rows=2000)(message[-1]) if message[0] == "north" else message[-1]
    assert run.uploading.collect() == OTHERS
    assert "rows = 2000" in events(run.folder, "refused")[0]["reason"]


def test_a_server_that_was_killed_asks_only_for_what_it_has_not_kept(collecting: Callable[..., Collecting]) -> None:
    run = collecting()

    def kill(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if device == "south":
            raise Killed
        return reply

    run.exchange.tamper = kill
    with pytest.raises(Killed):
        run.uploading.collect()
    assert [name for name in NAMES if run.server.store.has_upload(name)] == ["north", "east"]
    again = InProcess(run.exchange.clients)
    server = coordinator(run.folder, again, run.clock)
    uploading = Uploading(server.context, run.uploading.roster, run.uploading.task)
    assert uploading.collect() == NAMES
    assert again.asked == [("south", "coded"), ("west", "coded")]
    assert draws(run.exchange.clients) == [1, 1, 1, 1], "south and west had drawn before the server was killed"
