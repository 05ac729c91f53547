"""What kind of values a column has: numbers, truth values, dates or categories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from codedfl._messages import listing, shown
from codedfl.data._cells import ISO, parse_dates

Kind = Literal["number", "boolean", "date", "category"]

DATE_FORMATS = (
    *(ISO, "%Y/%m/%d", "%d.%m.%Y", "%d.%m.%Y %H:%M", "%d.%m.%Y %H:%M:%S"),
    *("%d/%m/%Y", "%m/%d/%Y", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%m/%d/%Y %H:%M:%S"),
)
"""Formats in which dates are recognised, as ``pandas.to_datetime`` writes them."""

A_FEW = 100

_NUMBER = re.compile(r"[-+]?[$€£]? ?(\d{1,3}([ ,.'\u00a0\u202f]\d{3})+|\d+)?([.,]\d+|(?<=\d))([eE][-+]?\d+)? ?[%$€£]?")
"""Numbers as people write them, with separators of thousands, decimal commas, and signs of percent and currency."""


@dataclass(frozen=True)
class Found:
    """What was found out about a column: its kind, or a problem in one sentence."""

    kind: Kind = "category"
    date_format: str = ""
    problem: str = ""


def kind_of(column: pd.Series) -> Found:
    """Find out what kind of values a column has.

    Example:
        >>> kind_of(pd.Series([1.5, None])).kind, kind_of(pd.Series(["red", "blue"])).kind
        ('number', 'category')
        >>> kind_of(pd.Series(["31.12.2024", "01.02.2025"]))
        Found(kind='date', date_format='%d.%m.%Y', problem='')
    """
    types, dtype = pd.api.types, column.dtype
    inferred = types.infer_dtype(column, skipna=True)
    if column.isna().all():
        return Found(problem=f"column {shown(column.name)} has no values at all: {_LEAVE_OUT}.")
    if isinstance(dtype, pd.CategoricalDtype):
        return Found("category")
    if types.is_bool_dtype(dtype) or inferred == "boolean":
        return Found("boolean")
    if types.is_datetime64_any_dtype(dtype) or inferred in ("datetime64", "datetime", "date"):
        return Found("date", ISO)
    if inferred in ("integer", "floating", "mixed-integer-float", "decimal"):
        return Found("number")
    if inferred == "string":
        return _kind_of_text(column)
    return Found(
        problem=f"column {shown(column.name)} has {_in_words(inferred)} (dtype {dtype}), which are no numbers, dates or "
        f"categories: write them as one of these, or {_LEAVE_OUT}."
    )


_LEAVE_OUT = "leave it out with data.drop"


def _in_words(inferred: str) -> str:
    return "values of several types" if "mixed" in inferred else f"values of type {inferred}"


def _kind_of_text(column: pd.Series) -> Found:
    name = shown(column.name)
    distinct = pd.Series([str(value).strip() for value in column.dropna().unique()], dtype=object)
    distinct = distinct[distinct != ""]
    if distinct.empty:
        return Found(problem=f"column {name} has no values at all: {_LEAVE_OUT}.")
    as_category = f"declare categories with data.categories.{column.name} = []"
    numbers = np.array([_NUMBER.fullmatch(text) is not None for text in distinct], dtype=np.bool_)
    formats, dates = _date_formats(distinct)
    if len(formats) > 1:
        return Found(
            problem=f"column {name} has dates such as {shown(distinct.iloc[0])}, in which day and month cannot be told apart: "
            f"write them as 2024-12-31, or {_LEAVE_OUT}."
        )
    if formats:
        return Found("date", formats[0])
    for what, fits in (("dates", dates), ("numbers", numbers)):
        if 2 * np.count_nonzero(fits) >= len(fits) and not fits.all():
            others = _examples(distinct[~fits])
            return Found(
                problem=f"column {name} has {what}, such as {shown(distinct[fits].iloc[0])}, and other values ({others}): "
                f"leave cells without a value empty, {as_category}, or {_LEAVE_OUT}."
            )
    if numbers.all():
        return Found(
            problem=f"column {name} has numbers that cannot be read as such ({_examples(distinct)}): write them as those of "
            f"other columns, without units, {as_category}, or {_LEAVE_OUT}."
        )
    return Found("category")


def _date_formats(distinct: pd.Series) -> tuple[list[str], np.ndarray]:
    """Return the formats that all values have, and which values have the format that most of them have."""
    best = np.zeros(len(distinct), dtype=np.bool_)
    fitting = []
    first = distinct.iloc[:A_FEW]  # tells most formats apart without a look at everything
    if not first.str.match(r"\d{1,4}[-/.]\d").any():
        return [], best
    for date_format in DATE_FORMATS:
        if not parse_dates(first, date_format).notna().any():
            continue
        found = parse_dates(distinct, date_format).notna().to_numpy()
        if found.all():
            fitting.append(date_format)
        if np.count_nonzero(found) > np.count_nonzero(best):
            best = found
    return fitting, best


def _examples(values: Sequence[str] | pd.Series) -> str:
    return listing([shown(value, 30) for value in list(values)[:3]])
