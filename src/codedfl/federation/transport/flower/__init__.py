"""Flower as a transport: its SuperLink on the server, a link of our own on devices, TLS and the keys of devices in between.

Nothing else in this project imports Flower, and this package does so only when it is used. Beside Flower's public interface
(`flwr.app`, `flwr.serverapp`, the program ``flower-superlink``) it takes eight modules that Flower calls its own:

- `flwr.proto`, the messages of its protocol (seven files of them), which devices and the starting of runs need;
- `flwr.supercore.control` and `flwr.cli.build`, to register devices and start the run: the command line of Flower would start a
  process of two seconds for each device;
- `flwr.supernode.fleet_http_client` and `node_auth_http_interceptor`, the connection of a device and its signature;
- `flwr.supercore.inflatable.inflatable_object` and `inflatable_utils`, the parts in which messages travel;
- `flwr.common.serde`, the envelope of a message.

The last five are there because Flower's own SuperNode runs whatever program a server sends, see `_link.py`. Because of all eight
the version of Flower is pinned to one minor release, within which every server and device can talk to each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from codedfl.federation._config_files import read_client, read_federation
from codedfl.federation.transport._interface import Link

QUIET = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
"""Flower without calls home: its programs report usage and look for updates unless told not to before they start."""


def be_quiet() -> None:
    """Set the environment of this process and of those that it starts."""
    os.environ.update(QUIET)


@dataclass(frozen=True)
class FlowerTransport:
    """Messages that Flower carries, over TLS and with the keys of devices unless their folders are insecure."""

    @contextmanager
    def host(self, folder: Path, program: str, earlier: int | None = None) -> Iterator[Callable[[], bool]]:
        """Start a SuperLink, let the devices connect, and give it the program to run in a process of its own."""
        from codedfl.federation._masked_device import read_roster
        from codedfl.federation._setup import is_insecure
        from codedfl.federation.transport.flower._host import SuperLink, end_program

        config, insecure = read_federation(folder / "federation.toml"), is_insecure(folder)
        keys = {} if insecure else read_roster(folder / "server" / "keys", config.devices)
        if earlier is not None:
            end_program(earlier)
        with SuperLink(folder, config.server.address, insecure) as superlink:
            superlink.register(keys)
            superlink.submit(program)
            yield superlink.is_alive

    def link(self, folder: Path) -> Link:
        """Return the link of the device of a folder."""
        from codedfl.federation.transport.flower._link import Connection, FlowerLink

        config = read_client(folder / "client.toml")
        certificate = None if config.insecure else (folder / config.certificate).read_bytes()
        key = None if config.insecure else (folder / config.key).read_bytes()
        return FlowerLink(config.name, Connection(config.server, certificate, key), folder / config.state / "node")
