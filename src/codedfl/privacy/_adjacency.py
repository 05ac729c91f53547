"""Which datasets count as neighbours."""

from __future__ import annotations

from typing import Literal, get_args

from codedfl.errors import InputError

Adjacency = Literal["remove", "add", "add-remove", "replace"]
"""What tells two neighbours apart: a sample is missing from the second (remove) or from the first (add), either of the two
(add-remove), or a sample has another value (replace)."""


def require_signal_to_noise(value: float) -> None:
    """Refuse a ratio that is negative or not a number; it may be infinite."""
    if not value >= 0:
        raise InputError(f"signal_to_noise = {value} must be zero or more.")


def require_adjacency(adjacency: str) -> None:
    """Refuse a word that is not an :data:`Adjacency`."""
    if adjacency not in get_args(Adjacency):
        raise InputError(f"adjacency = {adjacency!r} must be one of {', '.join(get_args(Adjacency))}.")
