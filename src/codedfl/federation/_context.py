"""What all parts of a server share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import TypeVar

from codedfl.errors import InputError
from codedfl.federation._checks import BadMessage
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._journal import Journal
from codedfl.federation._standing import Standing
from codedfl.federation._store import ServerStore
from codedfl.federation.transport import Hub, Kind, Packet, Reply

T = TypeVar("T")


@dataclass
class ServerContext:
    """The surroundings of a server.

    Args:
        config: the federation.
        store: its folder.
        hub: messages to devices.
        journal: what happens is written here.
        standing: how devices have behaved.
        clock: seconds.
        sleep: waits.
    """

    config: FederationConfig
    store: ServerStore
    hub: Hub
    journal: Journal
    standing: Standing
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def refuse(self, reply: Reply, what: str, bad: BadMessage | Exception, **details: int) -> bool:
        """Refuse a message: count it, write it down, and return whether its device is excluded now."""
        excluded = self.standing.refuse(reply.device, str(bad))
        self.journal.note("refused", device=reply.device, what=what, reason=str(bad), excluded=excluded, **details)
        return excluded

    def note_silence(self, reply: Reply, **details: int) -> None:
        """Write down why a device sent nothing: it declined, or it failed."""
        event = "declined" if reply.declined else "failed"
        self.journal.note(event, device=reply.device, reason=reply.problem, **details)


@dataclass
class ServerPart:
    """A part of a server, with its surroundings at hand."""

    context: ServerContext

    @property
    def config(self) -> FederationConfig:
        """The federation."""
        return self.context.config

    @property
    def store(self) -> ServerStore:
        """The folder of the server."""
        return self.context.store

    @property
    def hub(self) -> Hub:
        """Messages to devices."""
        return self.context.hub

    @property
    def journal(self) -> Journal:
        """What happens is written here."""
        return self.context.journal

    @property
    def standing(self) -> Standing:
        """How devices have behaved."""
        return self.context.standing

    def gather(
        self,
        kind: Kind,
        within_s: float,
        missing: Callable[[], Collection[str]],
        request: Callable[[str], Packet],
        *,
        longest_s: float = math.inf,
        again_s: float = 0.0,
    ) -> Iterator[Reply]:
        """Ask devices again and again, and yield their replies, until none is missing or the time is over.

        Args:
            kind: what is asked.
            within_s: seconds in all.
            missing: returns who has not answered yet; read anew before every question.
            request: makes the request of a device.
            longest_s: seconds for a single question.
            again_s: seconds until a device that replied, and is missing all the same, is asked again.
        """
        clock, began, not_before = self.context.clock, self.context.clock(), dict[str, float]()
        while (left_s := within_s - (clock() - began)) > 0 and (names := missing()):
            online, now = self.hub.online(), clock()
            requests = {name: request(name) for name in names if name in online and now >= not_before.get(name, now)}
            for reply in self.hub.ask(kind, requests, min(left_s, longest_s)) if requests else ():
                not_before[reply.device] = clock() + again_s
                yield reply
            if missing():
                self.context.sleep(0.5)

    def checked(self, reply: Reply, what: str, check: Callable[[Packet], T], **details: int) -> T | None:
        """Return what a check makes of a reply; a silent or bad one is written down and counted, and gives None."""
        if reply.packet is None:
            self.context.note_silence(reply, **details)
            return None
        try:
            content = check(reply.packet)
        except (BadMessage, InputError) as bad:
            self.context.refuse(reply, what, bad, **details)
            return None
        self.standing.accept(reply.device)
        return content
