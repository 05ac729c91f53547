"""Checks of values that no schema describes: options of single schemes, and what users know about the columns of tables."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from datetime import date, datetime
from functools import cache
from typing import Any, get_type_hints

from codedfl._messages import no_such_key, shown_json, shown_key
from codedfl.errors import InputError
from codedfl.schemes import make_scheme, scheme_builder

MAX_COUNT = 10**9
"""The largest count: larger ones are typing errors, or overflow."""

LARGEST = 1e38
"""Numbers beyond this are not representable in single precision."""


def option_defaults(scheme: str) -> dict[str, Any]:
    """Return the options of a scheme with their defaults.

    Example:
        >>> option_defaults("scfl")
        {'batch': 'adaptive', 'device_weight': 0.5, 'weight_cap': 100.0, 'upload': 'rows'}
    """
    return dict(_defaults(scheme))


@cache
def _defaults(scheme: str) -> Mapping[str, Any]:
    """Read the defaults from the signature, which takes a while."""
    return {name: item.default for name, item in inspect.signature(scheme_builder(scheme)).parameters.items()}


def option_descriptions(scheme: str) -> dict[str, str]:
    """Return the descriptions of a scheme's options, from the ``Field`` in the annotation of each.

    Example:
        >>> option_descriptions("scfl")["device_weight"]
        'share of the devices in the update; the paper has 1/2'
    """
    hints = get_type_hints(scheme_builder(scheme), include_extras=True)
    return {name: _description(hints.get(name)) for name in option_defaults(scheme)}


def _description(hint: Any) -> str:
    """Return the description in an annotation; plug-ins may lack one."""
    described = (getattr(item, "description", None) for item in getattr(hint, "__metadata__", ()))
    return next((text for text in described if text), "no description")


def check_options(scheme: str, options: Mapping[str, Any]) -> None:
    """Refuse options that a scheme does not have, and invalid values."""
    known = option_defaults(scheme)
    for name, value in options.items():
        if name not in known:
            raise InputError(no_such_key(f"options.{scheme}.", name, known))
        if not isinstance(value, bool | int | float | str) or (
            isinstance(value, int | float) and abs(value) > MAX_COUNT
        ):
            raise InputError(
                f"options.{scheme}.{name} is not possible: it must be a string, true or false, or a number (at most {MAX_COUNT})."
            )
        if isinstance(value, bool) and not isinstance(known[name], bool):
            raise InputError(
                f"options.{scheme}.{name} = {str(value).lower()} is not possible: it must be a number or a word, such as"
                f" {known[name]}."
            )
    try:
        make_scheme(scheme, options)
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith("options.") else f"options.{scheme}.{text}") from error


def check_bounds(bounds: Any) -> Any:
    """Return bounds by column, with dates as text in ISO 8601; anything but a table of columns is left to the schema.

    Raises:
        InputError: the bounds of a column are not two numbers, or two dates, of which the first is smaller.

    Example:
        >>> check_bounds({"age": [0, 120], "admitted": [date(2020, 1, 1), "2024-12-31"]})
        {'age': [0, 120], 'admitted': ['2020-01-01', '2024-12-31']}
    """
    if not isinstance(bounds, dict):
        return bounds
    checked = {}
    for name, ends in bounds.items():
        plain = [end.isoformat() if isinstance(end, date) else end for end in ends] if _is_list(ends) else []
        if len(plain) != 2 or not _in_order(*plain):
            raise InputError(
                f"data.bounds.{shown_key(str(name))} = {shown_json(ends)} is not possible: give two numbers, or two dates like "
                '"2024-12-31", the smaller one first.'
            )
        checked[name] = plain
    return checked


def check_categories(categories: Any) -> Any:
    """Return categories by column, as text; anything but a table of columns is left to the schema.

    Raises:
        InputError: the categories of a column are not a list of different words or whole numbers.

    Example:
        >>> check_categories({"ward": ["surgery", 2]})
        {'ward': ['surgery', '2']}
    """
    if not isinstance(categories, dict):
        return categories
    checked = {}
    for name, words in categories.items():
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
