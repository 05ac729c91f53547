"""What is on the wire: packets as Flower's records and back, kinds of questions as its types of messages, and its errors."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from codedfl.federation.transport._interface import Packet

ARRAYS, VALUES = "arrays", "values"
NPY = "numpy.ndarray"
"""How Flower names the serialisation of numpy's own file format, without pickle."""

NAME = "name"
"""The question for a device's name, which the transport itself asks where nobody registered devices."""

FAILED = 2
"""Flower's code of an error that the program of a device raised."""

UNREACHABLE = (3, 4, 5)
"""Flower's codes of a message or a reply that is past its time, and of a node that is gone: that is silence."""


def message_type(kind: str) -> str:
    """Return Flower's type of the messages of a kind."""
    return "train" if kind == "train" else f"query.{kind}"


def kind_of(message_type: str) -> str:
    """Return the kind of question that a message of a type is."""
    return message_type.rpartition(".")[2]


def to_records(packet: Packet) -> RecordDict:
    """Return a packet as the content of a message."""
    arrays = {name: Array(np.asarray(array, order="C")) for name, array in packet.arrays.items()}
    return RecordDict({ARRAYS: ArrayRecord(arrays), VALUES: ConfigRecord(dict(packet.values))})


def from_records(records: RecordDict) -> Packet:
    """Return the content of a message as a packet, unchecked but for what it takes to read it.

    Raises:
        ValueError: the records are not those of a packet, or an array cannot be read without pickle.
    """
    arrays, values = records.get(ARRAYS), records.get(VALUES)
    if set(records) != {ARRAYS, VALUES} or not isinstance(arrays, ArrayRecord) or not isinstance(values, ConfigRecord):
        raise ValueError("the message has records of other names or types than arrays and values")
    return Packet({name: _read(array) for name, array in arrays.items()}, dict(values))


def _read(array: Array) -> np.ndarray[Any, Any]:
    """Read one array; numpy refuses whatever would have to be unpickled."""
    if array.stype != NPY:
        raise ValueError("the message has an array of an unknown serialisation")
    try:
        read = np.load(BytesIO(array.data), allow_pickle=False)
    except Exception as error:  # a damaged header raises many types, and no documentation lists them
        raise ValueError("the message has an array that cannot be read") from error
    if not isinstance(read, np.ndarray):
        raise ValueError("the message has an archive in place of an array")
    return read
