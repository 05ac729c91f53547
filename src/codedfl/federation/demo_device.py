"""A device of the demonstration: steady, slow, or one that dies; run as ``python -m codedfl.federation.demo_device FOLDER``."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import threading
import time
from pathlib import Path

from codedfl.federation._client import Client
from codedfl.federation._launch import only_client, serve_device
from codedfl.federation.transport import Packet, Transport

SLOW_S = 0.012
"""Seconds that a slow device takes for a row."""


class DemoClient(Client):
    """A client that takes its time for every row, and may die in a given round.

    Attributes:
        row_s: seconds that it sleeps for each row.
        dies_in: the round in which it kills itself; -1 for never.
    """

    row_s = 0.0
    dies_in = -1

    def die(self) -> None:
        """End this device as it stands."""
        os.kill(os.getpid(), signal.SIGKILL)

    def train(self, request: Packet) -> Packet:
        """Train as slowly as this device is, and die where it is to die."""
        if request.values.get("round") == self.dies_in:
            self.die()
        reply = super().train(request)
        rest_s = self.row_s * float(str(reply.values["batch_size"]))
        time.sleep(rest_s)
        spent_s = float(str(reply.values["compute_s"])) + rest_s
        return Packet(reply.arrays, {**reply.values, "compute_s": spent_s})


class DemoThread(DemoClient):
    """The same in a thread, which ends alone."""

    def die(self) -> None:
        """End the thread of this device."""
        raise SystemExit


def serve_demo_device(
    folder: Path,
    *,
    slow: bool = False,
    dies_in: int = -1,
    kind: type[DemoClient] = DemoClient,
    stop: threading.Event | None = None,
    transport: Transport | None = None,
) -> None:
    """Serve a device of the demonstration until stopped."""
    with only_client(folder):
        client = kind.open(folder)
        assert isinstance(client, DemoClient)
        client.row_s, client.dies_in = (SLOW_S if slow else 0.0), dies_in
        serve_device(folder, client, stop, transport)


def main() -> None:
    """Serve a device of the demonstration until stopped."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--dies-in", type=int, default=-1)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    serve_demo_device(arguments.folder, slow=arguments.slow, dies_in=arguments.dies_in)


if __name__ == "__main__":
    main()
