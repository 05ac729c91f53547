"""Checks of a device's part in one phase of a protocol."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from codedfl.federation._checks._fields import BadMessage, require_names, require_same, told
from codedfl.federation.transport import Packet


@dataclass(frozen=True)
class ReceivedAnswer:
    """A device's part in one phase of a protocol.

    Args:
        phase: the phase.
        content: byte strings by name.
    """

    phase: str
    content: Mapping[str, bytes]


def checked_answer(
    packet: Packet,
    *,
    device: str,
    phase: str,
    names: Collection[str],
    most_bytes: int,
    least_bytes: int = 1,
    optional: Collection[str] = (),
) -> ReceivedAnswer:
    """Check a device's part in one phase of a protocol: the values ``device`` and ``phase``, and byte strings under given names.

    Args:
        packet: the message.
        device: the name of the device that it comes from.
        phase: the phase that is under way.
        names: byte strings that must be there, none of them called ``device`` or ``phase``.
        most_bytes: the longest that any of them may be.
        least_bytes: the shortest.
        optional: byte strings that may be missing.

    Raises:
        BadMessage: it is anything else.

    Example:
        >>> packet = Packet({}, {"device": "north", "phase": "keys", "public": bytes(32)})
        >>> answer = checked_answer(packet, device="north", phase="keys", names=["public"], most_bytes=32, least_bytes=32)
        >>> len(answer.content["public"])
        32
    """
    require_names("array", packet.arrays, ())
    values = packet.values
    require_names("value", values, ("device", "phase", *names), tuple(optional))
    require_same("device", values, device)
    require_same("phase", values, phase)
    content = {}
    for name in (*names, *(name for name in optional if name in values)):
        value = values[name]
        if type(value) is not bytes or not least_bytes <= len(value) <= most_bytes:
            size = f"{least_bytes}" if least_bytes == most_bytes else f"{least_bytes} to {most_bytes}"
            raise BadMessage(f"{name} = {told(value)}, expected {size} byte(s).")
        content[name] = value
    return ReceivedAnswer(phase, content)
