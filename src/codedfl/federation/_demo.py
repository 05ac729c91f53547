"""A complete federation on one machine: a server, and four devices of which one is slow and one dies and comes back."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from codedfl.coding import Rows
from codedfl.config import option_defaults
from codedfl.federation._config_files import parse_federation
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._launch import serve
from codedfl.federation._settings import pooled_setting, replay
from codedfl.federation._setup import initialise
from codedfl.federation.demo_device import DemoThread, serve_demo_device
from codedfl.federation.transport import LocalTransport
from codedfl.files import csv_text
from codedfl.fleet import read_trace
from codedfl.schemes import make_scheme
from codedfl.training import Evaluator

DEVICES = ("clinic", "gateway", "phone", "sensor")
SLOW, DIES = "phone", "sensor"
PIXELS = tuple(f"pixel{i}" for i in range(64))
TEST_ROWS = 450
DEADLINE_S = 3.0
EPSILON, PATIENT_DEADLINE_S = 4.0, 8.0
"""Of the demonstration of a private federation, whose devices cannot be asked for fewer rows."""
ROUNDS = 20
"""Of a demonstration, unless its scheme has a number of its own."""
AWAY_ROUNDS = 4
"""Rounds for which the device that died stays away."""


def run_demo(
    folder: Path | str,
    listener: Callable[[dict[str, Any]], None],
    *,
    rounds: int | None = None,
    scheme: str = "ccfl",
    insecure: bool = False,
    transport: Literal["flower", "local"] = "flower",
) -> dict[str, Any]:
    """Set a federation up, run it, and compare its model with what the simulator predicts for the same arrivals.

    Args:
        folder: where everything is kept; it must not exist yet, or be empty.
        listener: called with every event.
        rounds: number of rounds; None for that of the scheme or, if it leaves the number open, `ROUNDS`.
        scheme: scheme to train with.
        insecure: whether to do without encryption and authentication; nothing else is possible in one process.
        transport: "flower" for a process of each party and messages over TLS, "local" for threads in this process.

    Returns:
        Accuracies, arrivals and times, as plain values.
    """
    folder, began = Path(folder), time.monotonic()
    config = demo_config(free_address(), rounds, scheme)
    local = LocalTransport() if transport == "local" else None
    initialise(folder, config, hosts=[], insecure=insecure or local is not None)
    write_data(folder)
    dies_in = max((rounds or config.options.get("rounds") or ROUNDS) // 4, 1)
    with DeviceProcesses(folder, dies_in) if local is None else DeviceThreads(folder, dies_in, local) as devices:

        def listen(event: dict[str, Any]) -> None:
            listener(event)
            for news in devices.hear(event):
                listener(news)

        serve(folder, listener=listen, transport=local)
        restarted = devices.restarted_in
    return _result(folder, config, restarted, time.monotonic() - began)


def demo_config(address: str, rounds: int | None, scheme: str = "ccfl") -> FederationConfig:
    """Return the federation of the demonstration: digits, by random Fourier features."""
    private, defaults = make_scheme(scheme).private, option_defaults(scheme)
    options = {"rounds": rounds or defaults["rounds"] or ROUNDS} if "rounds" in defaults else {}
    deadline_s = PATIENT_DEADLINE_S if private else DEADLINE_S
    return parse_federation(
        {
            "name": "demo",
            "scheme": scheme,
            "devices": DEVICES,
            "data": {
                "columns": PIXELS,
                "target": ["digit"],
                "task": "classification",
                "classes": [str(digit) for digit in range(10)],
            },
            "features": {"map": "rff", "dimension": 100, "gamma": 0.0005, "intercept": False},
            "coding": {"coded_samples": 500, "noise_variance": 0.01},
            "options": options,
            "privacy": {"epsilon": EPSILON if private else 0.0},
            "training": {"rounds": rounds or ROUNDS, "deadline_s": deadline_s, "join_s": 90.0, "upload_s": 60.0},
            "server": {"address": address, "test_file": "test.csv"},
        }
    )


def free_address() -> str:
    """Return an address on loopback with a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def write_data(folder: Path) -> None:
    """Spread the digits over the devices by label, so that each sees mostly digits of its own, and keep rows to test on."""
    from sklearn.datasets import load_digits

    data = load_digits()
    inputs, digits = data.data.astype(np.float64), data.target
    order = np.random.default_rng(0).permutation(len(digits))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    train = train[np.argsort(digits[train], kind="stable")]
    _write_table(folder / "test.csv", inputs[test], digits[test])
    for name, part in zip(DEVICES, np.array_split(train, len(DEVICES)), strict=True):
        _write_table(folder / "devices" / name / "data.csv", inputs[part], digits[part])


