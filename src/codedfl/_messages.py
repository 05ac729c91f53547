"""Lists of names and suggestions for the sentences of errors."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from difflib import get_close_matches


def listing(names: Iterable[str], limit: int = 20) -> str:
    """Return the names separated by commas, cut after ``limit`` of them.

    Example:
        >>> listing(["a", "b", "c"], limit=2)
        'a, b, ... (3 in all)'
    """
    everything = list(names)
    shown = ", ".join(everything[:limit])
    return shown if len(everything) <= limit else f"{shown}, ... ({len(everything)} in all)"


def did_you_mean(word: str, options: Sequence[str]) -> str:
    """Return a question that ends an error message, or nothing if no option is close.

    Example:
        >>> did_you_mean("mnits", ["digits", "mnist"])
        " Did you mean 'mnist'?"
    """
    close = get_close_matches(word, options, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def shown_key(key: str) -> str:
    """Return a key as a sentence can have it: cut if very long, quoted if it is empty or not printable."""
    short = key if len(key) <= 60 else f"{key[:57]}..."
    return short if short and short.isprintable() else json.dumps(short)


def no_such_key(prefix: str, key: str, known: Iterable[str]) -> str:
    """Return the sentence that refuses an unknown key, with the closest known one if any is close.

    Example:
        >>> no_such_key("data.", "device", ["devices", "task"])
        'data.device: there is no such key, did you mean data.devices?'
    """
    shown = shown_key(key)
    close = get_close_matches(key, list(known), n=1, cutoff=0.5)
    if close:
        return f"{prefix}{shown}: there is no such key, did you mean {prefix}{close[0]}?"
    return f"{prefix}{shown}: there is no such key; `codedfl config` lists all of them."


def number(value: float) -> str:
    """Write a number with about four digits; an infinite one, which stands for no bound, as a word.

    Example:
        >>> number(12345.6), number(0.123456), number(float("inf"))
        ('12346', '0.1235', 'none')
    """
    if math.isinf(value):
        return "none" if value > 0 else "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"
