from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._joining import Joining, menu_values, offered_menu
from codedfl.federation._requests import wants_smoothness
from codedfl.federation.transport import Kind, Packet
from tests.federation.support import (
    NAMES,
    Clock,
    InProcess,
    change_client,
    coordinator,
    copy_federation,
    digits_config,
    events,
    open_clients,
)


class Gathering:
    """A server that waits for devices, on a clock that nobody has to wait for."""

    def __init__(self, base: Path, folder: Path, config: FederationConfig) -> None:
        self.folder = copy_federation(base, folder / "federation", config)
        self.clock = Clock()
        self.exchange = InProcess({})
        self.joining = Joining(coordinator(self.folder, self.exchange, self.clock).context)

    def open(self) -> Gathering:
        self.exchange.clients = open_clients(self.folder)
        return self


def test_everybody_joins_at_once(digits: Path, tmp_path: Path) -> None:
    server = Gathering(digits, tmp_path, digits_config()).open()
    roster = server.joining.roster()
    assert roster.names == NAMES
    assert roster.samples == (250, 350, 400, 397)
    assert roster.uploads == (True,) * 4
    assert roster.smoothness == (0.0,) * 4, "not asked for, as the sketch tells"
    assert roster.prescription == digits_config().prescription()
    assert server.clock.naps == [], "there is nothing to wait for"
    assert [event["device"] for event in events(server.folder, "joined")] == sorted(NAMES, key=NAMES.index)
    status = server.joining.store.read_status()
    assert status is not None
    assert (status["phase"], status["joined"], status["devices"]) == ("joining", 4, 4)


def test_seeds_of_servers_differ(digits: Path, tmp_path: Path) -> None:
    server = Gathering(digits, tmp_path, digits_config()).open()
    seeds = {server.joining.roster().seed for _ in range(3)}
    assert len(seeds) == 3
    assert all(0 <= seed < 2**62 for seed in seeds)


def test_curvature_is_asked_for_where_the_step_size_needs_it(digits: Path, tmp_path: Path) -> None:
    assert [
        wants_smoothness(digits_config(scheme=name)) for name in ("fedavg", "momentum", "scfl", "ccfl", "dp-cfl")
    ] == [
        True,
        True,
        False,
        False,
        False,
    ]
    server = Gathering(digits, tmp_path, digits_config(scheme="fedavg")).open()
    roster = server.joining.roster()
    for name, told in zip(NAMES, roster.smoothness, strict=True):
        features = np.asarray(server.exchange.clients[name].rows.features, np.float64)
        assert told == pytest.approx(np.linalg.norm(features, 2) ** 2, rel=1e-6)


def test_the_server_waits_for_those_who_come_later(digits: Path, tmp_path: Path) -> None:
    server = Gathering(digits, tmp_path, digits_config(training={"join_s": 60.0})).open()
    server.exchange.away = {"south", "west"}
    naps = iter(range(100))

    def sleep(seconds: float) -> None:
        server.clock.sleep(seconds)
        if next(naps) == 5:
            server.exchange.away.clear()

    server.joining.context.sleep = sleep
    assert server.joining.roster().names == NAMES
    assert server.exchange.asked.count(("north", "hello")) == 1, "whoever has joined is not asked again"
    assert 100.0 < server.clock.now < 160.0


@pytest.mark.parametrize(("least", "joined"), [(2, True), (3, True), (4, False), (0, False)])
def test_training_starts_with_enough_devices_when_the_time_is_over(
    digits: Path, tmp_path: Path, least: int, joined: bool
) -> None:
    server = Gathering(digits, tmp_path, digits_config(training={"join_s": 60.0, "least_devices": least})).open()
    server.exchange.away = {"east"}
    if joined:
        assert server.joining.roster().names == ("north", "south", "west")
    else:
        with pytest.raises(
            InputError, match=r"3 of 4 devices joined within training\.join_s = 60, and 4 are needed: start east"
        ):
            server.joining.roster()
    assert server.clock.now >= 160.0


def test_a_device_with_another_federation_does_not_join(digits: Path, tmp_path: Path) -> None:
    server = Gathering(digits, tmp_path, digits_config(training={"join_s": 60.0, "least_devices": 3}))
    path = server.folder / "devices" / "east" / "federation.toml"
    path.write_text(path.read_text().replace("coded_samples = 200", "coded_samples = 2000"))
    roster = server.open().joining.roster()
    assert roster.names == ("north", "south", "west")
    declined = events(server.folder, "declined")
    assert {event["device"] for event in declined} == {"east"}
    assert "compare the two files" in declined[0]["reason"]
    assert not server.joining.standing.is_excluded("east"), "it only declined"


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"samples": 0}, "samples = 0"),
        ({"samples": -5}, "samples = -5"),
        ({"samples": "many"}, "samples = 'many'"),
        ({"device": "north"}, "device = 'north', expected 'east'"),
        ({"prescription": "ab12"}, "prescription = 'ab12'"),
        ({"choice": 0}, "choice = 0"),
        ({"smoothness": float("nan")}, "smoothness = nan"),
        ({"more": 1}, "the value 'more' is unknown"),
    ],
)
def test_a_device_that_introduces_itself_wrongly_is_refused_and_then_excluded(
    digits: Path, tmp_path: Path, values: dict[str, Any], reason: str
) -> None:
    config = digits_config(training={"join_s": 300.0, "least_devices": 3})
    server = Gathering(digits, tmp_path, config).open()

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        return Packet({}, {**reply.values, **values}) if device == "east" else reply

    server.exchange.tamper = tamper
    assert server.joining.roster().names == ("north", "south", "west")
    refused = events(server.folder, "refused")
    assert [event["excluded"] for event in refused] == [False, False, True]
    assert all(event["device"] == "east" and reason in event["reason"] for event in refused)
    assert server.joining.standing.excluded == ("east",)


def test_a_bad_introduction_is_made_good(digits: Path, tmp_path: Path) -> None:
    server = Gathering(digits, tmp_path, digits_config(training={"join_s": 300.0})).open()
    bad = iter([True, True])

    def tamper(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        return Packet() if device == "east" and next(bad, False) else reply

    server.exchange.tamper = tamper
    assert server.joining.roster().names == NAMES
    conduct = server.joining.standing.of("east")
    assert (conduct.refused, conduct.refused_in_a_row, conduct.accepted) == (2, 0, 1)


def test_a_device_that_declines_the_contract_joins_without_an_upload(digits: Path, tmp_path: Path) -> None:
    config = digits_config(scheme="scfl", incentive={"total_reward": 10.0})
    server = Gathering(digits, tmp_path, config)
    for name in NAMES:
        change_client(server.folder, name, "sensitivity = 0.0", f"sensitivity = {1e6 if name == 'west' else 0.1}")
    roster = server.open().joining.roster()
    assert roster.names == NAMES
    assert roster.uploads == (True, True, True, False)


def test_a_menu_travels_as_lists() -> None:
    assert offered_menu(digits_config()) is None
    assert menu_values(None) == {}
    menu = offered_menu(
        digits_config(scheme="scfl", incentive={"total_reward": 10.0, "sensitivity": [4.0, 3.0, 2.0, 1.0]})
    )
    assert menu is not None
    values = menu_values(menu)
    assert values == {"mi_dp_bits": menu.mi_dp_bits.tolist(), "reward": menu.reward.tolist()}
    assert sum(values["reward"]) == pytest.approx(10.0, rel=1e-9)
