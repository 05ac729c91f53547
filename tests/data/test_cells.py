from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data._cells import DATE_FORMATS, InferredKind, as_booleans, as_categories, as_days, as_numbers, infer_kind


def found(values: Any) -> InferredKind:
    return infer_kind(pd.Series(values, name="c"))


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
    assert found(times.strftime(date_format)) == InferredKind("date", date_format)


@pytest.mark.parametrize(
    "text", ["2024-05-31", "2024-05-31 10:20", "2024-05-31T10:20:30Z", "2024-05-31T10:20+02:00", "2024-05"]
)
def test_iso_dates_are_recognised(text: str) -> None:
    assert found([text, None, "2024-01-01"]) == InferredKind("date", "ISO8601")


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


NAN = np.nan


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1, 2], [1, 2]),
        (pd.array([1, None], dtype="Int64"), [1, NAN]),
        ([True, False], [1, 0]),
        (pd.array([True, None], dtype="boolean"), [1, NAN]),
        ([Decimal("1.5"), None], [1.5, NAN]),
        (["1e3", " -2 ", "", None], [1000, -2, NAN, NAN]),
        (pd.Categorical([3, 1]), [3, 1]),
        ([10**400, 1], [np.inf, 1]),
        (["inf", "1"], [np.inf, 1]),
    ],
)
def test_numbers_are_read_in_any_type(column: Any, expected: list[float]) -> None:
    values, bad = as_numbers(pd.Series(column))
    np.testing.assert_array_equal(values, np.array(expected, dtype=np.float64), strict=True)
    assert not bad.any()


def test_what_is_no_number_is_marked() -> None:
    values, bad = as_numbers(pd.Series(["1", "1_000", "1,5", "x", "nan", [2], None, 1j], index=range(8, 0, -1)))
    assert bad.tolist() == [False, True, True, True, True, True, False, True]
    assert np.isnan(values).tolist() == [False] + [True] * 7


def test_truth_values_are_read_as_words_and_numbers() -> None:
    values, bad = as_booleans(pd.Series([True, np.False_, "true", "False", 1, 0.0, " ", None, "yes", 2]))
    np.testing.assert_array_equal(values, [1, 0, 1, 0, 1, 0, NAN, NAN, NAN, NAN])
    assert bad.tolist() == [False] * 8 + [True] * 2


@pytest.mark.parametrize(
    ("column", "date_format", "expected"),
    [
        (pd.to_datetime(["2000-01-01 00:00", "1999-12-31 18:00"]), "ISO8601", [0, -0.25]),
        (pd.to_datetime(["2000-01-01 02:00+02:00"]), "ISO8601", [0]),
        ([date(2000, 1, 3), datetime(2000, 1, 1, 6, tzinfo=UTC), None], "ISO8601", [2, 0.25, NAN]),
        (["2000-02", "2000-01-02T12:00Z", ""], "ISO8601", [31, 1.5, NAN]),
        (["31.01.2000", "2000-01-31"], "%d.%m.%Y", [30, 30]),
        ([np.datetime64("2000-01-05")], "ISO8601", [4]),
        (["9999-12-31", "0001-01-01"], "ISO8601", [2921939, -730119]),
    ],
)
def test_dates_become_days(column: Any, date_format: str, expected: list[float]) -> None:
    values, bad = as_days(pd.Series(column), date_format)
    np.testing.assert_array_equal(values, np.array(expected, dtype=np.float64), strict=True)
    assert not bad.any()


@given(st.dates())
def test_days_count_as_the_calendar_does(day: date) -> None:
    (days,), _ = as_days(pd.Series([day.isoformat()]))
    assert days == (day - date(2000, 1, 1)).days


def test_what_is_no_date_is_marked() -> None:
    _, bad = as_days(pd.Series(["2000-01-01", "2000-02-30", "2000", "12:00", "soon", 5, None]))
    assert bad.tolist() == [False, True, True, True, True, True, False]


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ([1.0, 2.5, None], ["1", "2.5", None]),
        ([True, False], ["True", "False"]),
        (pd.Categorical(["b", None, "a"]), ["b", None, "a"]),
        (["a ", "  ", "a"], ["a", None, "a"]),
        ([[1], [2]], ["[1]", "[2]"]),
    ],
)
def test_categories_are_text(column: Any, expected: list[str | None]) -> None:
    words = as_categories(pd.Series(column))
    assert words.dtype == object
    assert [None if pd.isna(word) else word for word in words] == expected
