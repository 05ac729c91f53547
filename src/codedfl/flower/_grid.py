"""Messages to devices through Flower's SuperLink."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from flwr.app import Message
from flwr.serverapp import Grid

from codedfl.flower._exchange import Kind, Reply, reply_of
from codedfl.flower._packet import Packet
from codedfl.flower._wire import from_records, to_records

POLL_S = 0.1
"""Seconds between looks for replies."""

NAME_S = 10.0
"""How long a device may take to say its name."""

LARGE = ("coded", "masked")
"""Requests whose replies are pulled one at a time, so that one of them is in memory at most."""


@dataclass
class GridExchange:
    """An exchange whose messages Flower carries.

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

    def _nodes(self) -> dict[str, int]:
        """Return the node of every device that is connected, refreshed at every call: nodes come and go."""
        online = [node for node in self.grid.get_nodes() if node.status == "online"]
        if not self.authenticated:
            self._ask_names([node.node_id for node in online if node.node_id not in self._names])
        named = {node.node_id: node.name if self.authenticated else self._names.get(node.node_id) for node in online}
        return {name: node_id for node_id, name in named.items() if name in self.devices}

    def _ask_names(self, nodes: list[int]) -> None:
        """Ask nodes that nobody registered for the name of their device, and believe them."""
        messages = [Message(to_records(Packet()), node_id, "query.name", ttl=NAME_S) for node_id in nodes]
        if not messages:
            return
        pending = dict(zip(self.grid.push_messages(messages), map(str, nodes), strict=True))
        for reply in self._replies(pending, time.monotonic(), NAME_S, one_at_a_time=False):
            name = reply.packet.values.get("device") if reply.packet else None
            self._names[int(reply.device)] = name if isinstance(name, str) else ""

    def online(self) -> frozenset[str]:
        """Return the names of the devices that are connected now."""
        return frozenset(self._nodes())

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        """Send requests that expire with the deadline, and return the replies in the order in which they arrive."""
        nodes = self._nodes()
        messages, names = [], []
        for device, packet in requests.items():
            if device in nodes:
                names.append(device)
                messages.append(
                    Message(
                        to_records(packet),
                        nodes[device],
                        "train" if kind == "train" else f"query.{kind}",
                        ttl=within_s,
                        group_id=str(packet.values.get("round", "")),
                    )
                )
        sent = time.monotonic()
        pending: dict[str, str] = {}
        for device, message in zip(names, messages, strict=True):
            for identifier in self.grid.push_messages([message]):
                if identifier:
                    pending[identifier] = device
        return self._replies(pending, sent, within_s, one_at_a_time=kind in LARGE)

    def _replies(
        self, pending: dict[str, str], sent: float, within_s: float, *, one_at_a_time: bool
    ) -> Iterator[Reply]:
        while pending and time.monotonic() - sent < within_s:
            wanted = [[identifier] for identifier in pending] if one_at_a_time else [list(pending)]
            for identifiers in wanted:
                for message in self.grid.pull_messages(identifiers):
                    device = pending.pop(message.metadata.reply_to_message_id, None)
                    if device is not None:
                        yield _reply(device, time.monotonic() - sent, message)
            if pending:
                time.sleep(POLL_S)


def _reply(device: str, elapsed_s: float, message: Message) -> Reply:
    if message.has_error():
        return Reply(device, elapsed_s, None, f"{message.error.reason} (Flower's error {message.error.code})")
    try:
        return reply_of(device, elapsed_s, from_records(message.content))
    except ValueError as error:
        # Unreadable is as bad as wrong: an empty packet is refused by every check, and counted.
        return Reply(device, elapsed_s, Packet({}, {"unreadable": str(error)}))
