from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.data._cells import as_days, as_numbers, as_truths, as_words

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
    values, bad = as_truths(pd.Series([True, np.False_, "true", "False", 1, 0.0, " ", None, "yes", 2]))
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
    words = as_words(pd.Series(column))
    assert words.dtype == object
    assert [None if pd.isna(word) else word for word in words] == expected
