"""Frozen records of arrays and numbers, written field by field and rebuilt."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt


def record_arrays(prefix: str, record: Any, skip: Collection[str] = ()) -> dict[str, npt.NDArray[Any]]:
    """Return every field of a record as an array named ``prefix.field``.

    Args:
        prefix: the name of the record.
        record: a dataclass of arrays and numbers.
        skip: fields to leave out; `record_from` must be given them.

    Example:
        >>> from codedfl.training import LearningRate
        >>> record_arrays("rate", LearningRate(0.5), skip=["decay_rounds"])
        {'rate.initial': array(0.5)}
    """
    names = [item.name for item in fields(record) if item.name not in skip]
    return {f"{prefix}.{name}": np.asarray(getattr(record, name)) for name in names}


def record_from(prefix: str, arrays: Mapping[str, npt.NDArray[Any]], like: Any, **others: Any) -> Any:
    """Rebuild a record of the type, shapes and precisions of another.

    Args:
        prefix: the name of the record.
        arrays: those of `record_arrays`, and possibly more.
        like: the record that it must fit.
        others: fields that were left out.

    Raises:
        ValueError: a field is missing or does not fit.

    Example:
        >>> from codedfl.training import LearningRate
        >>> record_from("rate", record_arrays("rate", LearningRate(0.5)), like=LearningRate(1.0)).initial
        0.5
    """
    values = dict(others)
    for item in fields(like):
        if item.name in others:
            continue
        name, expected = f"{prefix}.{item.name}", np.asarray(getattr(like, item.name))
        if name not in arrays:
            raise ValueError(f"it holds no {name}")
        value = arrays[name]
        if value.shape != expected.shape or value.dtype.kind != expected.dtype.kind:
            raise ValueError(f"{name} has shape {value.shape}, the run needs {expected.shape}")
        plain = not isinstance(getattr(like, item.name), np.ndarray)
        values[item.name] = value.item() if plain else value.astype(expected.dtype, copy=False)
    return type(like)(**values)
