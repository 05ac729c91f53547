"""A small federation in one process: the same client and server code, with messages that are passed by hand."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from codedfl.federation._client import Client
from codedfl.federation._config_files import federation_toml, parse_federation
from codedfl.federation._coordinator import Coordinator
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._rounds import Rounds
from codedfl.federation._settings import pooled_setting
from codedfl.federation._setup import initialise
from codedfl.federation._store import ServerStore, state_folder
from codedfl.federation.transport import Kind, Packet, Reply, reply_of
from codedfl.files import csv_text
from codedfl.privacy import SeededNoise
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import LocalSGD, WalkPlan, train
from codedfl.typing import FloatArray
from codedfl.uploads import Upload

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
    parts = [train[a:b] for a, b in pairwise(cuts)]
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

    def encoding(self) -> SeededNoise:
        self.drawn += 1
        return SeededNoise(self.streams.at(self.purpose, device=self.device))

    def update(self, round: int) -> SeededNoise:
        return SeededNoise(self.streams.at("update-noise", device=self.device, round=round))

    def batches(self) -> Streams:
        return self.streams


Tamper = Callable[[str, Kind, Packet, Packet], Packet | None]
"""Changes a reply of a device to a request; None loses it."""


class InProcess:
    """An exchange whose devices are objects in this process.

    Devices answer when they are asked; their replies pass `tamper` one by one, as the server reads them.

    Args:
        clients: the devices by name.
        tamper: changes replies on their way, or raises to stop the server.
    """

    def __init__(self, clients: Mapping[str, Client], tamper: Tamper | None = None) -> None:
        self.clients = dict(clients)
        self.tamper = tamper or (lambda *message: message[-1])
        self.away: set[str] = set()
        self.asked: list[tuple[str, Kind]] = []

    def online(self) -> frozenset[str]:
        return frozenset(self.clients) - self.away

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:  # noqa: ARG002
        answers = []
        for device, request in requests.items():
            self.asked.append((device, kind))
            began = time.monotonic()
            answers.append((device, request, self.clients[device].answer(kind, request), time.monotonic() - began))
        return self._arriving(kind, answers)

    def _arriving(self, kind: Kind, answers: list[tuple[str, Packet, Packet, float]]) -> Iterator[Reply]:
        for device, request, answer, elapsed_s in answers:
            packet = self.tamper(device, kind, request, answer)
            if packet is not None:
                yield reply_of(device, elapsed_s, packet)


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


def coordinator(folder: Path, exchange: InProcess, clock: Clock | None = None) -> Coordinator:
    """Return the server of a federation in this process, on a clock that nobody has to wait for if there is one."""
    made = Coordinator.open(folder, exchange)
    if clock is not None:
        made.context = replace(made.context, clock=clock, sleep=clock.sleep)
    made.store.folder.mkdir(parents=True, exist_ok=True)
    return made


def copy_federation(base: Path, folder: Path, config: FederationConfig) -> Path:
    """Copy a federation, with its data and its mapped rows, and give it another configuration; return the folder."""
    shutil.copytree(base, folder)
    for path in folder.rglob("federation.toml"):
        path.write_text(federation_toml(config), encoding="utf-8")
    return folder


def change_client(folder: Path, device: str, old: str, new: str) -> None:
    """Change a line of a device's own configuration."""
    path = folder / "devices" / device / "client.toml"
    text = path.read_text(encoding="utf-8")
    assert text.count(old) == 1
    path.write_text(text.replace(old, new), encoding="utf-8")


def run(folder: Path, clients: Mapping[str, Client], tamper: Tamper | None = None) -> Rounds:
    """Run a federation, or continue one, to its end."""
    return coordinator(folder, InProcess(clients, tamper)).run()


def events(folder: Path, name: str = "") -> list[dict[str, Any]]:
    """Return what the server wrote down, of one kind or all."""
    return [event for event in ServerStore(state_folder(folder)).events() if name in ("", event["event"])]


def purpose_of(config: FederationConfig) -> str:
    """Return the purpose of the streams from which the simulator draws what this federation uploads."""
    if config.scheme == "ccfl" and config.options["upload"] == "subspace":
        return "sketch"
    return "coding-factor" if config.options.get("upload") == "factor" else "coding"


def upload_of(config: FederationConfig) -> Upload:
    """Return what the devices of a federation upload."""
    upload = config.algorithm.upload
    assert upload is not None
    return upload


def pooled(folder: Path, config: FederationConfig, clients: Mapping[str, Client]) -> Setting:
    """Return the setting of a simulator that has the rows of all devices."""
    rows = {name: clients[name].rows for name in config.devices}
    return pooled_setting(config, rows, load_rows(folder / "test.csv", config))


def simulated(folder: Path, config: FederationConfig, clients: Mapping[str, Client], rounds: Rounds) -> FloatArray:
    """Return the model that the simulator ends with, given who arrived when, and who uploaded with how much noise."""
    setting = pooled(folder, config, clients)
    declared = rounds.prepared.setting.code
    code = replace(
        setting.code,
        noise_variance=declared.noise_variance,
        label_noise_variance=declared.label_noise_variance,
        participants=declared.participants,
    )
    setting = replace(setting, code=code)
    scheme = config.algorithm
    trace = rounds.arrivals.trace() if rounds.arrivals.rounds else None
    plan = None
    if trace is not None and isinstance(scheme.device, LocalSGD) and scheme.device.sampling == "walk":
        strides = np.array(rounds.strides)
        plan = WalkPlan(setting.federation, setting.streams, scheme.device.steps or 1, trace, strides=strides)
    prepared = scheme.prepare(setting, arrivals=trace, plan=plan)
    result = train(prepared, rounds.learning_rate, rounds.state.round)
    return scheme.final_model(result.progress.state)


class Killed(BaseException):
    """Stands for the end of the server's process: nothing in it may catch this."""


def kill_at(count: int, tamper: Tamper | None = None) -> Tamper:
    """Return what ends the server when it reads reply number ``count``, from 0."""
    seen = iter(range(count))

    def kill(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
        if next(seen, None) is None:
            raise Killed
        return reply if tamper is None else tamper(device, kind, request, reply)

    return kill


def missing(device: str, kind: Kind, request: Packet, reply: Packet) -> Packet | None:
    """Lose updates by a rule, so that devices arrive in different shares of the rounds."""
    lost = kind == "train" and int(str(request.values["round"])) % (2 + NAMES.index(device)) == 1
    return None if lost else reply


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.naps: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.naps.append(seconds)
        self.now += seconds
