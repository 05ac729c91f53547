from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, RecordDict
from flwr.common.constant import ErrorCode
from flwr.proto.node_pb2 import NodeInfo
from flwr.supercore.task_identity import TaskIdentity

import codedfl.federation  # noqa: F401  (before flwr, which it keeps quiet)
from codedfl.federation._client import Client
from codedfl.federation.transport import REFUSED, Packet
from codedfl.federation.transport.flower import _hub
from codedfl.federation.transport.flower._hub import FlowerHub
from codedfl.federation.transport.flower._link import Connection, FlowerLink
from codedfl.federation.transport.flower._records import FAILED, UNREACHABLE, to_records
from tests.federation.support import NAMES, copy_federation, digits_config

Answer = Callable[[Message], RecordDict | Error | None]
DEVICES = ("north", "east")


class FakeGrid:
    """Flower's connection, as far as the exchange uses it: replies are there when they are next pulled.

    Args:
        nodes: the nodes, by number.
        answer: what a node replies with; None for nothing.
    """

    def __init__(self, nodes: dict[int, NodeInfo], answer: Answer) -> None:
        self.nodes, self.answer = nodes, answer
        self.pushed: list[Message] = []
        self.pulled: list[list[str]] = []
        self.replies: dict[str, Message] = {}

    def get_nodes(self) -> list[NodeInfo]:
        return list(self.nodes.values())

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        identifiers = []
        for message in messages:
            identifier = f"message-{len(self.pushed)}"
            message.metadata.__dict__["_message_id"] = identifier
            self.pushed.append(message)
            identifiers.append(identifier)
            answer = self.answer(message)
            if answer is not None:
                self.replies[identifier] = Message(answer, reply_to=message)
        return identifiers

    def pull_messages(self, identifiers: Iterable[str]) -> list[Message]:
        asked = list(identifiers)
        self.pulled.append(asked)
        return [self.replies.pop(name) for name in asked if name in self.replies]


def node(number: int, name: str, status: str = "online", since: str = "2026-01-01") -> NodeInfo:
    return NodeInfo(node_id=number, name=name, status=status, last_activated_at=since)


def nodes(*given: NodeInfo) -> dict[int, NodeInfo]:
    return {info.node_id: info for info in given}


BOTH = nodes(node(11, "north"), node(12, "east"))


def echo(message: Message) -> RecordDict:
    return to_records(Packet({}, {"from": message.metadata.dst_node_id}))


@pytest.fixture(autouse=True)
def _in_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower's messages know the process that they are made in."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)
    monkeypatch.setattr(_hub, "POLL_S", 0.001)
    monkeypatch.setattr(_hub, "LOOK_S", 0.0)
    monkeypatch.setattr(_hub, "NAME_S", 0.05)


def exchange(grid: FakeGrid, **options: Any) -> FlowerHub:
    return FlowerHub(grid, DEVICES, **options)  # type: ignore[arg-type]


def test_devices_are_known_by_the_names_that_their_keys_were_registered_under() -> None:
    given = nodes(node(11, "north"), node(12, "east", "offline"), node(13, "stranger"), node(14, ""))
    assert exchange(FakeGrid(given, echo)).online() == {"north"}


def test_requests_go_to_their_devices_and_replies_come_back_under_their_names() -> None:
    grid = FakeGrid(BOTH, echo)
    requests = {"east": Packet({}, {"round": 7}), "north": Packet(), "south": Packet()}
    replies = {reply.device: reply for reply in exchange(grid).ask("train", requests, 5.0)}
    packets = {name: reply.packet for name, reply in replies.items()}
    assert {name: packet.values["from"] for name, packet in packets.items() if packet} == {"north": 11, "east": 12}
    assert all(0 <= reply.elapsed_s < 5.0 for reply in replies.values())
    sent = {message.metadata.dst_node_id: message.metadata for message in grid.pushed}
    assert sent[12].group_id == "7"
    assert {metadata.message_type for metadata in sent.values()} == {"train"}
    assert {metadata.ttl for metadata in sent.values()} == {5.0}, "requests expire with the deadline"


def test_requests_are_on_their_way_before_anybody_reads_replies() -> None:
    grid = FakeGrid(BOTH, echo)
    replies = exchange(grid).ask("hello", dict.fromkeys(DEVICES, Packet()), 5.0)
    assert [message.metadata.message_type for message in grid.pushed] == ["query.hello"] * 2
    assert grid.pulled == []
    assert len(list(replies)) == 2


@pytest.mark.parametrize(("kind", "at_once"), [("coded", 1), ("masked", 1), ("train", 2), ("unmask", 2)])
def test_large_replies_are_pulled_one_at_a_time(kind: Any, at_once: int) -> None:
    grid = FakeGrid(BOTH, echo)
    assert len(list(exchange(grid).ask(kind, dict.fromkeys(DEVICES, Packet()), 5.0))) == 2
    assert max(len(identifiers) for identifiers in grid.pulled) == at_once


def test_a_device_that_does_not_answer_has_no_reply() -> None:
    grid = FakeGrid(BOTH, lambda message: echo(message) if message.metadata.dst_node_id == 11 else None)
    replies = list(exchange(grid).ask("train", dict.fromkeys(DEVICES, Packet()), 0.05))
    assert [reply.device for reply in replies] == ["north"]


def test_a_device_that_failed_says_why() -> None:
    grid = FakeGrid(BOTH, lambda _: Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, "no disk"))
    (reply,) = exchange(grid).ask("train", {"north": Packet()}, 5.0)
    assert reply.packet is None
    assert not reply.declined
    assert reply.problem == "no disk (Flower's error 2)"


