"""Every transport passes the same suite, and the suite catches transports that are broken on purpose."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from codedfl.federation import initialise, parse_federation
from codedfl.federation._demo import free_address
from codedfl.federation.transport import Answer, Hub, Kind, Link, LocalTransport, Packet, Reply, _local
from codedfl.federation.transport.flower import FlowerTransport
from tests.federation.transport import suite
from tests.federation.transport.remote_hub import PROGRAM, RemoteHub
from tests.federation.transport.suite import CHECKS, NAMES, Check, Ends, eventually

ROOT = Path(__file__).parents[3]


@dataclass
class LocalEnds:
    """Threads in this process."""

    transport: LocalTransport = field(default_factory=LocalTransport)

    @property
    def hub(self) -> Hub:
        return self.transport.hub()

    def link(self, device: str) -> Link:
        return self.transport.link_of(device)


@dataclass
class FlowerEnds:
    """A SuperLink, its program in a process of its own, and devices that connect to it."""

    folder: Path
    hub: Hub

    def link(self, device: str) -> Link:
        return FlowerTransport().link(self.folder / "devices" / device)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_threads_conform(check: Check) -> None:
    check(LocalEnds())


@pytest.fixture(scope="module")
def flower(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlowerEnds]:
    folder = tmp_path_factory.mktemp("flower") / "f"
    data = {"columns": ["x"], "target": ["y"], "task": "regression"}
    config = parse_federation({"devices": NAMES, "data": data, "server": {"address": free_address()}})
    initialise(folder, config, hosts=[], insecure=True)
    for name in NAMES:
        (folder / "devices" / name / "state").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]))
        with FlowerTransport().host(folder, PROGRAM) as is_alive:
            assert eventually((folder / "hub").exists, 60.0)
            yield FlowerEnds(folder, RemoteHub(folder))
            assert is_alive()


@pytest.mark.federation
@pytest.mark.filterwarnings("ignore:GitWildMatchPattern")  # with which Flower bundles the server's program
@pytest.mark.xdist_group("federation")
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_flower_conforms(flower: FlowerEnds, check: Check) -> None:
    check(flower)


# Broken on purpose ------------------------------------------------------------------------------------------------------


@dataclass
class BrokenHub:
    """A hub like any other, to be broken."""

    inner: Hub

    def online(self) -> frozenset[str]:
        return self.inner.online()

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        return self.inner.ask(kind, requests, within_s)


class WaitsForTheSlowest(BrokenHub):
    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        return iter(sorted(self.inner.ask(kind, requests, min(within_s, 1.0)), key=lambda reply: reply.device))


@dataclass
class OneMailbox(BrokenHub):
    """Reads replies to all questions from the same place."""

    queue: SimpleQueue[tuple[str, Packet | str | None]] = field(default_factory=SimpleQueue)

    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_local, "SimpleQueue", lambda: self.queue)
            return self.inner.ask(kind, requests, within_s)


@dataclass
class NeverForgets(BrokenHub):
    """Takes whoever was there for being there."""

    seen: frozenset[str] = frozenset()

    def online(self) -> frozenset[str]:
        self.seen |= self.inner.online()
        return self.seen


class TakesRefusalsForReplies(BrokenHub):
    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        for reply in self.inner.ask(kind, requests, within_s):
            yield replace(reply, declined=False)


class SinglePrecision(BrokenHub):
    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        rounded = {
            device: Packet({name: array.astype(np.float32) for name, array in packet.arrays.items()}, packet.values)
            for device, packet in requests.items()
        }
        return self.inner.ask(kind, rounded, within_s)


class SharesMemory(BrokenHub):
    def ask(self, kind: Kind, requests: Mapping[str, Packet], within_s: float) -> Iterator[Reply]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(_local, "copied", lambda packet: packet)
            return self.inner.ask(kind, requests, within_s)


@dataclass
class BrokenLink:
    """A link like any other, to be broken."""

    inner: Link

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        self.inner.serve(answer, stop)


class DiesOfAnException(BrokenLink):
    def serve(self, answer: Answer, stop: threading.Event) -> None:
        def fragile(kind: Kind, request: Packet) -> Packet:
            try:
                return answer(kind, request)
            except Exception as error:
                raise SystemExit from error

        self.inner.serve(fragile, stop)


class StopsWhenItLikes(BrokenLink):
    def serve(self, answer: Answer, stop: threading.Event) -> None:  # noqa: ARG002
        self.inner.serve(answer, threading.Event())


@dataclass
class BrokenEnds:
    """Threads in this process, with one end broken."""

    broken: type[BrokenHub] | type[BrokenLink]
    sound: LocalEnds = field(default_factory=LocalEnds)
    hub: Hub = field(init=False)

    def __post_init__(self) -> None:
        self.hub = self.broken(self.sound.hub) if issubclass(self.broken, BrokenHub) else self.sound.hub

    def link(self, device: str) -> Link:
        sound = self.sound.link(device)
        return self.broken(sound) if issubclass(self.broken, BrokenLink) else sound


BROKEN: dict[type[BrokenHub] | type[BrokenLink], Check] = {
    WaitsForTheSlowest: suite.replies_come_as_they_are_ready,
    OneMailbox: suite.two_questions_at_once_do_not_mix,
    NeverForgets: suite.a_device_that_dies_is_offline_soon_and_the_others_go_on,
    TakesRefusalsForReplies: suite.a_refusal_is_told_from_a_reply,
    SinglePrecision: suite.messages_pass_unchanged,
    SharesMemory: suite.messages_pass_unchanged,
    DiesOfAnException: suite.an_exception_is_the_devices_own,
    StopsWhenItLikes: suite.stopping_ends_a_device_promptly,
}
ALSO = {OneMailbox: suite.a_late_reply_answers_no_later_question}


@pytest.mark.parametrize(
    ("broken", "check"),
    [*BROKEN.items(), *ALSO.items()],
    ids=lambda item: item.__name__,
)
def test_the_suite_catches_a_broken_transport(
    broken: type[BrokenHub] | type[BrokenLink], check: Check, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(suite, "SOON_S", 0.5)
    monkeypatch.setattr(suite, "WITHIN_S", 2.0)
    ends: Ends = BrokenEnds(broken)
    with pytest.raises(AssertionError):
        check(ends)


def test_every_check_catches_something() -> None:
    """A check that no broken transport fails would say nothing."""
    assert {*BROKEN.values(), *ALSO.values()} == set(CHECKS)
