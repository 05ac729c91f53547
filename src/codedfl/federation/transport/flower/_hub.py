"""The server's end: messages to devices through Flower's SuperLink."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from flwr.app import Message
from flwr.serverapp import Grid

from codedfl.federation.transport._interface import LARGE_KINDS, Kind, Packet, Reply, reply_of
from codedfl.federation.transport.flower._records import NAME, UNREACHABLE, from_records, message_type, to_records

POLL_S = 0.1
"""Seconds between looks for replies."""

LOOK_S = 1.0
"""Seconds between looks at which devices have connected anew."""

NAME_S = 10.0
"""How long a device may take to say its name."""


class Node(Protocol):
    """What is used of Flower's description of a connected device."""

    node_id: int
    name: str
    last_activated_at: str


@dataclass
class FlowerHub:
    """A hub whose messages Flower carries.

    A device is whoever holds the private key that was registered under its name; without authentication it is
    whoever says so.

    Args:
        grid: Flower's connection to the SuperLink.
        devices: the names of the federation.
        authenticated: whether devices are registered with their keys; if not, each is asked for its name.
    """

    grid: Grid
    devices: tuple[str, ...]
    authenticated: bool = True
    _names: dict[int, str] = field(default_factory=dict)

    def _nodes(self) -> dict[str, Node]:
        """Return the node of every device that is connected, refreshed at every call: nodes come and go."""
        online = sorted(
            (node for node in self.grid.get_nodes() if node.status == "online"), key=lambda node: node.last_activated_at
        )
        if not self.authenticated:
            self._ask_names([node for node in online if node.node_id not in self._names])
        named = [(node.name if self.authenticated else self._names.get(node.node_id), node) for node in online]
        # Of several nodes of one device the last counts: without authentication a restart makes a new one.
        return {name: node for name, node in named if name in self.devices}

    def _ask_names(self, nodes: list[Node]) -> None:
        """Ask nodes that nobody registered for the name of their device, and believe them."""
        pending: dict[str, tuple[str, Node]] = {}
        for node in nodes:
            message = Message(to_records(Packet()), node.node_id, message_type(NAME), ttl=NAME_S)
            pending |= {identifier: (str(node.node_id), node) for identifier in self.grid.push_messages([message])}
        for reply in self._replies(pending, time.monotonic(), NAME_S, one_at_a_time=False):
            name = reply.packet.values.get("device") if reply.packet else None
            self._names[int(reply.device)] = name if isinstance(name, str) else ""
        for node in nodes:
            self._names.setdefault(node.node_id, "")  # whoever does not answer is not asked again

    def online(self) -> frozenset[str]:
        """Return the names of the devices that are connected now."""
        return frozenset(self._nodes())

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        """Send requests that expire with the deadline, and return the replies in the order in which they arrive."""
        nodes = self._nodes()
        sent = time.monotonic()
        pending: dict[str, tuple[str, Node]] = {}
        for device, packet in requests.items():
            if device in nodes:
                message = Message(
                    to_records(packet),
                    nodes[device].node_id,
                    message_type(kind),
                    ttl=within_s,
                    group_id=str(packet.values.get("round", "")),
                )
                pending |= {
                    identifier: (device, nodes[device])
                    for identifier in self.grid.push_messages([message])
                    if identifier
                }
        return self._replies(pending, sent, within_s, one_at_a_time=kind in LARGE_KINDS)

    def _replies(
        self, pending: dict[str, tuple[str, Node]], sent: float, within_s: float, *, one_at_a_time: bool
    ) -> Iterator[Reply]:
        looked = sent
        while pending and time.monotonic() - sent < within_s:
            wanted = [[identifier] for identifier in pending] if one_at_a_time else [list(pending)]
            for identifiers in wanted:
                for message in self.grid.pull_messages(identifiers):
                    device, _ = pending.pop(message.metadata.reply_to_message_id, ("", None))
                    if device and not _expired(message):
                        yield _reply(device, time.monotonic() - sent, message)
            if pending and time.monotonic() - looked > LOOK_S:
                looked = time.monotonic()
                for identifier in self._forgotten(pending):
                    device, _ = pending.pop(identifier)
                    yield Reply(device, looked - sent, None, "it was started again, and has forgotten the request")
            if pending:
                time.sleep(POLL_S)

    def _forgotten(self, pending: Mapping[str, tuple[str, Node]]) -> list[str]:
        """Return the requests to devices that have connected anew since, and so will not answer them."""
        active = {node.node_id: node.last_activated_at for node in self.grid.get_nodes() if node.status == "online"}
        return [
            identifier
            for identifier, (_, node) in pending.items()
            if active.get(node.node_id, node.last_activated_at) != node.last_activated_at
        ]


def _expired(message: Message) -> bool:
    """Return whether Flower tells that a request or its reply is past its time, or its device gone: that is silence."""
    return message.has_error() and message.error.code in UNREACHABLE


def _reply(device: str, elapsed_s: float, message: Message) -> Reply:
    if message.has_error():
        return Reply(device, elapsed_s, None, f"{message.error.reason} (Flower's error {message.error.code})")
    try:
        return reply_of(device, elapsed_s, from_records(message.content))
    except ValueError as error:
        # Unreadable is as bad as wrong: an empty packet is refused by every check, and counted.
        return Reply(device, elapsed_s, Packet({}, {"unreadable": str(error)}))
