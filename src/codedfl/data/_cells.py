"""Cells of a raw column as numbers, truth values, days or words; those that cannot be are marked."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl.typing import BoolArray, FloatArray

EPOCH = pd.Timestamp("2000-01-01")
"""Day 0 of dates as numbers; recent, so that single precision tells minutes apart."""

ISO = "ISO8601"
"""The date format that is always understood: 2024-05-31, with or without a time of day."""

_TRUTHS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}

Cells = tuple[FloatArray, BoolArray]
"""The value of each row, NaN if it is missing, and which rows have something that is not such a value."""


def as_numbers(column: pd.Series) -> Cells:
    """Return numbers as float64.

    Example:
        >>> as_numbers(pd.Series(["1", " 2.5", None, "two"]))
        (array([1. , 2.5, nan, nan]), array([False, False, False,  True]))
    """
    types, dtype = pd.api.types, column.dtype
    if types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype):
        return column.to_numpy(np.float64, na_value=np.nan), np.zeros(len(column), np.bool_)
    return _by_value(column, _number)


def as_truths(column: pd.Series) -> Cells:
    """Return true and false as 1 and 0.

    Example:
        >>> as_truths(pd.Series([True, None, "FALSE", 3]))
        (array([ 1., nan,  0., nan]), array([False, False, False,  True]))
    """
    return _by_value(column, lambda value: _TRUTHS.get(str(value).strip().lower(), math.nan))


def as_days(column: pd.Series, date_format: str = ISO) -> Cells:
    """Return dates as days since `EPOCH`; times of day are fractions, and time zones are converted to UTC.

    Args:
        column: dates, or text in the given format or as ISO 8601 has it.
        date_format: as for ``pandas.to_datetime``.

    Example:
        >>> as_days(pd.Series(["2000-01-02", "2000-01-01 12:00", "soon"]))
        (array([1. , 0.5, nan]), array([False, False,  True]))
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return _days(column), np.zeros(len(column), np.bool_)
    codes, values = _distinct(column)
    texts = pd.Series([value.strip() if isinstance(value, str) else None for value in values], dtype=object)
    found = parse_dates(texts, date_format)
    if date_format != ISO:
        found = found.fillna(parse_dates(texts, ISO))
    days = _days(found)
    for place, value in enumerate(values):
        if isinstance(value, date | np.datetime64):
            days[place] = _days(pd.Series([pd.Timestamp(value)]))[0]
    return _spread(codes, values, days)


def as_words(column: pd.Series) -> npt.NDArray[np.object_]:
    """Return categories as text without blanks around it, NaN if they are missing; whole numbers have no decimal point.

    Example:
        >>> as_words(pd.Series([" a", None, 2.0, True])).tolist()
        ['a', nan, '2', 'True']
    """
    codes, values = _distinct(column)
    words = np.empty(len(values) + 1, dtype=object)
    words[:] = [*(word(value) or np.nan for value in values), np.nan]
    return words[codes]


def word(value: Any) -> str:
    """Return a single category as text."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def parse_dates(texts: pd.Series, date_format: str) -> pd.Series:
    """Return points in time in UTC; NaT for text that is not in the format."""
    found = pd.to_datetime(texts, format=date_format, errors="coerce", utc=True)
    # Bare years and times of day pass as ISO 8601 too, but rarely mean a date.
    return found.where(texts.str.match(r"\d{4}-\d{2}").fillna(False).astype(bool)) if date_format == ISO else found


def _number(value: Any) -> float:
    if isinstance(value, str) and "_" in value:  # Python takes underscores for separators of digits
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        return math.nan


def _days(times: pd.Series) -> FloatArray:
    if getattr(times.dt, "tz", None) is not None:
        times = times.dt.tz_convert("UTC").dt.tz_localize(None)
    # Microseconds hold every year that a date can have; nanoseconds do not.
    return np.array((times.astype("datetime64[us]") - EPOCH) / pd.Timedelta(days=1), dtype=np.float64)


def _by_value(column: pd.Series, convert: Callable[[Any], float]) -> Cells:
    codes, values = _distinct(column)
    return _spread(codes, values, np.array([convert(value) for value in values], dtype=np.float64))


def _distinct(column: pd.Series) -> tuple[npt.NDArray[np.intp], list[Any]]:
    """Return the index of each row's value, -1 if it is missing, and the values."""
    try:
        codes, values = pd.factorize(column)
    except TypeError:  # lists and the like have no hash
        codes, values = pd.factorize(column.map(lambda value: value if isinstance(value, Hashable) else repr(value)))
    return codes, list(values)


def _spread(codes: npt.NDArray[np.intp], values: list[Any], converted: FloatArray) -> Cells:
    """Return the converted value of each row, and which rows have a value that could not be converted."""
    blank = np.array([isinstance(value, str) and not value.strip() for value in values], dtype=np.bool_)
    bad = np.isnan(converted) & ~blank
    return np.append(converted, np.nan)[codes], np.append(bad, False)[codes]
