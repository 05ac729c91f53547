"""The journal of a server: what happened, for people and programs that watch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from codedfl.federation._store import ServerStore

log = logging.getLogger("codedfl.federation")


class Journal:
    """Writes events as they happen, and the present state for whoever asks.

    Args:
        store: the folder of the server.
        listener: called with every event as well.
    """

    def __init__(self, store: ServerStore, listener: Callable[[dict[str, Any]], None] | None = None) -> None:
        self._store, self._listener = store, listener
        self._status: dict[str, Any] = store.read_status() or {}

    def note(self, event: str, **details: Any) -> None:
        """Write down an event."""
        entry = {"time": round(time.time(), 3), "event": event, **details}
        self._store.append_event(entry)
        log.info("%s %s", event, details)
        if self._listener:
            self._listener(entry)

    def status(self, **changes: Any) -> None:
        """Change the present state."""
        self._status = {**self._status, **changes, "time": round(time.time(), 3)}
        self._store.write_status(self._status)