@pytest.mark.parametrize("code", [ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE])
def test_what_flower_says_about_a_device_that_is_gone_is_silence(code: int) -> None:
    grid = FakeGrid(BOTH, lambda _: Error(code, "gone"))
    assert list(exchange(grid).ask("train", {"north": Packet()}, 0.05)) == []


def test_a_device_that_declines_says_why() -> None:
    grid = FakeGrid(BOTH, lambda _: to_records(Packet({}, {REFUSED: "not to you" + 1000 * "!"})))
    (reply,) = exchange(grid).ask("coded", {"north": Packet()}, 5.0)
    assert reply.declined
    assert reply.packet is None
    assert reply.problem.startswith("not to you!")
    assert len(reply.problem) == 500


def damaged() -> RecordDict:
    array = Array(dtype="float32", shape=(2,), stype="numpy.ndarray", data=b"damaged")
    return RecordDict({"arrays": ArrayRecord({"update": array}), "values": ConfigRecord()})


@pytest.mark.parametrize("records", [damaged(), RecordDict(), RecordDict({"arrays": ConfigRecord()})])
def test_what_cannot_be_read_arrives_as_a_packet_that_every_check_refuses(records: RecordDict) -> None:
    (reply,) = exchange(FakeGrid(BOTH, lambda _: records)).ask("train", {"north": Packet()}, 5.0)
    assert reply.packet is not None
    assert list(reply.packet.values) == ["unreadable"]
    assert not reply.declined


def test_without_authentication_devices_are_asked_for_their_names_once() -> None:
    names = {11: "north", 12: "east", 13: "stranger"}
    grid = FakeGrid(
        nodes(*(node(number, "") for number in names)),
        lambda message: to_records(Packet({}, {"device": names[message.metadata.dst_node_id]})),
    )
    open_ = exchange(grid, authenticated=False)
    assert open_.online() == {"north", "east"}
    assert [message.metadata.message_type for message in grid.pushed] == ["query.name"] * 3
    assert open_.online() == {"north", "east"}
    assert len(grid.pushed) == 3
    names[14] = "north"
    grid.nodes[14] = node(14, "", since="2026-01-02")
    (reply,) = open_.ask("hello", {"north": Packet()}, 5.0)
    assert grid.pushed[-1].metadata.dst_node_id == 14, "the device was started again, and is a new node"
    assert reply.device == "north"


def test_a_device_that_was_started_again_has_forgotten_the_request() -> None:
    grid = FakeGrid(dict(BOTH), lambda _: None)
    replies = exchange(grid).ask("train", {"north": Packet(), "east": Packet()}, 0.3)
    grid.nodes[11] = node(11, "north", since="2026-01-02")
    (reply,) = replies
    assert reply.device == "north"
    assert reply.packet is None
    assert "started again" in reply.problem


def link_answers(clients: dict[int, Client]) -> Callable[[Message], RecordDict]:
    links = {
        number: (FlowerLink(client.config.name, Connection(""), Path()), client) for number, client in clients.items()
    }

    def answer(message: Message) -> RecordDict:
        link, client = links[message.metadata.dst_node_id]
        reply = link.reply_to(message, client.answer)
        assert reply is not None
        return reply.content

    return answer


def test_a_device_behind_flower_answers_as_it_does_by_itself(digits: Path, tmp_path: Path) -> None:
    config = digits_config(scheme="fedavg")
    folder = copy_federation(digits, tmp_path / "federation", config)
    client = Client.open(folder / "devices" / "north")
    network = exchange(FakeGrid(nodes(node(11, "")), link_answers({11: client})), authenticated=False)
    assert network.online() == {"north"}
    request = Packet({}, {"prescription": config.prescription(), "smoothness": True})
    (hello,) = network.ask("hello", {"north": request}, 5.0)
    assert hello.packet is not None
    assert hello.packet.values == client.answer("hello", request).values
    values: dict[str, Any] = {
        "round": 0,
        "batch_size": 9,
        "local_steps": 2,
        "step_size": 0.5,
        "sampling": "bernoulli",
        "stride": 9,
    }
    model = {"model": np.ones((config.dimension, config.outputs), np.float32)}
    train = Packet(model, {**values, "prescription": config.prescription()})
    (update,) = network.ask("train", {"north": train}, 5.0)
    assert update.packet is not None
    np.testing.assert_array_equal(update.packet.arrays["update"], client.answer("train", train).arrays["update"])
    (refused,) = network.ask("unmask", {"north": request}, 5.0)
    assert refused.declined
    assert "there is no request 'unmask'" in refused.problem


def test_a_device_answers_records_that_are_no_packet_with_a_refusal(digits: Path, tmp_path: Path) -> None:
    folder = copy_federation(digits, tmp_path / "federation", digits_config())
    answer = link_answers({11: Client.open(folder / "devices" / NAMES[0])})
    for kind in ("train", "query.hello", "query.coded"):
        values = answer(Message(damaged(), 11, kind, ttl=5.0))["values"]
        assert dict(values) == {"device": "north", REFUSED: "the message has an array that cannot be read"}


def test_the_codes_are_flowers() -> None:
    assert FAILED == ErrorCode.CLIENT_APP_RAISED_EXCEPTION
    unreachable = (ErrorCode.MESSAGE_UNAVAILABLE, ErrorCode.REPLY_MESSAGE_UNAVAILABLE, ErrorCode.NODE_UNAVAILABLE)
    assert unreachable == UNREACHABLE
