"""Threads in one process: a server and its devices without a network, for tests and small trials."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from queue import Empty, SimpleQueue
from typing import NamedTuple

from codedfl.federation._config_files import read_client
from codedfl.federation.transport._interface import Answer, Kind, Packet, Reply, failure_of, reply_of

log = logging.getLogger("codedfl.federation")

STOP_S = 0.1
"""How often a waiting device looks whether it is to stop."""


class HubClosed(ConnectionError):  # noqa: N818  (it names what happened)
    """The transport of a server was stopped while its program ran."""


class Question(NamedTuple):
    """A request on its way, and where its reply goes; nobody looks there after the deadline."""

    kind: Kind
    packet: Packet
    deadline: float
    replies: SimpleQueue[tuple[str, Packet | str | None]]
    """Device, and its packet, its failure in words, or None if it went away without an answer."""


@dataclass
class LocalTransport:
    """A hub and its links in this process.

    Names are enough to connect: in one process there is nobody to keep out. Arrays are copied on their way, as by any other
    transport.
    """

    _arrived: threading.Condition = field(init=False, repr=False, default_factory=threading.Condition)
    _waiting: dict[str, deque[Question]] = field(init=False, repr=False, default_factory=dict)

    def hub(self, closed: threading.Event | None = None) -> LocalHub:
        """Return the server's end, which refuses to go on once ``closed`` is set."""
        return LocalHub(self, closed or threading.Event())

    def link(self, folder: Path) -> LocalLink:
        """Return the link of the device of a folder."""
        return self.link_of(read_client(folder / "client.toml").name)

    def link_of(self, device: str) -> LocalLink:
        """Return the link of a device by its name."""
        return LocalLink(self, device)

    @contextmanager
    def host(self, folder: Path, program: str, earlier: int | None = None) -> Iterator[Callable[[], bool]]:  # noqa: ARG002
        """Run a server's program in a thread; what it raises is in the log, and ends it."""
        closed = threading.Event()

        def run() -> None:
            try:
                resolve_name(program)(folder, self.hub(closed))
            except HubClosed:
                pass
            except Exception:
                log.exception("the server's program failed")

        thread = threading.Thread(target=run, name="server", daemon=True)
        thread.start()
        try:
            yield thread.is_alive
        finally:
            closed.set()
            thread.join()


@dataclass(frozen=True)
class LocalHub:
    """The server's end."""

    transport: LocalTransport
    closed: threading.Event

    def _require_open(self) -> None:
        if self.closed.is_set():
            raise HubClosed("the server was stopped")

    def online(self) -> frozenset[str]:
        """Return the names of the devices that serve now."""
        self._require_open()
        return frozenset(self.transport._waiting)

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        """Hand every device its request, and return what reads the replies as they come."""
        self._require_open()
        sent = time.monotonic()
        replies: SimpleQueue[tuple[str, Packet | str | None]] = SimpleQueue()
        waiting = self.transport._waiting
        with self.transport._arrived:
            reached = [device for device in requests if device in waiting]
            for device in reached:
                waiting[device].append(Question(kind, copied(requests[device]), sent + within_s, replies))
            self.transport._arrived.notify_all()
        return self._replies(replies, len(reached), sent, within_s)

    def _replies(
        self, replies: SimpleQueue[tuple[str, Packet | str | None]], pending: int, sent: float, within_s: float
    ) -> Iterator[Reply]:
        while pending and (left_s := sent + within_s - time.monotonic()) > 0:
            self._require_open()
            try:
                device, answer = replies.get(timeout=min(left_s, STOP_S))
            except Empty:
                continue
            pending -= 1
            elapsed_s = time.monotonic() - sent
            if isinstance(answer, Packet):
                yield reply_of(device, elapsed_s, answer)
            elif answer is not None:
                yield Reply(device, elapsed_s, None, answer)


@dataclass(frozen=True)
class LocalLink:
    """A device's end."""

    transport: LocalTransport
    device: str

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """Answer questions in their order; whatever ends this takes the device offline at once."""
        questions: deque[Question] = deque()
        current: Question | None = None
        with self.transport._arrived:
            self.transport._waiting[self.device] = questions
        try:
            while (current := self._next(questions, stop)) is not None:
                reply: Packet | str
                try:
                    reply = copied(answer(current.kind, current.packet))
                except Exception as error:  # a defect here must not end the service of the device
                    log.exception("%s failed", current.kind)
                    reply = failure_of(error)
                current.replies.put((self.device, reply))
        finally:
            with self.transport._arrived:
                if self.transport._waiting.get(self.device) is questions:
                    del self.transport._waiting[self.device]
                for question in (*([current] if current else []), *questions):
                    question.replies.put((self.device, None))

    def _next(self, questions: deque[Question], stop: threading.Event) -> Question | None:
        """Wait for a question that has not expired; None to stop."""
        with self.transport._arrived:
            while not stop.is_set():
                while questions:
                    question = questions.popleft()
                    if time.monotonic() < question.deadline:
                        return question
                self.transport._arrived.wait(STOP_S)
        return None


def copied(packet: Packet) -> Packet:
    """Return a packet of its own memory."""
    return Packet({name: array.copy() for name, array in packet.arrays.items()}, dict(packet.values))
