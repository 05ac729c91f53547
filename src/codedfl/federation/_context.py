"""What all parts of a server share."""

from __future__ import annotations

from dataclasses import dataclass

from codedfl.federation._checks import BadMessage
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._journal import Journal
from codedfl.federation._standing import Standing
from codedfl.federation._store import ServerStore
from codedfl.federation.transport import Hub, Reply


@dataclass
class ServerContext:
    """The surroundings of a server.

    Args:
        config: the federation.
        store: its folder.
        hub: messages to devices.
        journal: what happens is written here.
        standing: how devices have behaved.
    """

    config: FederationConfig
    store: ServerStore
    hub: Hub
    journal: Journal
    standing: Standing

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
