"""Checks on the arguments of this package."""

from __future__ import annotations

import math
from numbers import Real
from reprlib import Repr
from typing import Literal, get_args

import numpy as np

from codedfl._validation import require_at_least, require_finite, require_non_negative, require_positive
from codedfl.errors import InputError
from codedfl.typing import FloatArray

Adjacency = Literal["remove", "add", "add-remove", "replace"]
"""How two neighbouring datasets differ: the second lacks a sample of the first (remove), the first lacks a sample of the
second (add), either of the two (add-remove), or one sample has another value (replace)."""

MOST = 2**40
"""The largest count of coded samples or devices; the tails of the chi-square law are tested up to here."""


def shown(value: object) -> str:
    """Return a value as an error message can quote it: shortened if it is long.

    Example:
        >>> shown(0.5), shown(10**5000), shown("x" * 1000)
        ('0.5', '1e+5000', "'xxxxxxxxxxxx...xxxxxxxxxxxxx'")
    """
    if isinstance(value, int) and abs(value) >= 10**15:  # Python itself refuses to print integers of 4,300 digits
        return f"{'-' if value < 0 else ''}1e+{math.floor(math.log10(abs(value)))}"
    return Repr().repr(value)


def require_count(name: str, value: int, most: int = MOST) -> None:
    """Refuse anything but an integer from 1 to ``most``."""
    if isinstance(value, int | np.integer) and not -most <= value <= most:
        raise InputError(f"{name} = {shown(int(value))} must lie between 1 and {shown(most)}.")
    require_at_least(name, value, 1)


def require_number(name: str, value: float) -> None:
    """Refuse anything but a finite number, zero or more."""
    _require_real(name, value)
    require_non_negative(name, value)


def require_positive_number(name: str, value: float) -> None:
    """Refuse anything but a positive finite number."""
    _require_real(name, value)
    require_positive(name, value)


def require_norm_bound(name: str, value: float) -> None:
    """Refuse a bound on a norm that is not positive, or whose square overflows or underflows."""
    require_positive_number(name, value)
    if not 1e-150 <= value <= 1e150:
        raise InputError(f"{name} = {value} must lie between 1e-150 and 1e+150: rescale the data.")


def require_probability(name: str, value: float) -> None:
    """Refuse anything but a number strictly between 0 and 1."""
    _require_real(name, value)
    if not 0 < value < 1:
        raise InputError(f"{name} = {value} must lie between 0 and 1, both excluded.")


def require_signal_to_noise(value: float) -> None:
    """Refuse a ratio that is negative or NaN; it may be infinite."""
    _require_real("signal_to_noise", value)
    if not value >= 0:
        raise InputError(f"signal_to_noise = {value} must be zero or more.")


def require_adjacency(adjacency: str) -> None:
    """Refuse a word that is not an :data:`Adjacency`."""
    if adjacency not in get_args(Adjacency):
        raise InputError(f"adjacency = {shown(adjacency)} must be one of {', '.join(get_args(Adjacency))}.")


def require_matrix(name: str, values: FloatArray) -> None:
    """Refuse anything but a finite matrix of floats with at least one row and one column."""
    if values.ndim != 2 or values.size == 0 or not np.issubdtype(values.dtype, np.floating):
        raise InputError(
            f"{name} has shape {values.shape} and dtype {values.dtype}: give a two-dimensional array of floats with at least "
            "one row and one column."
        )
    require_finite(name, values)
    if float(np.abs(values).max()) > 1e100:
        raise InputError(f"{name} has entries of magnitude above 1e+100: rescale the data, or use less noise.")


def require_same_columns(name: str, values: FloatArray, other: str, others: FloatArray) -> None:
    """Refuse two matrices whose numbers of columns differ."""
    if values.shape[1] != others.shape[1]:
        raise InputError(
            f"{name} has {values.shape[1]} columns but {other} has {others.shape[1]}: give the same columns in both."
        )


def require_same_rows(name: str, values: FloatArray, other: str, others: FloatArray) -> None:
    """Refuse two matrices whose numbers of rows differ."""
    if len(values) != len(others):
        raise InputError(f"{name} has {len(values)} rows but {other} has {len(others)}: give one for each row.")


def _require_real(name: str, value: float) -> None:
    """Refuse booleans, anything that is not a real number, and integers that do not fit into a float."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Real):
        raise InputError(f"{name} = {shown(value)} must be a number.")
    if isinstance(value, int) and abs(value) > 10**300:
        raise InputError(f"{name} = {shown(value)} must be a number of magnitude 1e+300 or less.")
