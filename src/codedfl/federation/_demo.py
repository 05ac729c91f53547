"""A complete federation on one machine: a server, and four devices of which one is slow and one dies and comes back."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from codedfl.coding import Rows
from codedfl.config import option_defaults
from codedfl.federation._config_files import parse_federation
from codedfl.federation._device_data import load_rows
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._launch import serve
from codedfl.federation._replay import pooled_setting, replay
from codedfl.federation._setup import initialise
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
) -> dict[str, Any]:
    """Set a federation up, run it, and compare its model with what the simulator predicts for the same arrivals.

    Args:
        folder: where everything is kept; it must not exist yet, or be empty.
        listener: called with every event.
        rounds: number of rounds; None for that of the scheme or, if it leaves the number open, `ROUNDS`.
        scheme: scheme to train with.
        insecure: whether to do without encryption and authentication.

    Returns:
        Accuracies, arrivals and times, as plain values.
    """
    folder, began = Path(folder), time.monotonic()
    config = demo_config(free_address(), rounds, scheme)
    initialise(folder, config, hosts=[], insecure=insecure)
    write_data(folder)
    with DemoDevices(folder, dies_in=max((rounds or config.options.get("rounds") or ROUNDS) // 4, 1)) as devices:

        def listen(event: dict[str, Any]) -> None:
            listener(event)
            for told in devices.hear(event):
                listener(told)

        serve(folder, listener=listen)
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
class DemoDevices:
    """The processes of the four devices; they end with the demonstration.

    Args:
        folder: the folder of the federation.
        dies_in: the round in which one of them dies.
    """

    folder: Path
    dies_in: int
    restarted_in: int | None = field(init=False, default=None)

    def __enter__(self) -> DemoDevices:
        self._stack = ExitStack()
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        for name in DEVICES:
            self._start(
                name, *(["--slow"] if name == SLOW else ["--dies-in", str(self.dies_in)] if name == DIES else [])
            )
        return self

    def _start(self, name: str, *options: str) -> None:
        folder = self.folder / "devices" / name
        log = self._stack.enter_context((folder / "client.log").open("ab"))
        command = [sys.executable, "-m", "codedfl.federation.demo_device", str(folder), *options]
        self._running[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def hear(self, event: dict[str, Any]) -> list[dict[str, Any]]:
        """Bring the device that died back after a few rounds; return what there is to tell about it."""
        if event["event"] != "round" or self.restarted_in is not None:
            return []
        told = []
        dead = self._running[DIES].poll() is not None
        if dead and event["round"] == self.dies_in + 1:
            told.append({"event": "killed", "device": DIES, "round": event["round"]})
        if dead and event["round"] >= self.dies_in + AWAY_ROUNDS:
            self._start(DIES)
            self.restarted_in = int(event["round"])
            told.append({"event": "restarted", "device": DIES, "round": event["round"]})
        return told

    def __exit__(self, *_: object) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._stack.close()


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
