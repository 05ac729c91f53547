"""Short ``repr``s: what holds large arrays names their sizes instead of their numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel

LONGEST = 60
"""Characters of a value that is shown as it is."""


class ShortRepr:
    """Base of dataclasses with large content; they are declared with ``repr=False``.

    Example:
        >>> from dataclasses import dataclass
        >>> @dataclass(repr=False)
        ... class Model(ShortRepr):
        ...     weights: np.ndarray
        ...     names: tuple[str, ...]
        ...     rounds: int
        >>> Model(np.zeros((100, 10), np.float32), ("no", "yes"), 5)
        Model(weights=float32 (100, 10), names=('no', 'yes'), rounds=5)
    """

    def __repr__(self) -> str:
        shown = ", ".join(
            f"{item.name}={_brief(getattr(self, item.name))}"
            for item in fields(self)  # type: ignore[arg-type]
            if item.repr
        )
        return f"{type(self).__name__}({shown})"


def _brief(value: Any) -> str:
    """Return a value as it is if that is short, else its type and size."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {value.shape}"
    if is_dataclass(value) or isinstance(value, BaseModel):
        return f"{type(value).__name__}(...)"
    if isinstance(value, Mapping | Set | Sequence) and not isinstance(value, str | bytes):
        items = value.values() if isinstance(value, Mapping) else value
        plain = len(value) <= LONGEST and all(isinstance(item, str | float | int | bool | None) for item in items)
        text = repr(value) if plain else ""
        return text if plain and len(text) <= LONGEST else f"<{len(value)} in a {type(value).__name__}>"
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
