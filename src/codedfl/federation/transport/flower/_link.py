"""The device's end: a connection to Flower's SuperLink, which runs the code that is installed here and no other.

Flower's own SuperNode starts whatever program the server sends along with a run, in a new process per message. A policy of the
device would then bind nobody. This link speaks the same protocol, with the same authentication, and answers by itself.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key
from flwr.app import Error, Message
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2, node_pb2
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    ObjectUnavailableError,
    pull_and_inflate_object_from_tree,
    push_objects,
)
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

from codedfl.federation.transport._interface import REFUSED, Answer, Kind, Packet, failure_of
from codedfl.federation.transport.flower._records import FAILED, NAME, from_records, kind_of, to_records

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


class Retries:
    """Tries a request again: a large reply is many of them, and one that fails must not lose the others."""

    def invoke(self, send: Callable[[], httpx.Response]) -> httpx.Response:
        """Send a request, up to `MOST_TRIES` times if the network fails."""
        for attempt in range(1, MOST_TRIES):
            try:
                return send()
            except httpx.TransportError:
                time.sleep(0.5 * attempt)
        return send()


@dataclass(frozen=True)
class FlowerLink:
    """Connects, answers requests one at a time, and reconnects when the connection or the server is lost.

    Args:
        device: its name.
        connection: how to reach the server.
        remembered: file with the node id of the last connection, so that a device that was killed can come back at once.
    """

    device: str
    connection: Connection
    remembered: Path

    def serve(self, answer: Answer, stop: threading.Event) -> None:
        """Serve until stopped."""
        wait_s = 1.0
        while not stop.is_set():
            try:
                with self._connected() as (client, node):
                    log.info("connected to %s", self.connection.address)
                    wait_s = 1.0
                    self._serve(client, node, answer, stop)
            except LOST as error:
                log.warning(
                    "no connection to %s (%s), next attempt in %.0f s", self.connection.address, _reason(error), wait_s
                )
                stop.wait(wait_s)
                wait_s = min(2 * wait_s, LONGEST_WAIT_S)

    @contextmanager
    def _connected(self) -> Iterator[tuple[FleetHttpClient, node_pb2.Node]]:
        """Activate the node, and deactivate it in the end."""
        connection = self.connection
        if connection.private_key is None:
            private = ec.generate_private_key(ec.SECP384R1())
        else:
            private = cast(ec.EllipticCurvePrivateKey, load_pem_private_key(connection.private_key, None))
        public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        with FleetHttpClient.from_server_address(
            connection.address,
            connection.certificate is None,
            connection.certificate,
            interceptors=[NodeAuthHttpInterceptor(private, private.public_key())],
            retry_invoker=cast(Any, Retries()),
        ) as client:
            if connection.private_key is None:
                client.RegisterNode(fleet_pb2.RegisterNodeFleetRequest(public_key=public))
            node = self._activated(client, public)
            self.remembered.write_text(str(node.node_id), encoding="ascii")
            try:
                yield client, node
            finally:
                with suppress(*LOST):
                    client.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=node.node_id))

    def _activated(self, client: FleetHttpClient, public_key: bytes) -> node_pb2.Node:
        """Activate the node; one that was killed is still active for the server, and is deactivated first."""
        request = fleet_pb2.ActivateNodeRequest(public_key=public_key, heartbeat_interval=HEARTBEAT_S)
        try:
            return node_pb2.Node(node_id=client.ActivateNode(request).node_id)
        except httpx.HTTPStatusError:
            if not self.remembered.is_file():
                raise
            before = self.remembered.read_text(encoding="ascii")
            with suppress(*LOST):
                client.DeactivateNode(fleet_pb2.DeactivateNodeRequest(node_id=int(before)))
            return node_pb2.Node(node_id=client.ActivateNode(request).node_id)

    def _serve(self, client: FleetHttpClient, node: node_pb2.Node, answer: Answer, stop: threading.Event) -> None:
        with self._alive(client, node) as lost:
            while not stop.is_set() and not lost.is_set():
                response = client.PullMessages(fleet_pb2.PullMessagesRequest(node=node))
                if response.messages_list:
                    self._answer(client, node, response.messages_list[0], response.message_object_trees[0], answer)
                else:
                    stop.wait(POLL_S)
            if lost.is_set():
                raise RuntimeError("the server no longer knows this device")

    @contextmanager
    def _alive(self, client: FleetHttpClient, node: node_pb2.Node) -> Iterator[threading.Event]:
        """Send signs of life in the background; the event is set when the server no longer knows the node."""
        lost, ended = threading.Event(), threading.Event()

        def beat() -> None:
            while not ended.wait(HEARTBEAT_S / 2):
                try:
                    request = heartbeat_pb2.SendNodeHeartbeatRequest(node=node, heartbeat_interval=HEARTBEAT_S)
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

    def _answer(self, client: FleetHttpClient, node: node_pb2.Node, envelope: Any, tree: Any, answer: Answer) -> None:
        """Pull one message, answer it, and push the reply."""
        run_id = envelope.metadata.run_id

        def pull(object_id: str) -> bytes:
            request = message_pb2.PullObjectRequest(node=node, run_id=run_id, object_id=object_id)
            pulled = client.PullObject(request)
            if not pulled.object_found:
                raise ObjectPullError(object_id, "the object could not be found.")
            if not pulled.object_available:
                raise ObjectUnavailableError(object_id)
            content: bytes = pulled.object_content
            return content

        def confirm(object_id: str) -> None:
            client.ConfirmMessageReceived(
                message_pb2.ConfirmMessageReceivedRequest(node=node, run_id=run_id, message_object_id=object_id)
            )

        def push(object_id: str, content: bytes) -> None:
            request = message_pb2.PushObjectRequest(
                node=node, run_id=run_id, object_id=object_id, object_content=content, session_id=response.session_id
            )
            if not client.PushObject(request).stored:
                raise ObjectPushError(object_id, run_id, response.session_id)

        message: Message = pull_and_inflate_object_from_tree(tree, pull, confirm, return_type=Message)
        request = message_from_proto(envelope)  # knows its own id, which the content does not
        request.content = message.content
        began = time.perf_counter()
        reply = self.reply_to(request, answer)
        if reply is None:
            return
        with no_object_id_recompute():
            outgoing = message_to_proto(remove_content_from_message(reply))
            outgoing.metadata.message_id = reply.object_id
            response = client.PushMessages(
                fleet_pb2.PushMessagesRequest(
                    node=node,
                    messages_list=[outgoing],
                    message_object_trees=[get_object_tree(reply)],
                    clientapp_runtime_list=[time.perf_counter() - began],
                )
            )
            push_objects(get_all_nested_objects(reply), push, object_ids_to_push=set(response.objects_to_push))

    def reply_to(self, message: Message, answer: Answer) -> Message | None:
        """Return the reply to a message; None if its time has passed meanwhile."""
        kind = kind_of(message.metadata.message_type)
        content: Packet | Error
        try:
            content = Packet({}, {"device": self.device}) if kind == NAME else self._answered(message, kind, answer)
        except Exception as error:  # a defect here must not end the service of the device
            log.exception("%s failed", kind)
            content = Error(FAILED, failure_of(error))
        try:
            if isinstance(content, Error):
                return Message(content, reply_to=message)
            return Message(to_records(content), reply_to=message)
        except ValueError as error:  # Flower refuses to build a reply whose request has expired
            log.warning("%s was not answered: %s", kind, _reason(error))
            return None

    def _answered(self, message: Message, kind: str, answer: Answer) -> Packet:
        try:
            packet = from_records(message.content)
        except ValueError as error:  # records that are no packet
            return Packet({}, {"device": self.device, REFUSED: str(error)})
        return answer(cast(Kind, kind), packet)


def _reason(error: Exception) -> str:
    if isinstance(error, httpx.HTTPStatusError):
        return f"{error.response.status_code} {error.response.text[:200]}"
    return (str(error) or type(error).__name__).splitlines()[0][:200]
