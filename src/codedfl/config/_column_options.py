"""What users know about the columns of their tables: bounds and categories, checked in words."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any

from codedfl._messages import shown_json, shown_key
from codedfl.errors import InputError

LARGEST = 1e38
"""Numbers beyond this are not representable in single precision."""


def check_bounds(given: Any) -> Any:
    """Return bounds by column, with dates as text in ISO 8601; anything but a table of columns is left to the schema.

    Raises:
        InputError: the bounds of a column are not two numbers, or two dates, of which the first is smaller.

    Example:
        >>> check_bounds({"age": [0, 120], "admitted": [date(2020, 1, 1), "2024-12-31"]})
        {'age': [0, 120], 'admitted': ['2020-01-01', '2024-12-31']}
    """
    if not isinstance(given, dict):
        return given
    checked = {}
    for name, ends in given.items():
        plain = [end.isoformat() if isinstance(end, date) else end for end in ends] if _is_list(ends) else []
        if len(plain) != 2 or not _in_order(*plain):
            raise InputError(
                f"data.bounds.{shown_key(str(name))} = {shown_json(ends)} is not possible: give two numbers, or two dates like "
                '"2024-12-31", the smaller one first.'
            )
        checked[name] = plain
    return checked


def check_categories(given: Any) -> Any:
    """Return categories by column, as text; anything but a table of columns is left to the schema.

    Raises:
        InputError: the categories of a column are not a list of different words or whole numbers.

    Example:
        >>> check_categories({"ward": ["surgery", 2]})
        {'ward': ['surgery', '2']}
    """
    if not isinstance(given, dict):
        return given
    checked = {}
    for name, words in given.items():
        items = list(words) if _is_list(words) else [None]
        texts = [str(item).strip() for item in items]
        if not all(isinstance(item, str | int) for item in items) or len(set(texts)) < len(texts) or "" in texts:
            raise InputError(
                f"data.categories.{shown_key(str(name))} = {shown_json(words)} is not possible: give a list of different words, "
                "or [] to learn them from the data."
            )
        checked[name] = texts
    return checked


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _in_order(low: Any, high: Any) -> bool:
    numbers = [end for end in (low, high) if isinstance(end, int | float) and not isinstance(end, bool)]
    if len(numbers) == 2:
        return bool(-LARGEST < low < high < LARGEST)
    try:
        return datetime.fromisoformat(low) < datetime.fromisoformat(high)
    except (TypeError, ValueError):
        return False
