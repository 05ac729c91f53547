"""A small federation in one process: the same client and server code, with messages that are passed by hand."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from codedfl.files import csv_text
from codedfl.flower._client import Client
from codedfl.flower._config import FederationConfig, parse_federation
from codedfl.flower._coordinator import Coordinator
from codedfl.flower._exchange import Kind, Reply, reply_of
from codedfl.flower._packet import Packet
from codedfl.flower._setup import initialise
from codedfl.streams import Streams

NAMES = ("north", "east", "south", "west")
PIXELS = tuple(f"p{i}" for i in range(64))
GAMMA = 0.0004


def digits_config(**settings: Any) -> FederationConfig:
    """Return a federation of four devices on digits, with random features."""
    values: dict[str, Any] = {
        "name": "digits",
        "devices": NAMES,
        "data": {
            "columns": PIXELS,
            "target": ["digit"],
            "task": "classification",
            "classes": [str(i) for i in range(10)],
        },
        "features": {"map": "rff", "dimension": 50, "gamma": GAMMA, "intercept": False},
        "coding": {"coded_samples": 200, "noise_variance": 0.01},
        "training": {"rounds": 12, "deadline_s": 5.0, "join_s": 20.0, "upload_s": 20.0, "local_steps": 2},
        "server": {"test_file": "test.csv"},
    }
    for key, value in settings.items():
        values[key] = {**values[key], **value} if isinstance(values.get(key), dict) else value
    return parse_federation(values)


def digits_split() -> tuple[list[tuple[Any, Any]], tuple[Any, Any]]:
    """Return the rows of each device, unevenly and by label, and test rows."""
    data = load_digits()
    X, y = data.data.astype(np.float32), data.target
    order = np.random.default_rng(0).permutation(len(y))
    test, train = order[:400], order[400:]
    train = train[np.argsort(y[train] // 3, kind="stable")]
    cuts = [0, 250, 600, 1000, len(train)]
    parts = [train[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return [(X[part], y[part]) for part in parts], (X[test], y[test])


def write_table(path: Path, X: Any, y: Any) -> None:
    """Write rows as a table with the names of the columns."""
    rows = [[*map(float, row), int(label)] for row, label in zip(X, y, strict=True)]
    path.write_text(csv_text([*PIXELS, "digit"], rows), encoding="utf-8")


def make_federation(folder: Path, config: FederationConfig, *, insecure: bool = True) -> None:
    """Set a federation up, with its data in place."""
    initialise(folder, config, hosts=["127.0.0.1"], insecure=insecure)
    parts, test = digits_split()
    write_table(folder / "test.csv", *test)
    for name, part in zip(config.devices, parts, strict=True):
        write_table(folder / "devices" / name / "data.csv", *part)


class SeededRandomness:
    """The simulator's streams in place of the operating system's generator, so that both draw the same numbers."""

    def __init__(self, seed: int, device: int, purpose: str) -> None:
        self.streams, self.device, self.purpose, self.drawn = Streams(seed), device, purpose, 0

    def encoding(self) -> np.random.Generator:
        self.drawn += 1
        return self.streams.at(self.purpose, device=self.device)

    def batches(self) -> Streams:
        return self.streams


Tamper = Callable[[str, Kind, Packet, Packet], Packet | None]
"""Changes a reply of a device to a request; None loses it."""


class InProcess:
    """An exchange whose devices are objects in this process.

    Args:
        clients: the devices by name.
        tamper: changes replies on their way.
        away: who is not connected, given the kind of request.
    """

    def __init__(self, clients: Mapping[str, Client], tamper: Tamper | None = None) -> None:
        self.clients = dict(clients)
        self.tamper = tamper or (lambda device, kind, request, reply: reply)
        self.away: set[str] = set()
        self.asked: list[tuple[str, Kind]] = []

    def online(self) -> frozenset[str]:
        return frozenset(self.clients) - self.away

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:  # noqa: ARG002
        replies = []
        for device, request in requests.items():
            self.asked.append((device, kind))
            began = time.monotonic()
            packet = self.tamper(device, kind, request, self.clients[device].answer(kind, request))
            if packet is not None:
                replies.append(reply_of(device, time.monotonic() - began, packet))
        return iter(replies)


def open_clients(folder: Path, seeded: str = "") -> dict[str, Client]:
    """Open all devices of a federation; ``seeded`` names the purpose of the simulator's streams to draw uploads from."""
    names = sorted(path.name for path in (folder / "devices").iterdir())
    order = {name: i for i, name in enumerate(NAMES)}
    return {
        name: Client.open(
            folder / "devices" / name, randomness=SeededRandomness(0, order[name], seeded) if seeded else None
        )
        for name in names
    }


def coordinator(folder: Path, exchange: InProcess) -> Coordinator:
    """Return the server of a federation in this process."""
    made = Coordinator(folder, exchange)
    made.store.folder.mkdir(parents=True, exist_ok=True)
    return made
