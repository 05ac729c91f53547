"""Checks on numbers and arrays that refuse bad input in one sentence."""

from __future__ import annotations

import math

import numpy as np

from codedfl.errors import InputError
from codedfl.typing import FloatArray


def require_positive(name: str, value: float) -> None:
    """Refuse a value that is not a positive finite number."""
    if not (math.isfinite(value) and value > 0):
        raise InputError(f"{name} = {value} must be a positive finite number.")


def require_non_negative(name: str, value: float) -> None:
    """Refuse a value that is negative or not finite."""
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"{name} = {value} must be a finite number, zero or more.")


def require_at_least(name: str, value: int, least: int) -> None:
    """Refuse what is not an integer, and an integer below ``least``."""
    if not isinstance(value, int | np.integer):
        raise InputError(f"{name} = {value} must be a whole number, {least} or more.")
    if value < least:
        raise InputError(f"{name} = {value} must be {least} or more.")


def require_finite(name: str, values: FloatArray) -> None:
    """Refuse an array with a NaN or an infinity, and say where the first one is."""
    finite = np.isfinite(values)
    if not finite.all():
        first = tuple(int(i) for i in np.argwhere(~finite)[0])
        count = int(values.size - np.count_nonzero(finite))
        raise InputError(
            f"{name} has {count} value(s) that are NaN or infinite, the first at index {first}: "
            "remove those rows or fill the values in."
        )
