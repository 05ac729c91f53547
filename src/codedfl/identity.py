"""Identity from content: what is shared, cached or resumed is decided by one fingerprint that is derived from the fields.

A new field of a class takes part by itself, so it cannot be forgotten. What does not change a result is excluded where it is
declared: ``field(metadata=NOT_IDENTITY)`` in a dataclass, ``Field(json_schema_extra=NOT_IDENTITY)`` in a configuration.

The name of a class takes part as well. A class whose fingerprints are kept, and that has moved, keeps the name under which they
were made, in a ``ClassVar`` of its own: ``identity_name``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from pydantic import BaseModel

NOT_IDENTITY: dict[str, Any] = {"identity": False}
"""Metadata of a field that does not enter results."""

_numbers: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_next_number = itertools.count()


class ByObject:
    """Base of classes whose instances are equal to themselves alone, because their content is too large to hash."""


def identity(value: Any) -> str:
    """Return a fingerprint of a value: equal for equal content, different for different content.

    Supports numbers, strings, None, paths, arrays, containers, dataclasses, pydantic models, and instances of `ByObject`, which
    have an identity within this process alone.

    Raises:
        TypeError: for anything else, since it could not be told apart reliably.

    Example:
        >>> from codedfl.streams import Streams
        >>> identity(Streams(1)) == identity(Streams(1)), identity(Streams(1)) == identity(Streams(2))
        (True, False)
    """
    digest = sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def _parts(value: Any) -> Iterator[bytes]:
    """Yield the content of a value, piece by piece."""
    kind = type(value)
    yield vars(kind).get("identity_name", f"{kind.__module__}.{kind.__qualname__}").encode()
    if value is None or kind in (bool, int, float, str, bytes):
        yield repr(value).encode("utf-8", "surrogatepass")
    elif isinstance(value, Path):
        yield str(value).encode("utf-8", "surrogateescape")
    elif isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
        if array.dtype.hasobject:
            raise TypeError(f"an array of {array.dtype} has no identity")
        yield f"{array.dtype.str}{array.shape}".encode()
        yield np.ascontiguousarray(array).tobytes()
    elif isinstance(value, ByObject):
        if value not in _numbers:
            _numbers[value] = next(_next_number)
        yield str(_numbers[value]).encode()
    elif isinstance(value, Mapping):
        for key in sorted(value, key=repr):
            yield from _parts(key)
            yield from _parts(value[key])
    elif isinstance(value, Set):
        for item in sorted(identity(item) for item in value):
            yield item.encode()
    elif isinstance(value, tuple | list):
        yield str(len(value)).encode()
        for item in value:
            yield from _parts(item)
    else:
        for name in _field_names(value):
            yield name.encode()
            yield from _parts(getattr(value, name))


def _field_names(value: Any) -> Iterator[str]:
    """Yield the fields that take part in the identity of a record."""
    if isinstance(value, BaseModel):
        for name, info in type(value).model_fields.items():
            extra = info.json_schema_extra
            if not (isinstance(extra, dict) and extra.get("identity") is False):
                yield name
    elif is_dataclass(value):
        for item in fields(value):
            if item.metadata.get("identity", True):
                yield item.name
    else:
        raise TypeError(f"a {type(value).__name__} has no identity: make it a dataclass, or derive it from ByObject")
