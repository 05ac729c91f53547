"""Starting a server, watching it and stopping it; connecting a device."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation._config_files import read_client, read_federation
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._locks import locked
from codedfl.federation._release_ledger import ReleaseLedger
from codedfl.federation._store import NewEvents, ServerStore, state_folder
from codedfl.federation.transport import Transport
from codedfl.federation.transport.flower import FlowerTransport

if TYPE_CHECKING:
    from codedfl.federation._client import Client

Listener = Callable[[dict[str, Any]], None]

WATCH_S = 0.25
"""Seconds between looks at what the server has written down."""

START_S = 120.0
"""How long the server's program may take to start."""


class ServerDied(RuntimeError):  # noqa: N818  (it names what happened)
    """The server's program ended without a word; what it had done is on disk."""


PROGRAM = "codedfl.federation._coordinator:run_server"
"""What a transport runs on the server."""


def serve(
    folder: Path | str, *, resume: bool = False, listener: Listener | None = None, transport: Transport | None = None
) -> dict[str, Any]:
    """Run the server of a federation until it is complete; Ctrl-C and SIGTERM stop it, and it can be resumed.

    Args:
        folder: the folder that `initialise` made.
        resume: continue a run that was interrupted.
        listener: called with every event.
        transport: what carries messages; Flower if None.

    Returns:
        The last status.

    Raises:
        InputError: the folder, the configuration or the state do not allow it, or the run stopped for a reason to mend.
        ServerDied: the server's program was killed; resume.
    """
    from codedfl.federation._coordinator import require_runnable  # not needed by a device, whose start should be quick

    folder = Path(folder)
    config = read_federation(folder / "federation.toml")
    store = ServerStore(state_folder(folder))
    _require_state(store, folder, resume=resume)
    require_runnable(folder, config)
    with _only_server(store.folder):
        events = store.read_events()
        if resume:
            events.read_new()
        before = store.read_status() or {}
        store.write_status({**before, "phase": "starting", "process": None})
        carrier = transport or FlowerTransport()
        earlier = before.get("process")
        with (
            _interrupted_by_sigterm(),
            carrier.host(folder, PROGRAM, None if earlier is None else int(earlier)) as alive,
        ):
            return _watch(store, alive, events, listener or _ignore)


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does, so that everything that was started is stopped."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _ignore(event: dict[str, Any]) -> None:
    """Let an event pass."""


@contextmanager
def _only_server(state: Path) -> Iterator[None]:
    """Keep a second server out of the folder."""
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    running = InputError(
        f"a server is running in {shown(state.parent.parent)}: watch it with `codedfl federation status`, or stop it."
    )
    with locked(state / "launcher.lock", lambda _: running):
        yield


def _require_state(store: ServerStore, folder: Path, *, resume: bool) -> None:
    status = store.read_status()
    if status is not None and status.get("phase") == "completed":
        raise InputError(
            f"the federation in {shown(folder)} is complete: its model is in {shown(folder / 'results')}; begin another one with"
            " `codedfl federation init`."
        )
    if resume and status is None:
        raise InputError(f"no run has begun in {shown(folder)}: start one with `codedfl federation server`.")
    if not resume and status is not None:
        raise InputError(
            f"a run has begun in {shown(folder)} and is not complete: continue it with `codedfl federation resume`."
        )


def _watch(store: ServerStore, is_alive: Callable[[], bool], events: NewEvents, listener: Listener) -> dict[str, Any]:
    """Pass events on until the run has ended."""
    began, completed = time.monotonic(), False
    while True:
        for event in events.read_new():
            listener(event)
            completed |= event["event"] == "completed"
        status = store.read_status() or {}
        if status.get("phase") == "completed" and completed:
            return status
        if status.get("phase") == "stopped":
            raise InputError(str(status.get("reason", "the run stopped: see events.jsonl.")))
        process = status.get("process")
        gone = process is None and time.monotonic() - began > START_S
        if not is_alive() or gone or (process is not None and not _runs(int(process))):
            raise ServerDied(
                f"the server's program ended unexpectedly: see {store.folder / 'superlink.log'}, then continue with"
                " `codedfl federation resume`."
            )
        time.sleep(WATCH_S)


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    state = Path(f"/proc/{process}/stat")
    return not state.is_file() or b") Z " not in state.read_bytes()


def connect(folder: Path | str, *, stop: threading.Event | None = None, transport: Transport | None = None) -> None:
    """Connect the device of a folder to its server, and serve until stopped.

    Args:
        folder: the folder with ``client.toml``.
        stop: ends the service when set; SIGINT and SIGTERM by default.
        transport: what carries messages; Flower if None.

    Raises:
        InputError: the configuration or the data is wrong, or another process serves this device.
    """
    from codedfl.federation._client import Client

    folder = Path(folder)
    with only_client(folder):
        serve_device(folder, Client.open(folder), stop, transport)


@contextmanager
def only_client(folder: Path) -> Iterator[None]:
    """Keep a second process of the same device out, so that nothing is released twice."""
    config = read_client(folder / "client.toml")
    state = folder / config.state
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    serving = InputError(f"another process serves the device in {shown(folder)}: stop it first.")
    with locked(state / "client.lock", lambda _: serving):
        yield


def serve_device(
    folder: Path, client: Client, stop: threading.Event | None = None, transport: Transport | None = None
) -> None:
    """Serve a device with a client that is already open."""
    (transport or FlowerTransport()).link(folder).serve(client.answer, stop or stop_on_signals())


def stop_on_signals() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stop = threading.Event()

    def end(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    return stop


def overview(folder: Path | str) -> tuple[FederationConfig, dict[str, Any] | None, list[dict[str, Any]]]:
    """Return configuration, status and events of a federation, for whoever asks how it is going."""
    folder = Path(folder)
    store = ServerStore(state_folder(folder))
    return read_federation(folder / "federation.toml"), store.read_status(), list(store.events())


def device_delta(folder: Path | str) -> float:
    """Return the delta at which the device of a folder states what it released."""
    return read_client(Path(folder) / "client.toml").privacy.delta


def read_ledger(folder: Path | str) -> list[dict[str, Any]]:
    """Return everything that the device of a folder ever released.

    Raises:
        InputError: the ledger was altered, or there is none.
    """
    folder = Path(folder)
    path = folder / read_client(folder / "client.toml").state / "ledger.jsonl"
    if not path.is_file():
        raise InputError(f"{shown(path)} does not exist: this device has released nothing yet.")
    return [json.loads(entry.line()) for entry in ReleaseLedger(path)]
