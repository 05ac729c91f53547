"""Cells of a column: which kind of values they are, and those values as numbers or categories."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.typing import BoolArray, FloatArray

Kind = Literal["number", "boolean", "date", "category"]

Cells = tuple[FloatArray, BoolArray]
"""The value of each row, NaN if it is missing, and which rows have something that is not such a value."""

EPOCH = pd.Timestamp("2000-01-01")
"""Day 0 of dates as numbers; recent, so that single precision tells minutes apart."""

ISO = "ISO8601"
"""The date format that is always understood: 2024-05-31, with or without a time of day."""

DATE_FORMATS = (
    *(ISO, "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"),
)
"""Formats in which dates are recognised, as ``pandas.to_datetime`` writes them."""

A_FEW = 100

LARGEST_ROUNDING = 1e-3
"""Largest change of a number by single precision, over the standard deviation of its column."""

FLOAT32_LIMIT = float(np.finfo(np.float32).max)

_NUMBER = re.compile(r"[-+]?[$€£]? ?(\d{1,3}([ ,.'\u00a0\u202f]\d{3})+|\d+)?([.,]\d+|(?<=\d))([eE][-+]?\d+)? ?[%$€£]?")
"""Numbers as people write them, with separators of thousands, decimal commas, and signs of percent and currency."""

_BOOLEANS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "1.0": 1.0, "0.0": 0.0}
_LEAVE_OUT = "leave it out with data.drop"


@dataclass(frozen=True)
class InferredKind:
    """The kind of a column as its cells suggest it, or a problem in one sentence."""

    kind: Kind = "category"
    date_format: str = ISO
    problem: str = ""

    @property
    def is_category(self) -> bool:
        """Whether the values are text rather than numbers."""
        return self.kind == "category"


def infer_kind(column: pd.Series) -> InferredKind:
    """Infer from its cells what kind of values a column has.

    Example:
        >>> infer_kind(pd.Series([1.5, None])).kind, infer_kind(pd.Series(["red", "blue"])).kind
        ('number', 'category')
        >>> infer_kind(pd.Series(["31.12.2024", "01.02.2025"]))
        InferredKind(kind='date', date_format='%d.%m.%Y', problem='')
    """
    types, dtype = pd.api.types, column.dtype
    inferred = types.infer_dtype(column, skipna=True)
    if column.isna().all():
        return InferredKind(problem=f"column {shown(column.name)} has no values at all: {_LEAVE_OUT}.")
    if isinstance(dtype, pd.CategoricalDtype):
        return InferredKind("category")
    if types.is_bool_dtype(dtype) or inferred == "boolean":
        return InferredKind("boolean")
    if types.is_datetime64_any_dtype(dtype) or inferred in ("datetime64", "datetime", "date"):
        return InferredKind("date")
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return InferredKind("number")
    if inferred == "string":
        return _kind_of_text(column)
    return InferredKind(
        problem=f"column {shown(column.name)} has {_in_words(inferred)} (dtype {dtype}), which are no numbers, dates or "
        f"categories: write them as one of these, or {_LEAVE_OUT}."
    )


def _in_words(inferred: str) -> str:
    return "values of several types" if "mixed" in inferred else f"values of type {inferred}"


def _kind_of_text(column: pd.Series) -> InferredKind:
    name = shown(column.name)
    distinct = pd.Series([str(value).strip() for value in column.dropna().unique()], dtype=object)
    distinct = distinct[distinct != ""]
    if distinct.empty:
        return InferredKind(problem=f"column {name} has no values at all: {_LEAVE_OUT}.")
    as_category = f"declare categories with data.categories.{column.name} = []"
    numbers = np.array([_NUMBER.fullmatch(text) is not None for text in distinct], dtype=np.bool_)
    formats, dates = _date_formats(distinct)
    if len(formats) > 1:
        return InferredKind(
            problem=f"column {name} has dates such as {shown(distinct.iloc[0])}, in which day and month cannot be told apart: "
            f"write them as 2024-12-31, or {_LEAVE_OUT}."
        )
    if formats:
        return InferredKind("date", formats[0])
    for what, fits in (("dates", dates), ("numbers", numbers)):
        if 2 * np.count_nonzero(fits) >= len(fits) and not fits.all():
            others = _examples(distinct[~fits])
            return InferredKind(
                problem=f"column {name} has {what}, such as {shown(distinct[fits].iloc[0])}, and other values ({others}): "
                f"leave cells without a value empty, {as_category}, or {_LEAVE_OUT}."
            )
    if numbers.all():
        return InferredKind(
            problem=f"column {name} has numbers that cannot be read as such ({_examples(distinct)}): write them as those of "
            f"other columns, without units, {as_category}, or {_LEAVE_OUT}."
        )
    return InferredKind("category")


def _date_formats(distinct: pd.Series) -> tuple[list[str], np.ndarray]:
    """Return the formats that all values have, and which values have the format that most of them have."""
    best = np.zeros(len(distinct), dtype=np.bool_)
    fitting = []
    first = distinct.iloc[:A_FEW]  # tells most formats apart without a look at everything
    if not first.str.match(r"\d{1,4}[-/.]\d").any():
        return [], best
    for date_format in DATE_FORMATS:
        if not _parse_dates(first, date_format).notna().any():
            continue
        fits = _parse_dates(distinct, date_format).notna().to_numpy()
        if fits.all():
            fitting.append(date_format)
        if np.count_nonzero(fits) > np.count_nonzero(best):
            best = fits
    return fitting, best


def _examples(values: Sequence[str] | pd.Series) -> str:
    return listing([shown(value, 30) for value in list(values)[:3]])


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


def as_booleans(column: pd.Series) -> Cells:
    """Return true and false as 1 and 0.

    Example:
        >>> as_booleans(pd.Series([True, None, "FALSE", 3]))
        (array([ 1., nan,  0., nan]), array([False, False, False,  True]))
    """
    return _by_value(column, lambda value: _BOOLEANS.get(str(value).strip().lower(), math.nan))


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
    times = _parse_dates(texts, date_format)
    if date_format != ISO:
        times = times.fillna(_parse_dates(texts, ISO))
    days = _days(times)
    for place, value in enumerate(values):
        if isinstance(value, date | np.datetime64):
            days[place] = _days(pd.Series([pd.Timestamp(value)]))[0]
    return _spread(codes, values, days)


def as_categories(column: pd.Series) -> npt.NDArray[np.object_]:
    """Return categories as text without blanks around it, NaN if they are missing; whole numbers have no decimal point.

    Example:
        >>> as_categories(pd.Series([" a", None, 2.0, True])).tolist()
        ['a', nan, '2', 'True']
    """
    codes, values = _distinct(column)
    words = np.empty(len(values) + 1, dtype=object)
    words[:] = [*(_category(value) or np.nan for value in values), np.nan]
    return words[codes]


def is_numeric(column: pd.Series) -> bool:
    """Tell whether a column holds real numbers; booleans do not count.

    Example:
        >>> [is_numeric(pd.Series(values)) for values in ([1, 2], [0.5], [True], ["a"], [1j])]
        [True, True, False, False, False]
    """
    types = pd.api.types
    dtype = column.dtype
    return types.is_numeric_dtype(dtype) and not types.is_bool_dtype(dtype) and not types.is_complex_dtype(dtype)


def as_float32(name: str, values: npt.NDArray[Any]) -> FloatArray:
    """Return numbers as a C-contiguous float32 array, or refuse missing and unrepresentable ones.

    Example:
        >>> as_float32("column 'a'", np.array([1, 2]))
        array([1., 2.], dtype=float32)
    """
    missing = int(np.count_nonzero(np.isnan(values)))
    if missing:
        raise missing_values(name, missing)
    with np.errstate(over="ignore"):
        converted = np.ascontiguousarray(values, dtype=np.float32)
    if problem := beyond_float32(name, converted):
        raise InputError(problem)
    return converted


def as_floats(name: str, values: npt.NDArray[Any]) -> FloatArray:
    """Return numbers as `as_float32` does, but in double precision where single precision would merge what differs.

    Example:
        >>> seconds = np.array([1_700_000_000, 1_700_000_001])
        >>> as_floats("column 'at'", seconds).dtype, as_floats("column 'age'", np.array([30, 31])).dtype
        (dtype('float64'), dtype('float32'))
    """
    converted = as_float32(name, values)
    return np.ascontiguousarray(values, dtype=np.float64) if needs_double(values) else converted


def needs_double(values: npt.NDArray[Any]) -> bool:
    """Tell whether single precision moves numbers of some column by more than `LARGEST_ROUNDING` of its standard deviation.

    Times are such numbers if they are seconds since 1970, or days since 2000, and differ by minutes.

    Example:
        >>> needs_double(np.array([1.7e9, 1.7e9 + 60])), needs_double(np.array([0.1, 0.2])), needs_double(np.array([0.1, 0.1]))
        (True, False, False)
    """
    values = np.asarray(values, dtype=np.float64)
    if values.size == 0:
        return False
    rounding = np.abs(values - values.astype(np.float32)).max(axis=0)
    return bool(np.any((np.ptp(values, axis=0) > 0) & (rounding > LARGEST_ROUNDING * values.std(axis=0))))


def precision_for(mean: npt.ArrayLike, scale: npt.ArrayLike) -> np.dtype[Any]:
    """Return the floating type in which columns with these means can be brought to mean 0 and scale 1.

    Example:
        >>> precision_for([1.7e9, 50.0], [100.0, 10.0]), precision_for([50.0], [10.0]), precision_for([], [])
        (dtype('float64'), dtype('float32'), dtype('float32'))
    """
    rounding = np.spacing(np.abs(np.asarray(mean, dtype=np.float32))).astype(np.float64) / 2
    coarse = rounding > LARGEST_ROUNDING * np.asarray(scale, dtype=np.float64)
    return np.dtype(np.float64 if coarse.any() else np.float32)


def beyond_float32(name: str, values: FloatArray) -> str:
    """Return a sentence about numbers that single precision cannot hold; empty if it holds all of them."""
    with np.errstate(over="ignore"):
        count = np.count_nonzero(np.isinf(np.asarray(values, dtype=np.float32)))
    if not count:
        return ""
    return f"{name} has {count} value(s) that are infinite or beyond {FLOAT32_LIMIT:.1e}: rescale them or remove their rows."


def missing_values(name: str, count: int) -> InputError:
    """Return the error for a column with missing values."""
    return InputError(
        f"{name} has {count} missing value(s) (empty, NaN, NA or None): fill them in or remove their rows."
    )


def _category(value: Any) -> str:
    """Return a single category as text."""
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


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


def _parse_dates(texts: pd.Series, date_format: str) -> pd.Series:
    """Return points in time in UTC; NaT for text that is not in the format."""
    times = pd.to_datetime(texts, format=date_format, errors="coerce", utc=True)
    # Bare years and times of day pass as ISO 8601 too, but rarely mean a date.
    return times.where(texts.str.match(r"\d{4}-\d{2}").fillna(False).astype(bool)) if date_format == ISO else times


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
