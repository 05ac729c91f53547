"""A federation of real processes on loopback: a server and devices, which can be killed and are started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from codedfl.federation import overview
from codedfl.federation._demo import free_address
from codedfl.federation._store import state_folder
from codedfl.federation.transport.flower import QUIET
from tests.federation.support import NAMES, digits_config, make_federation

ROOT = Path(__file__).parents[2]
LONGEST_S = 150.0
"""After this a scenario has failed."""


class Processes:
    """A federation in a folder, with all of its processes.

    Args:
        folder: where to.
        options: of each device, for ``tests/federation/device.py``.
        settings: of the federation.
    """

    def __init__(self, folder: Path, options: Mapping[str, Sequence[str]] | None = None, /, **settings: Any) -> None:
        self.folder, self.options = folder, dict(options or {})
        settings["server"] = {**settings.get("server", {}), "address": free_address()}
        self.config = digits_config(**settings)
        make_federation(folder, self.config, insecure=False)
        self.devices: dict[str, subprocess.Popen[bytes]] = {}
        self.started: dict[str, int] = {}
        self.server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Processes:
        for name in NAMES:
            self.start_device(name)
        return self

    def __exit__(self, *_: object) -> None:
        processes = [*self.devices.values(), *([self.server] if self.server else [])]
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _popen(self, command: Sequence[str], log: Path, path: Path | None = None) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **QUIET}
        if path is not None:
            environment["PYTHONPATH"] = str(path)
        with log.open("ab") as file:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment, cwd=ROOT
            )

    def start_device(self, name: str, folder: Path | None = None) -> None:
        """Start a device, or start it again."""
        folder = folder or self.folder / "devices" / name
        command = [sys.executable, str(ROOT / "tests/federation/device.py"), str(folder), *self.options.get(name, ())]
        self.devices[name] = self._popen(command, folder / "client.log")
        self.started[name] = self.started.get(name, 0) + 1

    def start_server(self, command: str = "server", path: Path | None = None) -> None:
        """Start the server, as a user does; ``path`` is put first on the way to Python's modules."""
        run = [sys.executable, "-c", "from codedfl.cli import main; main()", "federation", command, str(self.folder)]
        self.server = self._popen(run, self.folder / "server.log", path)

    def wait(self, until: Callable[[list[dict[str, Any]]], bool]) -> None:
        """Wait until the events say so, starting devices again that have died, as a service manager does."""
        began = time.monotonic()
        while not until(self.events()):
            for name, process in list(self.devices.items()):
                if process.poll() is not None:
                    self.start_device(name)
            assert time.monotonic() - began < LONGEST_S, f"{self.events()[-5:]}\n{self.log()}"
            time.sleep(0.1)

    def complete(self) -> dict[str, Any]:
        """Wait for the end of training, and return its summary."""
        assert self.server is not None
        server = self.server
        self.wait(lambda _: server.poll() is not None)
        assert server.returncode == 0, self.log()
        summary: dict[str, Any] = json.loads((self.folder / "results" / "summary.json").read_text())
        return summary

    def events(self) -> list[dict[str, Any]]:
        """Return everything that the server has written down."""
        return overview(self.folder)[2]

    def log(self) -> str:
        """Return what the server printed, and the end of what Flower did."""
        texts = [self.folder / "server.log", state_folder(self.folder) / "superlink.log"]
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in texts if path.exists())

    def program(self) -> int:
        """Return the process id of the server's program."""
        status = overview(self.folder)[1]
        assert status is not None
        return int(status["process"])

    def kill_program(self) -> None:
        """Kill the server's program alone, at once; the command that started it then ends with an error."""
        os.kill(self.program(), signal.SIGKILL)
        assert self.server is not None
        assert self.server.wait(timeout=30) == 2
        assert "codedfl federation resume" in self.log()

    def kill_command(self) -> None:
        """Kill the command that started the server; what it started must not survive it for long."""
        assert self.server is not None
        self.server.kill()
        self.server.wait()

    def ledger(self, name: str) -> list[dict[str, Any]]:
        """Return what a device released."""
        lines = (self.folder / "devices" / name / "state" / "ledger.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def count(events: list[dict[str, Any]], event: str, device: str = "") -> int:
    """Return how often something happened."""
    return sum(entry["event"] == event and device in ("", entry.get("device")) for entry in events)
