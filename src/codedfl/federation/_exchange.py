"""How the server asks devices and hears from them, whatever carries the messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from codedfl.federation._packet import Packet

Kind = Literal["hello", "coded", "train", "keys", "shares", "masked", "agree", "unmask"]
"""What is asked: to introduce itself, to upload, to train, and the five phases of a masked upload."""

REFUSED = "refused"
"""Value of a reply in which a device says why it does not do what was asked."""


@dataclass(frozen=True, eq=False)
class Reply:
    """What came back from one device.

    Args:
        device: its name.
        elapsed_s: seconds from the request to the reply, on the server's clock.
        packet: the reply, unchecked; None if there is none.
        problem: why there is none, such as a failure on the device or its refusal.
        declined: whether the device declined by its own policy, which is no fault.
    """

    device: str
    elapsed_s: float
    packet: Packet | None
    problem: str = ""
    declined: bool = False


class Exchange(Protocol):
    """Messages to devices and back."""

    def online(self) -> frozenset[str]:
        """Return the names of the devices that are connected now."""

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        """Send a request to each device at once, and return the replies in the order in which they arrive.

        The requests are on their way when this returns; reading the replies waits for them, until all are there or
        ``within_s`` seconds have passed since the requests were sent. A device that does not answer in time has no reply.
        """


def reply_of(device: str, elapsed_s: float, packet: Packet) -> Reply:
    """Return the reply that a packet makes: what was asked for, or the reason why not."""
    reason = packet.values.get(REFUSED)
    if reason is None:
        return Reply(device, elapsed_s, packet)
    return Reply(device, elapsed_s, None, str(reason)[:500], declined=True)
