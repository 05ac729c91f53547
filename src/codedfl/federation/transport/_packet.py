"""A message as both sides of the federation see it: named arrays and named plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
