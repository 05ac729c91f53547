"""What every transport has to do, as functions: a check raises an `AssertionError` if a transport does not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Protocol

import numpy as np

from codedfl.federation.transport import REFUSED, Answer, Hub, Kind, Link, Packet, Reply

NAMES = ("north", "east", "south")
WITHIN_S = 15.0
"""More than any transport takes for a small message, even on a busy machine."""
SOON_S = 5.0
"""How long a device may still be online after it has ended, and may take to end."""


class Ends(Protocol):
    """Both ends of a transport."""

    @property
    def hub(self) -> Hub:
        """The server's end."""

    def link(self, device: str) -> Link:
        """Return the link of a device."""


Check = Callable[[Ends], None]


def eventually(condition: Callable[[], bool], within_s: float) -> bool:
    """Return whether something becomes true in time."""
    began = time.monotonic()
    while not (is_so := condition()) and time.monotonic() - began < within_s:
        time.sleep(0.02)
    return is_so


@contextmanager
def serving(ends: Ends, answers: Mapping[str, Answer]) -> Iterator[dict[str, tuple[threading.Thread, threading.Event]]]:
    """Let devices serve in threads, until the end at the latest; a device that dies does so quietly."""

    def serve(name: str, stop: threading.Event) -> None:
        with suppress(SystemExit):
            ends.link(name).serve(answers[name], stop)

    running = {}
    for name in answers:
        stop = threading.Event()
        running[name] = threading.Thread(target=serve, args=(name, stop), daemon=True), stop
        running[name][0].start()
    try:
        assert eventually(lambda: ends.hub.online() >= set(answers), WITHIN_S), f"{set(answers)} are online"
        yield running
    finally:
        for _, stop in running.values():
            stop.set()
        for thread, _ in running.values():
            thread.join(SOON_S)


def echo(kind: Kind, request: Packet) -> Packet:  # noqa: ARG001
    """Answer with what was asked."""
    return request


def question(number: int) -> Packet:
    """Return a small request."""
    return Packet({}, {"number": number})


def numbers(replies: list[Reply]) -> dict[str, object]:
    """Return what devices answered to `question`, by device."""
    return {reply.device: reply.packet.values["number"] for reply in replies if reply.packet is not None}


def replies_come_as_they_are_ready(ends: Ends) -> None:
    """The slowest device does not hold up what the others have sent: it answers once the first reply has been read."""
    read = threading.Event()

    def slow(kind: Kind, request: Packet) -> Packet:
        assert read.wait(WITHIN_S), "nobody has read a reply"
        return echo(kind, request)

    with serving(ends, {"north": slow, "east": echo}):
        replies = ends.hub.ask("hello", {"north": question(1), "east": question(1)}, WITHIN_S)
        first = next(replies, None)
        read.set()
        assert first is not None
        assert first.device == "east"
        assert [reply.device for reply in replies] == ["north"]


def a_late_reply_answers_no_later_question(ends: Ends) -> None:
    """A device that is slow once sends its reply after the deadline; the next question gets its own."""
    over = threading.Event()

    def late(kind: Kind, request: Packet) -> Packet:
        if request.values["number"] == 1:
            over.wait(WITHIN_S)
        return echo(kind, request)

    with serving(ends, {"north": late}):
        assert list(ends.hub.ask("hello", {"north": question(1)}, 1.0)) == []
        replies = ends.hub.ask("hello", {"north": question(2)}, WITHIN_S)
        over.set()
        assert numbers(list(replies)) == {"north": 2}


def a_device_that_dies_is_offline_soon_and_the_others_go_on(ends: Ends) -> None:
    """It dies of a question, and is gone for the next."""

    def die(kind: Kind, request: Packet) -> Packet:  # noqa: ARG001
        raise SystemExit

    with serving(ends, {"north": echo, "east": die}):
        both = {"north": question(1), "east": question(1)}
        assert numbers(list(ends.hub.ask("hello", both, 3.0))) == {"north": 1}
        assert eventually(lambda: "east" not in ends.hub.online(), SOON_S), "it is offline"
        assert "north" in ends.hub.online()
        began = time.monotonic()
        again = {"north": question(2), "east": question(2)}
        assert numbers(list(ends.hub.ask("hello", again, WITHIN_S))) == {"north": 2}
        assert time.monotonic() - began < WITHIN_S, "nobody waits for a device that is not there"


