"""Messages between a server and its devices, whatever carries them.

A transport has two ends. The server holds a `Hub`: who is there, and questions to many devices at once. A device holds a `Link`,
which answers one question after the other. Both see a `Packet`. How it becomes bytes is the transport's own business: Flower has
records of its own, whose bytes on the wire stay what they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, get_args

import numpy.typing as npt

from codedfl.identity import identity

Value = int | float | str | bool | bytes | list[int] | list[float] | list[str] | list[bool] | list[bytes]
"""What a message may carry beside arrays."""

_NUMBER_BYTES = 8


@dataclass(frozen=True, eq=False)
class Packet:
    """The content of a message, whatever carries it.

    Nothing here has been checked: a packet that arrives may hold anything under any name.

    Args:
        arrays: arrays by name.
        values: plain values by name.

    Example:
        >>> import numpy as np
        >>> packet = Packet({"update": np.zeros((3, 2), np.float32)}, {"round": 7})
        >>> packet.bytes
        43
        >>> packet.digest == Packet({"update": np.zeros((3, 2))}, {"round": 7}).digest
        False
    """

    arrays: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    values: Mapping[str, Value] = field(default_factory=dict)

    @property
    def bytes(self) -> int:
        """The size of names and content, without what the carrier adds."""
        arrays = sum(_size(name) + int(array.nbytes) for name, array in self.arrays.items())
        return arrays + sum(_size(name) + _size(value) for name, value in self.values.items())

    @property
    def digest(self) -> str:
        """The SHA-256 fingerprint of names, types, shapes and contents, in hexadecimal; the order of names does not matter.

        Raises:
            TypeError: if an array holds Python objects, which have no fingerprint.
        """
        return identity({"arrays": dict(self.arrays), "values": dict(self.values)})


def _size(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes):
        return len(value)
    if isinstance(value, list):
        return sum(_size(item) for item in value)
    return _NUMBER_BYTES


MaskedKind = Literal["keys", "shares", "masked", "agree", "unmask"]
"""The five phases of a masked upload, in their order."""

Kind = Literal["hello", "coded", "train"] | MaskedKind
"""What is asked: to introduce itself, to upload, to train, and the phases of a masked upload."""

MASKED_KINDS: tuple[MaskedKind, ...] = get_args(MaskedKind)

LARGE_KINDS: tuple[Kind, ...] = ("coded", "masked")
"""Questions whose replies are uploads: one of them is in the server's memory at a time."""

REFUSED = "refused"
"""Value of a reply in which a device says why it does not do what was asked."""

Answer = Callable[[Kind, Packet], Packet]
"""What a device answers to a question."""


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


class Hub(Protocol):
    """The server's end."""

    def online(self) -> frozenset[str]:
        """Return the names of the devices that are connected now."""

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        """Send a request to each device at once, and return the replies in the order in which they arrive.

        The requests are on their way when this returns; reading the replies waits for them, until all are there or
        ``within_s`` seconds have passed since the requests were sent. A device that does not answer in time has no reply, and
        what it sends later answers no later question.
        """


class Link(Protocol):
    """A device's end."""

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """Answer questions one at a time until ``stop`` is set.

        An exception of ``answer`` is the device's own: the server hears that there was one, and the device serves on.
        """


class Transport(Protocol):
    """What carries messages.

    Both folders are those that `initialise` made: addresses, certificates and keys are in them.
    """

    def host(
        self, folder: Path, program: str, earlier: int | None = None
    ) -> AbstractContextManager[Callable[[], bool]]:
        """Run a server's program, and yield what tells whether it can still run; everything is stopped in the end.

        Args:
            folder: the folder of the federation.
            program: ``module:function``, called with the folder and its `Hub`, in this process or in another.
            earlier: the process of a program that was killed with its server and may have outlived it: it is ended first.
        """

    def link(self, folder: Path) -> Link:
        """Return the link of the device of a folder."""


def reply_of(device: str, elapsed_s: float, packet: Packet) -> Reply:
    """Return the reply that a packet makes: what was asked for, or the reason why not."""
    reason = packet.values.get(REFUSED)
    if reason is None:
        return Reply(device, elapsed_s, packet)
    return Reply(device, elapsed_s, None, str(reason)[:500], declined=True)


def failure_of(error: Exception) -> str:
    """Return what a server is told of an exception on a device: its type alone, as its text may quote data."""
    return f"{type(error).__name__} on the device"