def _write_table(path: Path, inputs: Any, digits: Any) -> None:
    rows = [[*row, digit] for row, digit in zip(inputs.tolist(), digits.tolist(), strict=True)]
    path.write_text(csv_text([*PIXELS, "digit"], rows), encoding="utf-8")


@dataclass
class DemoDevices(ABC):
    """The four devices; they end with the demonstration.

    Args:
        folder: the folder of the federation.
        dies_in: the round in which one of them dies.
    """

    folder: Path
    dies_in: int
    restarted_in: int | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        for name in DEVICES:
            self.start(name, slow=name == SLOW, dies_in=self.dies_in if name == DIES else -1)
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @abstractmethod
    def start(self, name: str, *, slow: bool = False, dies_in: int = -1) -> None:
        """Start a device, or start it again."""

    @abstractmethod
    def runs(self, name: str) -> bool:
        """Return whether a device still runs."""

    @abstractmethod
    def stop(self) -> None:
        """End all devices."""

    def hear(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Bring the device that died back after a few rounds; return what there is to tell about it."""
        if event["event"] != "round" or self.restarted_in is not None:
            return []
        news = []
        dead = not self.runs(DIES)
        if dead and event["round"] == self.dies_in + 1:
            news.append({"event": "killed", "device": DIES, "round": event["round"]})
        if dead and event["round"] >= self.dies_in + AWAY_ROUNDS:
            self.start(DIES)
            self.restarted_in = int(event["round"])
            news.append({"event": "restarted", "device": DIES, "round": event["round"]})
        return news


@dataclass
class DeviceProcesses(DemoDevices):
    """Every device in a process of its own, whose log is in its folder."""

    _running: dict[str, subprocess.Popen[bytes]] = field(init=False, default_factory=dict)

    def start(self, name: str, *, slow: bool = False, dies_in: int = -1) -> None:
        """Start a process."""
        folder = self.folder / "devices" / name
        command = [sys.executable, "-m", "codedfl.federation.demo_device", str(folder), "--dies-in", str(dies_in)]
        with (folder / "client.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                [*command, *(["--slow"] if slow else [])], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def runs(self, name: str) -> bool:
        """Return whether its process does."""
        return self._running[name].poll() is None

    def stop(self) -> None:
        """End all processes, politely at first."""
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@dataclass
class DeviceThreads(DemoDevices):
    """Every device in a thread of this process.

    Args:
        transport: carries their messages.
    """

    transport: LocalTransport
    _running: dict[str, threading.Thread] = field(init=False, default_factory=dict)
    _stop: threading.Event = field(init=False, default_factory=threading.Event)

    def start(self, name: str, *, slow: bool = False, dies_in: int = -1) -> None:
        """Start a thread."""
        folder, transport = self.folder / "devices" / name, self.transport

        def serve_until_death() -> None:
            with suppress(SystemExit):
                serve_demo_device(
                    folder, slow=slow, dies_in=dies_in, kind=DemoThread, stop=self._stop, transport=transport
                )

        thread = threading.Thread(target=serve_until_death, name=name, daemon=True)
        self._running[name] = thread
        thread.start()

    def runs(self, name: str) -> bool:
        """Return whether its thread does."""
        return self._running[name].is_alive()

    def stop(self) -> None:
        """End all threads."""
        self._stop.set()
        for thread in self._running.values():
            thread.join()


def _result(folder: Path, config: FederationConfig, restarted: int | None, seconds: float) -> dict[str, Any]:
    summary = json.loads((folder / "results" / "summary.json").read_text(encoding="utf-8"))
    rows: dict[str, Rows] = {name: load_rows(folder / "devices" / name / "data.csv", config) for name in config.devices}
    setting = pooled_setting(config, rows, load_rows(folder / "test.csv", config))
    reference = Evaluator(setting).reference
    trace_file = folder / "results" / "trace.csv"
    simulated = replay(config, setting, read_trace(trace_file, config.devices) if trace_file.is_file() else None)
    return {
        "federation": config.name,
        "scheme": config.scheme,
        "folder": str(folder),
        "devices": summary["devices"],
        "rounds": summary["rounds"],
        "accuracy": summary["score"],
        "simulated_accuracy": simulated.final.score,
        "centralised_accuracy": None if reference is None else reference.score,
        "mean_arrivals": summary["mean_arrivals"],
        "privacy": summary["privacy"],
        "slow": SLOW,
        "killed": DIES,
        "restarted_in_round": restarted,
        "training_s": summary["seconds"],
        "seconds": round(seconds, 1),
    }
