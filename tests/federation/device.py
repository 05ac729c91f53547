"""A device for tests with real processes: seeded, slow, broken or one that kills itself at a chosen moment.

``python tests/federation/device.py FOLDER [--seeded PURPOSE] [--fault FAULT] [--slow SECONDS]``
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from codedfl.federation import Client
from codedfl.federation._launch import only_client, serve_device
from codedfl.federation._policy import NoiseLevel
from codedfl.federation.transport import Packet
from codedfl.files import Arrays
from tests.federation.support import NAMES, SeededRandomness

EVERY = 3
"""A device with broken messages sends one in every so many rounds, so that its data still counts."""


class FaultyClient(Client):
    fault = ""
    slow_s = 0.0
    marks = Path()

    def die_once(self) -> None:
        """Kill this process, but not again once it was restarted."""
        mark = self.marks / "died"
        if not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)

    def coded(self, request: Packet) -> tuple[Arrays, NoiseLevel]:
        if self.fault == "killed before its upload":
            self.die_once()
        drawn = super().coded(request)
        if self.fault == "killed during its upload":
            self.die_once()
        time.sleep(self.slow_s)
        return drawn

    def train(self, request: Packet) -> Packet:
        number = request.values["round"]
        assert isinstance(number, int)
        if self.fault == "killed after its upload" and number == 2:
            self.die_once()
        began = time.perf_counter()
        reply = super().train(request)
        time.sleep(self.slow_s)
        reply = Packet(reply.arrays, {**reply.values, "compute_s": time.perf_counter() - began})
        return self.broken(reply) if number % EVERY == 1 else reply

    def broken(self, reply: Packet) -> Packet:
        update = reply.arrays["update"]
        match self.fault:
            case "NaN in its update":
                return replace(reply, arrays={"update": np.full_like(update, np.nan)})
            case "update of a wrong width":
                return replace(reply, arrays={"update": np.hstack([update, update])})
            case "update ten times too large":
                return replace(reply, arrays={"update": 10 * update})
            case "update of a wrong round":
                return replace(reply, values={**reply.values, "round": 0})
        return reply


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeded", default="")
    parser.add_argument("--fault", default="")
    parser.add_argument("--slow", type=float, default=0.0)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    with only_client(arguments.folder):
        index = NAMES.index(arguments.folder.name) if arguments.folder.name in NAMES else 0
        randomness = SeededRandomness(0, index, arguments.seeded) if arguments.seeded else None
        client = FaultyClient.open(arguments.folder, randomness=randomness)
        assert isinstance(client, FaultyClient)
        client.fault, client.slow_s, client.marks = arguments.fault, arguments.slow, arguments.folder
        serve_device(arguments.folder, client)


if __name__ == "__main__":
    main()
