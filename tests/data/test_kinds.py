from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest

from codedfl.data._kinds import DATE_FORMATS, Found, kind_of


def found(values: Any) -> Found:
    return kind_of(pd.Series(values, name="c"))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], "number"),
        ([1.5, None], "number"),
        (pd.array([1, None], dtype="Int64"), "number"),
        ([10**30, 1], "number"),
        ([Decimal("1.5"), Decimal(2)], "number"),
        ([True, False], "boolean"),
        ([True, None], "boolean"),
        (pd.array([True, None], dtype="boolean"), "boolean"),
        (["red", "blue", None], "category"),
        (pd.Categorical([10, 2]), "category"),
        (["1A", "2B", "3"], "category"),
        (["10.0.0.1", "10.0.0.2"], "category"),
        (["Jan 2024", "Feb 2024"], "category"),
        (pd.to_datetime(["2020-01-01", "NaT"]), "date"),
        (pd.to_datetime(["2020-01-01"]).tz_localize("Europe/Amsterdam"), "date"),
        ([date(2020, 1, 1), None], "date"),
    ],
)
def test_kinds_are_told_apart(values: Any, kind: str) -> None:
    result = found(values)
    assert (result.kind, result.problem) == (kind, "")


@pytest.mark.parametrize("date_format", [each for each in DATE_FORMATS if each != "ISO8601"])
def test_every_date_format_is_recognised(date_format: str) -> None:
    times = pd.date_range("2023-12-30 10:20", periods=400, freq="31h")
    assert found(times.strftime(date_format)) == Found("date", date_format)


@pytest.mark.parametrize(
    "text", ["2024-05-31", "2024-05-31 10:20", "2024-05-31T10:20:30Z", "2024-05-31T10:20+02:00", "2024-05"]
)
def test_iso_dates_are_recognised(text: str) -> None:
    assert found([text, None, "2024-01-01"]) == Found("date", "ISO8601")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([None, None], "column 'c' has no values at all: leave it out with data.drop."),
        (["", "  "], "column 'c' has no values at all"),
        ([np.nan], "has no values at all"),
        (["1/2/2024", "12/11/2024"], "has dates such as '1/2/2024', in which day and month cannot be told apart"),
        (
            ["1.5", "2", "?"],
            "has numbers, such as '1.5', and other values ('?'): leave cells without a value empty, declare cat",
        ),
        (["2024-01-01", "2024-01-02", "never"], "has dates, such as '2024-01-01', and other values ('never')"),
        (["1,234.5", "7"], "has numbers that cannot be read as such ('1,234.5', '7')"),
        (["5%", "7 %"], "has numbers that cannot be read as such"),
        (["$5", "€ 7.50"], "has numbers that cannot be read as such"),
        ([1, "a"], "has values of several types"),
        ([[1], [2]], "has values of several types"),
        ([b"a"], "has values of type bytes"),
        ([1j], "has values of type complex"),
        (pd.to_timedelta([1], unit="D"), "has values of type timedelta"),
    ],
)
def test_what_is_none_of_them_is_a_problem(values: Any, message: str) -> None:
    assert message in found(values).problem
    assert found(values).problem.endswith(".")


def test_one_odd_value_in_a_long_column_of_dates_is_found() -> None:
    days = list(pd.date_range("2020-01-01", periods=500).strftime("%Y-%m-%d"))
    assert found(days).kind == "date"
    assert "and other values ('unknown')" in found([*days, "unknown"]).problem
    assert "and other values ('unknown')" in found(["unknown", *days]).problem
