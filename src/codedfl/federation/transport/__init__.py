"""What carries messages between a server and its devices: Flower over a network, or threads in one process.

Whatever the transport, a server sees a `Hub` and a device a `Link`. Flower is imported by `transport.flower` alone, and only when
it is used.
"""

from codedfl.federation.transport._interface import (
    LARGE_KINDS,
    MASKED_KINDS,
    REFUSED,
    Answer,
    Hub,
    Kind,
    Link,
    MaskedKind,
    Packet,
    Reply,
    Transport,
    Value,
    failure_of,
    reply_of,
)
from codedfl.federation.transport._local import HubClosed, LocalTransport

__all__ = [
    "LARGE_KINDS",
    "MASKED_KINDS",
    "REFUSED",
    "Answer",
    "Hub",
    "HubClosed",
    "Kind",
    "Link",
    "LocalTransport",
    "MaskedKind",
    "Packet",
    "Reply",
    "Transport",
    "Value",
    "failure_of",
    "reply_of",
]
