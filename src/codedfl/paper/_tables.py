"""Tables of numbers behind the figures: they go to CSV, and claims and pictures are made from them."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from codedfl.results import half_width
from codedfl.typing import FloatArray

Row = Mapping[str, Any]
Tables = Mapping[str, pd.DataFrame]


def where(table: pd.DataFrame, **values: Any) -> pd.DataFrame:
    """Return the rows that have these values."""
    for name, value in values.items():
        table = table[table[name] == value]
    return table


def column(table: pd.DataFrame, name: str, **values: Any) -> FloatArray:
    """Return a column of the rows that have these values.

    Raises:
        KeyError: if there is no such row.

    Example:
        >>> table = pd.DataFrame([{"series": "SCFL", "y": 1}, {"series": "FedAvg", "y": 2}])
        >>> column(table, "y", series="FedAvg")
        array([2.])
    """
    found = where(table, **values)
    if found.empty:
        raise KeyError(f"no row has {values}")
    return found[name].to_numpy(float)


def to_csv(table: pd.DataFrame) -> str:
    """Write a table as CSV, floating-point numbers to six digits; a table without rows is an empty file.

    Example:
        >>> print(to_csv(pd.DataFrame([{"x": 1, "y": 0.25}, {"x": 2, "y": 1 / 3}])).strip())
        x,y
        1,0.25
        2,0.333333
    """
    return "" if table.empty else table.to_csv(index=False, float_format="%.6g", na_rep="nan", lineterminator="\n")


def read_csv(text: str) -> pd.DataFrame:
    r"""Read a table that `to_csv` wrote.

    Example:
        >>> read_csv("series,x,chosen\nSCFL,0.5,True\n").to_dict("records")
        [{'series': 'SCFL', 'x': 0.5, 'chosen': True}]
    """
    if not text:
        return pd.DataFrame()
    return pd.read_csv(io.StringIO(text), keep_default_na=False, na_values=["nan"])


def interval(values: FloatArray) -> tuple[float, float, float]:
    """Return the mean and its 95% interval by Student's t; of a single value, the value.

    Example:
        >>> [round(x, 3) for x in interval(np.array([1.0, 2.0, 3.0]))]
        [2.0, -0.484, 4.484]
    """
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, mean, mean
    half = half_width(values)
    return mean, mean - half, mean + half


def summary_table(
    points: pd.DataFrame, value: str = "accuracy", by: Iterable[str] = ("panel", "series", "x")
) -> pd.DataFrame:
    """Return the mean of a column over seeds with its 95% interval, one row per group in order of appearance."""
    names = list(by)
    rows = [
        (*key, *interval(group.to_numpy(float)), len(group)) for key, group in points.groupby(names, sort=False)[value]
    ]
    return pd.DataFrame(rows, columns=[*names, "mean", "low", "high", "seeds"])
