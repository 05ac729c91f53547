"""Flower's ClientApp of a device: what each message is answered with."""

from __future__ import annotations

from typing import cast

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from codedfl.federation._client import Client
from codedfl.federation._exchange import REFUSED, Kind
from codedfl.federation._packet import Packet
from codedfl.federation._wire import from_records, to_records

QUERIES = ("hello", "coded", "keys", "shares", "masked", "agree", "unmask")


def client_app(client: Client) -> ClientApp:
    """Return the app that answers for a device.

    Args:
        client: the device.
    """
    app = ClientApp()

    def answer(kind: str, message: Message) -> Message:
        try:
            packet = client.answer(cast(Kind, kind), from_records(message.content))
        except ValueError as error:  # records that are no packet
            packet = Packet({}, {"device": client.config.name, REFUSED: str(error)})
        return Message(to_records(packet), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:  # noqa: ARG001 (Flower passes it)
        return answer("train", message)

    @app.query("name")
    def name(message: Message, context: Context) -> Message:  # noqa: ARG001
        return Message(to_records(Packet({}, {"device": client.config.name})), reply_to=message)

    def register(kind: str) -> None:
        @app.query(kind)
        def handle(message: Message, context: Context) -> Message:  # noqa: ARG001
            return answer(kind, message)

    for kind in QUERIES:
        register(kind)
    return app