def an_exception_is_the_devices_own(ends: Ends) -> None:
    """The server hears that there was one, but not its text, which may quote data; the device serves on."""

    def fail(kind: Kind, request: Packet) -> Packet:
        if request.values["number"] == 1:
            raise ValueError("the patient is called Ann")
        return echo(kind, request)

    with serving(ends, {"north": fail, "east": echo}):
        both = {"north": question(1), "east": question(1)}
        replies = {reply.device: reply for reply in ends.hub.ask("hello", both, WITHIN_S)}
        assert set(replies) == {"north", "east"}
        assert replies["north"].packet is None
        assert not replies["north"].declined
        assert "ValueError" in replies["north"].problem
        assert "Ann" not in replies["north"].problem
        assert numbers([replies["east"]]) == {"east": 1}
        assert numbers(list(ends.hub.ask("hello", {"north": question(2)}, WITHIN_S))) == {"north": 2}


def a_refusal_is_told_from_a_reply(ends: Ends) -> None:
    """A device that declines by its policy says why, and has not failed."""

    def decline(kind: Kind, request: Packet) -> Packet:  # noqa: ARG001
        return Packet({}, {REFUSED: "not to you"})

    with serving(ends, {"north": decline}):
        (reply,) = ends.hub.ask("coded", {"north": question(1)}, WITHIN_S)
        assert (reply.packet, reply.problem, reply.declined) == (None, "not to you", True)


def messages_pass_unchanged(ends: Ends) -> None:
    """Large ones, empty ones, and every type that a message may have; on their way they are copied."""
    rng = np.random.default_rng(5)
    packets = {
        "large": Packet({"x": rng.standard_normal((1000, 1000))}, {"number": 1}),
        "empty": Packet(),
        "nothing in it": Packet({"x": np.zeros((0, 3), np.float32), "y": np.zeros(())}, {"": "", "keys": [b""]}),
        "all types": Packet(
            {name: np.arange(6).reshape(2, 3).T.astype(name) for name in ("f4", "f8", "u8", "i8", "?")},
            {
                "i": -(2**62),
                "f": 0.1,
                "s": "\u00e9\x00",
                "b": True,
                "y": bytes(range(256)),
                "l": [1.5, 2.0],
                "t": ["a"],
            },
        ),
    }
    assert packets["large"].arrays["x"].nbytes == 8_000_000
    heard: dict[str, str] = {}

    def remember(kind: Kind, request: Packet) -> Packet:  # noqa: ARG001
        heard[current] = request.digest
        for array in request.arrays.values():
            array.setflags(write=True)
            array[...] = 0
        return packets[current]

    with serving(ends, {"north": remember}):
        for current, packet in packets.items():
            digest = packet.digest
            (reply,) = ends.hub.ask("coded", {"north": packet}, 2 * WITHIN_S)
            assert reply.packet is not None, reply.problem
            assert heard[current] == digest, current
            assert packet.digest == digest, "a device has no access to the server's memory"
            assert reply.packet.digest == digest, current


def stopping_ends_a_device_promptly(ends: Ends) -> None:
    """It serves no more and is offline; the others stay."""
    with serving(ends, {"north": echo, "east": echo}) as running:
        thread, stop = running["north"]
        stop.set()
        thread.join(SOON_S)
        assert not thread.is_alive()
        assert eventually(lambda: ends.hub.online() == {"east"}, SOON_S)


def two_questions_at_once_do_not_mix(ends: Ends) -> None:
    """Both are on their way before a reply is read, and those of the second are read first."""
    with serving(ends, dict.fromkeys(NAMES, echo)):
        first = ends.hub.ask("hello", dict.fromkeys(NAMES, question(1)), WITHIN_S)
        second = ends.hub.ask("hello", dict.fromkeys(NAMES, question(2)), WITHIN_S)
        assert numbers(list(second)) == dict.fromkeys(NAMES, 2)
        assert numbers(list(first)) == dict.fromkeys(NAMES, 1)


CHECKS: tuple[Check, ...] = (
    replies_come_as_they_are_ready,
    a_late_reply_answers_no_later_question,
    a_device_that_dies_is_offline_soon_and_the_others_go_on,
    an_exception_is_the_devices_own,
    a_refusal_is_told_from_a_reply,
    messages_pass_unchanged,
    stopping_ends_a_device_promptly,
    two_questions_at_once_do_not_mix,
)
