"""A device's connection to Flower's SuperLink, which runs the code that is installed here and no other.

Flower's own SuperNode starts whatever program the server sends along with a run, in a new process per message. A policy of the
device would then bind nobody. This node speaks the same protocol, with the same authentication, and answers with a `ClientApp`
of this installation.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Context, Message, RecordDict
from flwr.app.error import Error
from flwr.app.message import remove_content_from_message
from flwr.clientapp import ClientApp
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    DeactivateNodeRequest,
    PullMessagesRequest,
    PushMessagesRequest,
    RegisterNodeFleetRequest,
)
from flwr.proto.heartbeat_pb2 import SendNodeHeartbeatRequest
from flwr.proto.node_pb2 import Node
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_confirm_message_received_fn_protobuf,
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supercore.interceptors.http.runtime_version import RuntimeVersionHttpInterceptor
from flwr.supercore.primitives.asymmetric import bytes_to_private_key, generate_key_pairs, public_key_to_bytes
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

log = logging.getLogger("codedfl.federation")

POLL_S = 0.25
"""Seconds between looks for requests."""

HEARTBEAT_S = 20.0
"""Seconds between signs of life; after two that are missing, the server takes the device to be away."""

LOST = (httpx.HTTPError, ObjectPullError, ObjectPushError, RuntimeError, OSError, ValueError)
"""What a connection raises when the server is gone."""

MOST_TRIES = 3
"""Attempts at a single request before the connection counts as lost."""

LONGEST_WAIT_S = 15.0
"""Longest pause between attempts to connect."""


@dataclass(frozen=True)
class Connection:
    """How to reach the server.

    Args:
        address: host:port.
        certificate: PEM of the authority that signed the server's certificate; None for no encryption.
        private_key: PEM of the device's key; None for no authentication.
    """

    address: str
    certificate: bytes | None = None
    private_key: bytes | None = None


@dataclass
class DeviceNode:
    """Connects, answers requests one at a time, and reconnects when the connection or the server is lost.

    Args:
        connection: how to reach the server.
        app: answers messages.
        remembered: file with the node id of the last connection, so that a device that was killed can come back at once.
        stop: ends `run`.
    """

    connection: Connection
    app: ClientApp
    remembered: Path
    stop: threading.Event

    def run(self) -> None:
        """Serve until stopped."""
        wait_s = 1.0
        while not self.stop.is_set():
            try:
                with self._connected() as (client, node):
                    log.info("connected to %s", self.connection.address)
                    wait_s = 1.0
                    self._serve(client, node)
            except LOST as error:
                log.warning(
                    "no connection to %s (%s), next attempt in %.0f s", self.connection.address, _reason(error), wait_s
                )
                self.stop.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    @contextmanager
    def _connected(self) -> Iterator[tuple[FleetHttpClient, Node]]:
        """Activate the node, and deactivate it in the end."""
        connection = self.connection
        pair = generate_key_pairs() if connection.private_key is None else _key_pair(connection.private_key)
        interceptors: list[Any] = [
            RuntimeVersionHttpInterceptor(component_name="SuperNode"),
            NodeAuthHttpInterceptor(*pair),
        ]
        # A large reply is many requests: one that fails must not lose the others, for which the server would wait in vain.
        retries = make_simple_http_retry_invoker()
        retries.max_tries, retries.max_time = MOST_TRIES, None
        with FleetHttpClient.from_server_address(
            connection.address,
            connection.certificate is None,
            connection.certificate,
            interceptors=interceptors,
            retry_invoker=retries,
        ) as client:
            if connection.private_key is None:
                client.RegisterNode(RegisterNodeFleetRequest(public_key=public_key_to_bytes(pair[1])))
            node = self._activated(client, public_key_to_bytes(pair[1]))
            self.remembered.write_text(str(node.node_id), encoding="ascii")
            try:
                yield client, node
            finally:
                with suppress(*LOST):
                    client.DeactivateNode(DeactivateNodeRequest(node_id=node.node_id))

    def _activated(self, client: FleetHttpClient, public_key: bytes) -> Node:
        """Activate the node; one that was killed is still active for the server, and is deactivated first."""
        request = ActivateNodeRequest(public_key=public_key, heartbeat_interval=HEARTBEAT_S)
        try:
            return Node(node_id=client.ActivateNode(request).node_id)
        except httpx.HTTPStatusError:
            if not self.remembered.is_file():
                raise
            before = self.remembered.read_text(encoding="ascii")
            with suppress(*LOST):
                client.DeactivateNode(DeactivateNodeRequest(node_id=int(before)))
            return Node(node_id=client.ActivateNode(request).node_id)

    def _serve(self, client: FleetHttpClient, node: Node) -> None:
        with self._alive(client, node) as lost:
            while not self.stop.is_set() and not lost.is_set():
                response = client.PullMessages(PullMessagesRequest(node=node))
                if response.messages_list:
                    run_id = response.messages_list[0].metadata.run_id
                    self._answer(client, node, run_id, response.message_object_trees[0])
                else:
                    self.stop.wait(POLL_S)
            if lost.is_set():
                raise RuntimeError("the server no longer knows this device")

    @contextmanager
    def _alive(self, client: FleetHttpClient, node: Node) -> Iterator[threading.Event]:
        """Send signs of life in the background; the event is set when the server no longer knows the node."""
        lost, ended = threading.Event(), threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT_S / 2):
                try:
                    request = SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_S)
                    if not client.SendNodeHeartbeat(request).success:
                        lost.set()
                except httpx.TransportError:
                    pass
                except (httpx.HTTPError, RuntimeError):
                    lost.set()

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            ended.set()
            thread.join(timeout=5.0)

    def _answer(self, client: FleetHttpClient, node: Node, run_id: int, tree: Any) -> None:
        """Pull one message, let the app answer it, and push the reply."""
        message: Message = pull_and_inflate_object_from_tree(
            tree,
            make_pull_object_fn_protobuf(client.PullObject, node, run_id),
            make_confirm_message_received_fn_protobuf(client.ConfirmMessageReceived, node, run_id),
            return_type=Message,
        )
        message.metadata.__dict__["_message_id"] = tree.object_id  # it is its own address, and not part of its content
        began = time.perf_counter()
        reply = self._reply(message, Context(run_id, node.node_id, {}, RecordDict(), {}))
        if reply is None:
            return
        with no_object_id_recompute():
            reply.metadata.__dict__["_message_id"] = reply.object_id
            response = client.PushMessages(
                PushMessagesRequest(
                    node=node,
                    messages_list=[message_to_proto(remove_content_from_message(reply))],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[time.perf_counter() - began],
                )
            )
            push_objects(
                get_all_nested_objects(reply),
                make_push_object_fn_protobuf(client.PushObject, node, run_id, response.session_id),
                object_ids_to_push=set(response.objects_to_push),
            )

    def _reply(self, message: Message, context: Context) -> Message | None:
        try:
            return self.app(message, context)
        except ValueError as error:
            # Flower refuses to build a reply whose request has expired meanwhile.
            log.warning("%s was not answered: %s", message.metadata.message_type, _reason(error))
        except Exception as error:  # a defect here must not end the service of the device
            log.exception("%s failed", message.metadata.message_type)
            failure = Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, f"{type(error).__name__} on the device")
            with suppress(*LOST):
                return Message(failure, reply_to=message)
        return None


def _key_pair(private_key: bytes) -> tuple[Any, Any]:
    key = bytes_to_private_key(private_key)
    return key, key.public_key()


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"{error.response.status_code} {error.response.text[:200]}"
    return (str(error) or type(error).__name__).splitlines()[0][:200]
