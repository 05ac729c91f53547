"""What all parts of a server share: its journal, how devices have behaved, and the loop that asks them."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from codedfl._messages import shown
from codedfl._validation import require_at_least
from codedfl.errors import InputError
from codedfl.federation._checks import BadMessage
from codedfl.federation._federation_config import FederationConfig
from codedfl.federation._store import ServerStore
from codedfl.federation.transport import Hub, Kind, Packet, Reply

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Conduct:
    """What one device has sent.

    Args:
        accepted: messages that were used.
        refused: messages that were not what they should have been.
        late: messages that were asked for and missed their deadline.
        refused_in_a_row: messages refused since the last accepted one.
        excluded: whether the device is asked no more; this is never taken back.
        last_reason: why its last refused message was refused.
    """

    accepted: int = 0
    refused: int = 0
    late: int = 0
    refused_in_a_row: int = 0
    excluded: bool = False
    last_reason: str = ""


class Standing:
    """Counts accepted, refused and late messages by device, and excludes a device after several bad ones in a row.

    Being late is no fault: it changes neither the count of refusals in a row nor the exclusion.

    Args:
        most_refusals: refused messages in a row at which a device is excluded.

    Example:
        >>> standing = Standing(most_refusals=2)
        >>> standing.refuse("north", "update has 6 value(s) such as nan, expected finite numbers.")
        False
        >>> standing.refuse("north", "round = 3, expected 4."), standing.is_excluded("north"), standing.is_excluded("south")
        (True, True, False)
    """

    def __init__(self, most_refusals: int) -> None:
        require_at_least("training.most_refusals", most_refusals, 1)
        self.most_refusals = most_refusals
        self._conduct: dict[str, Conduct] = {}

    def of(self, device: str) -> Conduct:
        """Return what is known about a device; nothing is held against one that is unknown."""
        return self._conduct.get(device, Conduct())

    def accept(self, device: str) -> None:
        """Count a message that is used, and forget refusals in a row."""
        before = self.of(device)
        self._conduct[device] = replace(before, accepted=before.accepted + 1, refused_in_a_row=0)

    def late(self, device: str) -> None:
        """Count a message that missed its deadline."""
        before = self.of(device)
        self._conduct[device] = replace(before, late=before.late + 1)

    def refuse(self, device: str, reason: str) -> bool:
        """Count a bad message.

        Returns:
            Whether the device is excluded.
        """
        before = self.of(device)
        in_a_row = before.refused_in_a_row + 1
        self._conduct[device] = replace(
            before,
            refused=before.refused + 1,
            refused_in_a_row=in_a_row,
            excluded=before.excluded or in_a_row >= self.most_refusals,
            last_reason=reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}...",
        )
        return self._conduct[device].excluded

    def is_excluded(self, device: str) -> bool:
        """Return whether a device is asked no more."""
        return self.of(device).excluded

    @property
    def excluded(self) -> tuple[str, ...]:
        """The devices that are asked no more, in the order of their names."""
        return tuple(sorted(device for device, conduct in self._conduct.items() if conduct.excluded))

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return all counts by device, as plain values for a checkpoint.

        Example:
            >>> standing = Standing(3)
            >>> standing.late("north")
            >>> Standing.from_dict(standing.to_dict(), most_refusals=3).of("north").late
            1
        """
        return {device: asdict(conduct) for device, conduct in sorted(self._conduct.items())}

    @classmethod
    def from_dict(cls, values: Mapping[str, Mapping[str, Any]], most_refusals: int) -> Standing:
        """Rebuild what `to_dict` returned.

        Raises:
            InputError: the values are none of its.
        """
        standing = cls(most_refusals)
        expected = {item.name: type(item.default) for item in fields(Conduct)}
        for device, counts in values.items():
            found = {name: type(value) for name, value in counts.items()} if isinstance(counts, Mapping) else None
            if found != expected:
                raise InputError(
                    f"the standing of device {shown(device)} is {shown(counts)}, which this version did not write: resume with"
                    " the version that wrote the checkpoint."
                )
            standing._conduct[device] = Conduct(**counts)
        return standing


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
