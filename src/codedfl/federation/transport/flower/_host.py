"""The SuperLink as a child process: started, told who may connect, given the run, and stopped with everything under it."""

from __future__ import annotations

import hashlib
import ipaddress
import os
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from flwr.cli.build import build_fab_from_files
from flwr.proto import control_pb2, fab_pb2, transport_pb2
from flwr.supercore.control import ControlHttpClient

from codedfl._version import __version__
from codedfl.errors import InputError
from codedfl.federation.transport.flower import QUIET

READY_S = 60.0
"""How long the SuperLink may take to start."""

STOP_S = 10.0
"""How long it may take to stop before it is killed."""

EVERYWHERE = "0.0.0.0"
"""All addresses of this machine."""

PROGRAM = "flwr-serverapp"
"""What is in the command line of a process in which Flower runs a server's program."""

SUPERLINK = Path(__file__).with_name("superlink.py")

APP = """\
[project]
name = "codedfl-federation"
version = "{version}"
description = "The server of a federation; devices never run what is in here."
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "codedfl"

[tool.flwr.app.components]
serverapp = "codedfl_federation.app:app"
clientapp = "codedfl_federation.app:app"

[tool.flwr.app.config]
folder = ""
authenticated = true
program = ""
"""


@dataclass
class SuperLink:
    """Flower's SuperLink for one federation.

    Args:
        folder: the folder of the federation.
        address: host:port that devices connect to.
        insecure: whether to do without encryption and authentication.
    """

    folder: Path
    address: str
    insecure: bool
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def _server(self) -> Path:
        return self.folder / "server"

    @property
    def _port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def _bind(self) -> str:
        """The address to listen on: loopback if devices use that, otherwise all."""
        host = self.address.rpartition(":")[0].strip("[]")
        if host == "localhost":
            return "127.0.0.1"
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return EVERYWHERE
        if address.is_loopback:
            return host
        return "::" if address.version == 6 else EVERYWHERE

    def start(self) -> None:
        """Start it, and wait until it answers.

        Raises:
            InputError: if it does not; the end of its log is in the message.
        """
        state = self._server / "state"
        home = state / "flower"
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._end_earlier()
        programs = Path(sysconfig.get_path("scripts"))
        security = (
            ["--insecure"]
            if self.insecure
            else [
                *(
                    "--ssl-certfile",
                    str(self._server / "server.crt"),
                    "--ssl-keyfile",
                    str(self._server / "server.key"),
                ),
                *("--ssl-ca-certfile", str(self._server / "ca.crt"), "--enable-supernode-auth"),
            ]
        )
        command = [
            *(sys.executable, "-P", str(SUPERLINK), *security),
            *("--host", self._bind, "--port", str(self._port), "--disable-runtime-dependency-installation"),
        ]
        with (state / "superlink.log").open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=flower_environment(home, programs),
                start_new_session=True,
            )
        (state / "superlink.pid").write_text(str(self._process.pid), encoding="ascii")
        began = time.monotonic()
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() - began > READY_S:
                self.stop()
                raise InputError(
                    f"Flower's SuperLink did not start on {self.address}: see {state / 'superlink.log'}, and choose another"
                    " server.address if the port is taken."
                )
            time.sleep(0.2)

    def _end_earlier(self) -> None:
        """End a SuperLink that a killed server left behind, if it is one."""
        pid_file = self._server / "state" / "superlink.pid"
        if pid_file.is_file():
            pid = int(pid_file.read_text(encoding="ascii") or 0)
            if is_program(pid, str(SUPERLINK)):
                _end_group(pid)
            pid_file.unlink()

    @property
    def _host(self) -> str:
        """The address at which this machine reaches it."""
        if self._bind in (EVERYWHERE, "::"):
            return "127.0.0.1"
        return f"[{self._bind}]" if ":" in self._bind else self._bind

    def _answers(self) -> bool:
        try:
            socket.create_connection((self._host.strip("[]"), self._port), timeout=1.0).close()
        except OSError:
            return False
        return True

    def _control(self) -> ControlHttpClient:
        certificate = None if self.insecure else (self._server / "ca.crt").read_bytes()
        return ControlHttpClient.from_server_address(
            f"{self._host}:{self._port}", self.insecure, certificate, interceptors=[]
        )

    def register(self, keys: Mapping[str, bytes]) -> None:
        """Let the holders of these keys connect, each under its name."""
        with self._control() as control:
            for name, key in keys.items():
                control.RegisterNode(control_pb2.RegisterNodeRequest(public_key=key, name=name))

    def submit(self, program: str) -> None:
        """Start the server's program, ``module:function``."""
        files = {
            "pyproject.toml": APP.format(version=__version__).encode(),
            "codedfl_federation/__init__.py": b"",
            "codedfl_federation/app.py": b"from codedfl.federation.transport.flower.server_app import app\n",
        }
        bundle = build_fab_from_files(files)[0]
        fab = fab_pb2.Fab(hash_str=hashlib.sha256(bundle).hexdigest(), content=bundle)
        settings = {
            "folder": transport_pb2.Scalar(string=str(self.folder.resolve())),
            "authenticated": transport_pb2.Scalar(bool=not self.insecure),
            "program": transport_pb2.Scalar(string=program),
        }
        with self._control() as control:
            control.StartRun(control_pb2.StartRunRequest(fab=fab, override_config=settings, federation=""))

    def is_alive(self) -> bool:
        """Return whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Stop it and everything that it started."""
        if self._process is None:
            return
        _end_group(self._process.pid, self._process)
        self._process = None
        (self._server / "state" / "superlink.pid").unlink(missing_ok=True)
        shutil.rmtree(self._server / "state" / "flower", ignore_errors=True)


def flower_environment(home: Path, programs: Path) -> dict[str, str]:
    """Return the environment for Flower's programs.

    Args:
        home: folder for Flower's own files.
        programs: folder with Flower's programs, which start each other by name.
    """
    path = os.pathsep.join([str(programs), os.environ.get("PATH", os.defpath)])
    return {**os.environ, **QUIET, "FLWR_HOME": str(home), "PATH": path}


def end_program(pid: int) -> None:
    """End the program of a server that was killed, if it is one, and wait until it is gone."""
    if is_program(pid, PROGRAM):
        os.kill(pid, signal.SIGKILL)
        while is_program(pid, PROGRAM):
            time.sleep(0.05)


def is_program(pid: int, name: str) -> bool:
    """Return whether a process runs and has a name in its command line, as far as the system tells."""
    command = Path(f"/proc/{pid}/cmdline")
    try:
        return name.encode() in command.read_bytes()
    except OSError:
        return False


def _end_group(pid: int, process: subprocess.Popen[bytes] | None = None) -> None:
    """End a process group: politely, then for good."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, number)
        except ProcessLookupError:
            return
        began = time.monotonic()
        while time.monotonic() - began < STOP_S:
            if process is not None:
                process.poll()  # collects it, so that the group can disappear
            try:
                os.killpg(pid, 0)
            except (ProcessLookupError, PermissionError):
                return
            time.sleep(0.1)
