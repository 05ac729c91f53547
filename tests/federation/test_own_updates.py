"""Schemes of plug-ins whose devices run a half of their own, over a federation: FedProx and SCAFFOLD."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation.transport import Kind, Packet
from tests.federation.support import (
    InProcess,
    Killed,
    coordinator,
    digits_config,
    events,
    kill_at,
    missing,
    open_clients,
    run,
    simulated,
)
from tests.plugin_sites import dist_info, template_site

pytestmark = pytest.mark.usefixtures("naps", "seeded_server", "parts_of_rows", "plugins")


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(template_site(tmp_path / "site")))


def config(scheme: str, **options: Any) -> FederationConfig:
    return digits_config(scheme=scheme, options=options, training={"rounds": 6})


@pytest.mark.parametrize(
    ("scheme", "options"), [("scaffold", {}), ("fedprox", {"pull": 0.3}), ("fedprox", {"pull": 0})]
)
def test_the_model_is_that_of_the_simulator(made: Callable[..., Path], scheme: str, options: dict[str, Any]) -> None:
    given = config(scheme, **options)
    folder = made(given)
    clients = open_clients(folder, "none")
    rounds = run(folder, clients, missing)
    np.testing.assert_array_equal(rounds.model, simulated(folder, given, clients, rounds))
    assert np.abs(rounds.model).max() > 0.01, "it has learnt something"
    assert (rounds.arrivals.probability < 1).all(), "devices were missing"


def test_fedprox_without_a_pull_is_fedavg(made: Callable[..., Path]) -> None:
    pulled, plain = (
        run(made(each, each.scheme), open_clients(made(each, f"{each.scheme}-2"), "none"), missing).model
        for each in (config("fedprox", pull=0), config("fedavg"))
    )
    np.testing.assert_array_equal(pulled, plain)


def test_two_vectors_travel_each_way(made: Callable[..., Path]) -> None:
    folder = made(config("scaffold"))
    sizes: list[tuple[int, int]] = []

    def weighed(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if kind == "train":
            assert sorted(request.arrays) == ["model", "variate"]
            assert sorted(reply.arrays) == ["update", "variate"]
            sizes.append((sum(a.nbytes for a in request.arrays.values()), sum(a.nbytes for a in reply.arrays.values())))
        return reply

    run(folder, open_clients(folder, "none"), weighed)
    vector = 4 * 50 * 10
    assert set(sizes) == {(2 * vector, 2 * vector)}


@pytest.mark.parametrize("count", [5, 9, 14])
def test_killed_servers_and_devices_remember_what_was_counted(made: Callable[..., Path], count: int) -> None:
    given = config("scaffold")
    whole = made(given, "whole")
    expected = run(whole, open_clients(whole, "none"), missing)
    folder = made(given)
    with pytest.raises(Killed):
        coordinator(folder, InProcess(open_clients(folder, "none"), kill_at(count, missing))).run()
    resumed = run(folder, open_clients(folder, "none"), missing)  # devices were restarted as well
    np.testing.assert_array_equal(resumed.model, expected.model)
    np.testing.assert_array_equal(resumed.state.variate, expected.state.variate)  # type: ignore[attr-defined]


def test_a_message_of_another_shape_is_refused(made: Callable[..., Path]) -> None:
    folder = made(config("scaffold"))

    def half(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet:  # noqa: ARG001
        if kind == "train" and device == "east":
            return Packet({"update": reply.arrays["update"]}, reply.values)
        return reply

    run(folder, open_clients(folder, "none"), half)
    reasons = {event["reason"] for event in events(folder, "refused")}
    assert any("variate" in reason for reason in reasons), reasons


def test_a_device_that_lost_its_memory_says_so(made: Callable[..., Path]) -> None:
    folder = made(config("scaffold"))
    with pytest.raises(Killed):
        coordinator(folder, InProcess(open_clients(folder, "none"), kill_at(14))).run()
    for path in (folder / "devices" / "east").rglob("state-memory-*.bin"):
        path.unlink()
    run(folder, open_clients(folder, "none"))
    (reason,) = {event["reason"] for event in events(folder, "declined") if event["device"] == "east"}
    assert "counted = " in reason
    assert "begin the federation again" in reason


def test_a_plug_in_that_real_devices_cannot_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "other"
    site.mkdir()
    (site / "allocated.py").write_text(
        "from dataclasses import replace\n"
        "from codedfl.schemes import cfl_fb\n"
        "def parity():\n"
        "    return replace(cfl_fb(), name='parity')\n"
    )
    dist_info(site, "allocated", {"codedfl.schemes": {"parity": "allocated:parity"}})
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(InputError, match="not offered over a network"):
        config("parity")


BROKEN = """
from dataclasses import dataclass, replace
from codedfl.schemes import fedavg
from codedfl.training import Scheme

@dataclass(frozen=True)
class Undeclared(Scheme):
    def update(self, memory, sent, local):
        update = local.descend(sent["model"])
        return memory, {"update": update, "more": update}

@dataclass(frozen=True)
class Stuck(Scheme):
    def step(self, state, round):
        return replace(super().step(state, round)[0], round=0), {}

def undeclared(): return Undeclared(**{**vars(fedavg()), "name": "undeclared"})
def stuck(): return Stuck(**{**vars(fedavg()), "name": "stuck"})
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "broken"
    site.mkdir()
    (site / "mistakes.py").write_text(BROKEN)
    dist_info(site, "mistakes", {"codedfl.schemes": {name: f"mistakes:{name}" for name in ("undeclared", "stuck")}})
    monkeypatch.syspath_prepend(str(site))


@pytest.mark.usefixtures("broken")
def test_a_mistake_in_the_half_of_the_device_is_declined_in_a_sentence(made: Callable[..., Path]) -> None:
    folder = made(config("undeclared"))
    run(folder, open_clients(folder, "none"))
    reasons = {event["reason"] for event in events(folder, "declined")}
    assert any("['more', 'update'] from `update`, where `travels_up` declares ['update']" in r for r in reasons), (
        reasons
    )


@pytest.mark.usefixtures("broken")
def test_a_mistake_in_the_half_of_the_server_ends_in_a_sentence(made: Callable[..., Path]) -> None:
    folder = made(config("stuck"))
    with pytest.raises(InputError, match=r"stuck.* returned a state of round 0 from `step` instead of 1"):
        run(folder, open_clients(folder, "none"))
