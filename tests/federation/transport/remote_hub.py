"""A hub in the process of a server's program, used from the process of a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from multiprocessing.managers import BaseManager, IteratorProxy  # type: ignore[attr-defined]
from pathlib import Path
from typing import Any

from codedfl.federation.transport import Hub, Kind, Packet, Reply

PROGRAM = "tests.federation.transport.remote_hub:offer"


class HubManager(BaseManager):
    """Offers the hub; every thread of the other process has a connection of its own."""


class RemoteHub:
    """The hub of another process."""

    def __init__(self, folder: Path) -> None:
        HubManager.register("hub", exposed=("online", "ask"), method_to_typeid={"ask": "Replies"})
        HubManager.register("Replies", proxytype=IteratorProxy, create_method=False)
        manager = HubManager(address=str(_socket(folder)), authkey=b"hub")
        manager.connect()
        self._hub: Any = manager.hub()  # type: ignore[attr-defined]

    def online(self) -> frozenset[str]:
        return frozenset(self._hub.online())

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        return iter(self._hub.ask(kind, dict(requests), within_s))


def offer(folder: Path, hub: Hub) -> None:
    """Offer the hub to the test until it ends this process."""
    HubManager.register("hub", lambda: hub, exposed=("online", "ask"), method_to_typeid={"ask": "Replies"})
    HubManager.register("Replies", proxytype=IteratorProxy, create_method=False)
    HubManager(address=str(_socket(folder)), authkey=b"hub").get_server().serve_forever()


def _socket(folder: Path) -> Path:
    return folder / "hub"
