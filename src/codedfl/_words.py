"""Lists of names and suggestions for the sentences of errors."""

from __future__ import annotations

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
