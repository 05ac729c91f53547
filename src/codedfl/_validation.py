"""Checks that refuse bad numbers and arrays in one sentence, and all problems of an input together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError, InputListError
from codedfl.typing import FloatArray, row_blocks

MOST_LINES = 20
"""Largest number of problems that a message lists."""


def require_positive(name: str, value: float) -> None:
    """Refuse a value that is not a positive finite number."""
    if not (_is_finite(value) and value > 0):
        raise InputError(f"{name} = {shown(value)} must be a positive finite number.")


def require_non_negative(name: str, value: float) -> None:
    """Refuse a value that is negative or not finite."""
    if not (_is_finite(value) and value >= 0):
        raise InputError(f"{name} = {shown(value)} must be a finite number, zero or more.")


def require_fraction(name: str, value: float) -> None:
    """Refuse a value that is not strictly between 0 and 1."""
    if not (_is_finite(value) and 0 < value < 1):
        raise InputError(f"{name} = {shown(value)} must be more than 0 and less than 1.")


def require_at_least(name: str, value: int, least: int) -> None:
    """Refuse what is not an integer, and an integer below ``least``; a boolean is not an integer."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise InputError(f"{name} = {shown(value)} must be a whole number, {least} or more.")
    if value < least:
        raise InputError(f"{name} = {shown(value)} must be {least} or more.")


def require_finite(name: str, values: FloatArray) -> None:
    """Refuse an array with a NaN or an infinity, and say where the first one is.

    The array is checked block by block, so that a mapped file is never in memory as a whole.
    """
    values = np.atleast_1d(values)
    count, first = 0, (0,)
    for block in row_blocks(len(values), values[:1].size):
        finite = np.isfinite(values[block])
        bad = finite.size - int(np.count_nonzero(finite))
        if bad and not count:
            row, *columns = np.unravel_index(int(np.argmin(finite)), finite.shape)
            first = (block.start + int(row), *map(int, columns))
        count += bad
    if count:
        raise InputError(
            f"{name} has {count} value(s) that are NaN or infinite, the first at index {first}: "
            "remove those rows or fill the values in."
        )


def refuse_all(source: str, problems: Sequence[str]) -> None:
    """Refuse an input if there is anything wrong with it.

    Args:
        source: what is wrong, as messages name it.
        problems: one sentence each; a single one that does not name the source is put behind it.

    Raises:
        InputError: for a single problem, in one sentence.
        InputListError: for several, in a sentence and one line each.

    Example:
        >>> refuse_all("'my.csv'", ["column 'a' has no values.", "column 'b' has no values."])
        Traceback (most recent call last):
        codedfl.errors.InputListError: 'my.csv' has 2 problems:
        - column 'a' has no values.
        - column 'b' has no values.
    """
    if len(problems) == 1:
        raise InputError(problems[0] if source in problems[0] else f"{source}: {problems[0]}")
    if problems:
        lines = [f"- {problem}" for problem in problems[:MOST_LINES]]
        if len(problems) > MOST_LINES:
            lines.append(f"- and {len(problems) - MOST_LINES} more.")
        raise InputListError("\n".join([f"{source} has {len(problems)} problems:", *lines]))


def _is_finite(value: object) -> bool:
    try:
        return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
