"""States, however deep: written array by array, and rebuilt in the shape of another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def record_arrays(prefix: str, record: Any, skip: Collection[str] = ()) -> dict[str, Array]:
    """Return every array and number in a record, named by the path that leads to it.

    Args:
        prefix: the name of the record.
        record: arrays and numbers, in dataclasses and tuples nested to any depth; None holds nothing.
        skip: fields of the record to leave out; `record_from` must be given them.

    Raises:
        TypeError: something in the record is neither.

    Example:
        >>> from codedfl.training import LearningRate
        >>> record_arrays("run", (LearningRate(0.5), np.zeros(2)))
        {'run.0.initial': array(0.5), 'run.0.decay_rounds': array(0.), 'run.1': array([0., 0.])}
    """
    if record is None:
        return {}
    if is_dataclass(record) or isinstance(record, tuple):
        parts = (item for item in _parts(record) if item[0] not in skip)
        return {path: array for name, part in parts for path, array in record_arrays(f"{prefix}.{name}", part).items()}
    try:
        array = np.asarray(record)
    except ValueError:  # lists of different lengths
        array = np.array([None])
    if array.dtype.hasobject:
        kind = type(record).__name__
        raise TypeError(f"{prefix} is of the type {kind} with objects, which no checkpoint can hold: use numbers")
    return {prefix: array}


def record_from(
    prefix: str, arrays: Mapping[str, Array], like: Any, formerly: Mapping[str, str] | None = None, **others: Any
) -> Any:
    """Rebuild a record of the types, shapes and precisions of another.

    Args:
        prefix: the name of the record.
        arrays: those of `record_arrays`, and possibly more.
        like: the record that it must fit.
        formerly: paths within the record, and those under which earlier versions wrote them.
        others: fields that were left out.

    Raises:
        ValueError: an array is missing or does not fit.

    Example:
        >>> from codedfl.training import LearningRate
        >>> record_from("rate", record_arrays("rate", LearningRate(0.5)), like=LearningRate(1.0)).initial
        0.5
    """
    earlier = {f"{prefix}.{now}": f"{prefix}.{then}" for now, then in (formerly or {}).items()}
    return _rebuilt(prefix, arrays, like, earlier, others)


def _rebuilt(
    path: str, arrays: Mapping[str, Array], like: Any, earlier: Mapping[str, str], others: Mapping[str, Any]
) -> Any:
    if like is None:
        return None
    if is_dataclass(like) or isinstance(like, tuple):
        parts = {
            name: _rebuilt(f"{path}.{name}", arrays, part, earlier, {})
            for name, part in _parts(like)
            if name not in others
        }
        if is_dataclass(like):
            kind: Any = type(like)
            return kind(**parts, **others)
        return type(like)(*parts.values()) if hasattr(like, "_fields") else tuple(parts.values())
    name = path if path in arrays else earlier.get(path, path)
    if name not in arrays:
        raise ValueError(f"it holds no {path}")
    value, expected = arrays[name], np.asarray(like)
    if value.shape != expected.shape or value.dtype.kind != expected.dtype.kind:
        raise ValueError(f"{path} has shape {value.shape}, the run needs {expected.shape}")
    return value.astype(expected.dtype, copy=False) if isinstance(like, np.ndarray) else value.item()


def _parts(record: Any) -> Iterator[tuple[str, Any]]:
    """Yield the names and values of what a record consists of."""
    if is_dataclass(record):
        yield from ((item.name, getattr(record, item.name)) for item in fields(record))
    else:
        yield from zip(getattr(record, "_fields", map(str, range(len(record)))), record, strict=True)
