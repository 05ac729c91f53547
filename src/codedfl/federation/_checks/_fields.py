"""The fields of a message: each is as expected, or the message is a `BadMessage`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from codedfl._messages import listing, shown
from codedfl.typing import row_blocks

Array = npt.NDArray[Any]


class BadMessage(ValueError):  # noqa: N818  (it names what came, as logs do)
    """A message that the server refuses: one sentence that names the field, what it holds and what was expected."""


def require_names(
    what: str, given: Mapping[str, object], required: Collection[str], optional: Collection[str] = ()
) -> None:
    """Refuse missing and unknown names."""
    for name in required:
        if name not in given:
            raise BadMessage(f"the {what} {shown(name)} is missing, expected {listing((*required, *optional))}.")
    known = {*required, *optional}
    for name in given:
        if name not in known:
            expected = listing((*required, *optional)) or f"no {what} at all"
            raise BadMessage(f"the {what} {told(name)} is unknown, expected {expected}.")


def require_same(name: str, values: Mapping[str, object], expected: str) -> None:
    """Refuse anything but the expected text."""
    value = values[name]
    if type(value) is not str or value != expected:
        raise BadMessage(f"{name} = {told(value)}, expected {shown(expected)}.")


def text(name: str, values: Mapping[str, object], longest: int) -> str:
    """Return printable text of at most ``longest`` characters."""
    value = values[name]
    if type(value) is not str or len(value) > longest or not value.isprintable():
        raise BadMessage(f"{name} = {told(value)}, expected at most {longest} characters of text.")
    return value


def whole(name: str, values: Mapping[str, object], least: int, most: int) -> int:
    """Return a whole number from ``least`` to ``most``; a truth value is none."""
    value = values[name]
    if type(value) is not int or not least <= value <= most:
        expected = f"{least}" if least == most else f"a whole number from {least} to {most}"
        raise BadMessage(f"{name} = {told(value)}, expected {expected}.")
    return value


def number(name: str, values: Mapping[str, object], most: float, *, positive: bool = False) -> float:
    """Return a finite number from zero to ``most``; it may come as an integer."""
    value = values[name]
    # Compared before it is converted: a long integer does not fit into a float.
    if type(value) in (int, float) and 0 <= cast(float, value) <= most:
        found = float(cast(float, value))
        if found > 0 or not positive:
            return found
    least = "a number above 0 and up" if positive else "a number from 0"
    raise BadMessage(f"{name} = {told(value)}, expected {least} to {most:g}.")


def checked_array(
    name: str, arrays: Mapping[str, object], dtype: np.dtype[Any], shape: tuple[int, ...], largest: float
) -> Array:
    """Return a read-only copy in C order of an array that is as expected; its content is looked at last."""
    given = arrays[name]
    if not isinstance(given, np.ndarray):
        raise BadMessage(f"{name} is {told(given)}, expected an array.")
    # A dtype of the other byte order is a different one.
    if given.dtype != dtype:
        raise BadMessage(f"{name} has the type {_cut(given.dtype.str)}, expected {dtype.str} ({dtype.name}).")
    if given.shape != shape:
        raise BadMessage(f"{name} has the shape {shown(given.shape)}, expected {shape}.")
    array = np.array(given, dtype, order="C", copy=True, subok=False)
    if dtype.kind == "f":
        _require_sound(name, array, largest)
    array.flags.writeable = False
    return array


def _require_sound(name: str, array: Array, largest: float) -> None:
    """Refuse NaN, infinities and absurdly large numbers, and say where the first one is."""
    count, first = 0, 0
    flat = array.reshape(-1)
    for block in row_blocks(len(flat), 1):
        bad = ~(np.abs(flat[block]) <= largest)  # negated, so that NaN is bad
        if not count and bad.any():
            first = block.start + int(np.argmax(bad))
        count += int(np.count_nonzero(bad))
    if count:
        where = tuple(int(i) for i in np.unravel_index(first, array.shape))
        expected = "finite numbers" if not np.isfinite(flat[first]) else f"numbers from -{largest:g} to {largest:g}"
        raise BadMessage(
            f"{name} has {count} value(s) such as {shown(flat[first])}, the first at index {where}, expected {expected}."
        )


def told(value: object) -> str:
    """Show a value of any type and size, without writing out much more of it than is shown."""
    if isinstance(value, str | bytes) and len(value) > _LONG:
        return f"{shown(value[:_LONG])} and so on ({len(value)} in all)"
    if value is None or isinstance(value, str | bytes | bool | int | float | np.number | np.bool_):
        return shown(value)
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a value of type {_cut(type(value).__name__)}"


_LONG = 50


def _cut(text: str) -> str:
    return text if len(text) <= _LONG else f"{text[:_LONG]}..."
