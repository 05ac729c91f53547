from __future__ import annotations

import asyncio
import sys
from collections.abc import MutableMapping
from typing import Any

import pytest

from codedfl.federation.transport.flower.superlink import (
    HOOK,
    DevicesOnly,
    Receive,
    Scope,
    Send,
    close_to_others,
    from_this_machine,
)

OTHER, SAME = ("192.0.2.7", 40000), ("127.0.0.1", 40000)
CLOSED = [
    "/v1/control/StartRun",
    "/v1/serverappio/PushAppMessages",
    "/v1/clientappio/PullMessage",
    "/v1/fleet",
    "/v1/fleetx/",
    "/v1/control/v1/fleet/",
    "//v1/fleet/",
    "/",
    "",
]


def response(scope: Scope) -> list[MutableMapping[str, Any]]:
    """Return what comes back for a request, of an application that says 200 to everything that reaches it."""
    sent: list[MutableMapping[str, Any]] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
        await send({"type": f"{scope['type']}.response.start", "status": 200})

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    asyncio.run(DevicesOnly(app)(scope, receive, send))
    return sent


def status(path: str, client: Any) -> int:
    first, *_ = response({"type": "http", "path": path, "client": client})
    return int(first["status"])


@pytest.mark.parametrize("path", CLOSED)
def test_other_machines_reach_nothing_but_the_interface_of_devices(path: str) -> None:
    assert status(path, OTHER) == 403
    assert status(path, None) == 403, "whoever cannot be told is somebody else"


@pytest.mark.parametrize("path", ["/v1/fleet/PullMessages", "/v1/fleet/"])
def test_devices_reach_their_interface(path: str) -> None:
    assert status(path, OTHER) == 200


@pytest.mark.parametrize("path", [*CLOSED, "/v1/fleet/PullMessages"])
def test_this_machine_reaches_everything(path: str) -> None:
    assert status(path, SAME) == 200
    assert status(path, ("::1", 40000)) == 200


def test_a_refusal_is_a_complete_response() -> None:
    start, body = response({"type": "http", "path": "/", "client": OTHER})
    assert start == {"type": "http.response.start", "status": 403, "headers": [(b"content-length", b"0")]}
    assert body == {"type": "http.response.body", "body": b""}


def test_start_and_stop_of_the_application_itself_pass() -> None:
    assert response({"type": "lifespan"}) == [{"type": "lifespan.response.start", "status": 200}]


def test_no_websocket_of_another_machine_is_opened() -> None:
    """Devices use none, and a check of paths alone would let them pass."""
    scope = {"type": "websocket", "path": "/v1/fleet/", "client": OTHER}
    assert response(scope) == [{"type": "websocket.close", "code": 1008}]
    assert response({**scope, "client": SAME}) == [{"type": "websocket.response.start", "status": 200}]


@pytest.mark.parametrize(
    "host",
    ["10.0.0.1", "::ffff:192.0.2.7", "2001:db8::7", "0.0.0.0", "127.0.0.1.evil.example", "localhost", "", "unix"],
)
def test_only_loopback_addresses_are_this_machine(host: str) -> None:
    assert not from_this_machine({"client": (host, 1)})


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.8.8", "::1"])
def test_all_loopback_addresses_are(host: str) -> None:
    assert from_this_machine({"client": (host, 1)})


def test_the_superlink_finds_the_middleware(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise everything would be open, and nothing would say so."""
    monkeypatch.delitem(sys.modules, HOOK, raising=False)
    from flwr.superlink import extensions, main

    assert extensions.get_middleware() == ()
    close_to_others()
    monkeypatch.setitem(sys.modules, HOOK, sys.modules[HOOK])
    closed: Any = main._get_middleware()[0].cls
    assert closed is DevicesOnly
