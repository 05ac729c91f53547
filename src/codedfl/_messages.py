"""Building blocks of error messages: values, lists of names, and suggestions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import PurePath

PATH_LIMIT = 300
MAX_DIGITS = 1000


def shown(value: object, limit: int = 60) -> str:
    """Return the ``repr`` of a value for a message, with the middle of a long one left out.

    Paths are shown as strings, up to ``PATH_LIMIT`` characters; numpy scalars as plain numbers.

    Example:
        >>> import numpy as np
        >>> shown("mnist"), shown(PurePath("a.csv")), shown(np.float64(0.5))
        ("'mnist'", "'a.csv'", '0.5')
        >>> shown("x" * 5000, limit=30)
        "'xxxxxxxxxxxxxxxxxxx ... xxxxx' (5002 characters)"
    """
    if isinstance(value, PurePath):
        value, limit = str(value), PATH_LIMIT
    if getattr(value, "shape", None) == () and hasattr(value, "item"):  # a scalar of numpy, which is slow to import
        value = value.item()
    if isinstance(value, int) and abs(value) >= 10**MAX_DIGITS:
        # Python refuses to write out longer integers.
        return f"an integer of more than {MAX_DIGITS} digits"
    return _cut(repr(value), limit)


def _cut(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    tail = limit // 5
    return f"{text[: limit - tail - 4]} ... {text[-tail:]} ({len(text)} characters)"


def listing(names: Iterable[str], limit: int = 20) -> str:
    """Return the names separated by commas, at most ``limit`` of them.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        'a, b, ... (3 in all)'
    """
    everything = list(names)
    first = ", ".join(_cut(name, 60) for name in everything[:limit])
    return first if len(everything) <= limit else f"{first}, ... ({len(everything)} in all)"


def did_you_mean(word: str, options: Sequence[str]) -> str:
    """Return a question that ends an error message, or nothing if no option is close.

    Example:
        >>> did_you_mean("mnits", ["digits", "mnist"])
        " Did you mean 'mnist'?"
    """
    close = get_close_matches(word, options, n=1)
    return f" Did you mean {shown(close[0])}?" if close else ""


def shown_key(key: str) -> str:
    """Return a key for a message: as it is, or quoted if it is empty or has characters that do not print."""
    return _cut(key if key and key.isprintable() else json.dumps(key), 60)


def no_such_key(
    prefix: str, key: str, known: Iterable[str], otherwise: str = "`codedfl config` lists all of them"
) -> str:
    """Return the sentence that refuses an unknown key, with the closest known key if there is one, else with other help.

    Example:
        >>> no_such_key("data.", "device", ["devices", "task"])
        'data.device: there is no such key, did you mean data.devices?'
    """
    close = get_close_matches(key, list(known), n=1, cutoff=0.5)
    if close:
        return f"{prefix}{shown_key(key)}: there is no such key, did you mean {prefix}{close[0]}?"
    return f"{prefix}{shown_key(key)}: there is no such key; {otherwise}."


def shown_json(value: object) -> str:
    """Return a value for a message as JSON, which is how TOML writes it too; cut if it is long.

    Example:
        >>> shown_json(("a", True))
        '["a", true]'
    """
    try:
        text = json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # odd keys, thousands of digits, nested without end
        text = f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."


def number(value: float) -> str:
    """Write a number with about four digits; infinity as ``no bound``.

    Example:
        >>> number(12345.6), number(0.123456), number(float("inf"))
        ('12346', '0.1235', 'no bound')
    """
    if math.isinf(value):
        return "no bound" if value > 0 else "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
