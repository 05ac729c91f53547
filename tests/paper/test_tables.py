from __future__ import annotations

import csv
import io
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from codedfl.paper._tables import column, interval, read_csv, summary_table, to_csv, where
from tests.paper.made_up import points

TABLE = pd.DataFrame(
    [{"kind": "a", "x": 1, "y": 0.5}, {"kind": "b", "x": 2, "y": 0.25}, {"kind": "a", "x": 2, "y": 1.5}]
)


def test_rows_and_columns_can_be_asked_for() -> None:
    assert list(where(TABLE, kind="a")["y"]) == [0.5, 1.5]
    assert list(where(TABLE, kind="a", x=2)["y"]) == [1.5]
    assert where(TABLE, kind="c").empty
    assert list(column(TABLE, "y", x=2)) == [0.25, 1.5]
    assert column(TABLE, "x").dtype == float
    with pytest.raises(KeyError, match="'kind': 'c'"):
        column(TABLE, "y", kind="c")


def test_csv_has_a_header_and_a_line_for_each_row() -> None:
    assert to_csv(TABLE) == "kind,x,y\na,1,0.5\nb,2,0.25\na,2,1.5\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1 / 3, "0.333333"),
        (2 / 3, "0.666667"),
        (123456.7, "123457"),
        (1234567.8, "1.23457e+06"),
        (1e-11, "1e-11"),
        (100.0, "100"),
        (1234567, "1234567"),
        (True, "True"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (np.float64(1 / 3), "0.333333"),
        ("CodedFedL, no noise", '"CodedFedL, no noise"'),
        ('"quoted"', '"""quoted"""'),
    ],
)
def test_csv_has_six_digits_of_floating_point_numbers_and_all_of_the_rest(value: float | str, text: str) -> None:
    assert to_csv(pd.DataFrame([{"value": value}])) == f"value\n{text}\n"


def test_csv_can_be_read_by_others() -> None:
    rows: list[dict[str, Any]] = [{"series": "CodedFedL, no noise", "x": 0.1}, {"series": "two\nlines", "x": 1e-9}]
    read = list(csv.DictReader(io.StringIO(to_csv(pd.DataFrame(rows)), newline="")))
    assert [(row["series"], float(row["x"])) for row in read] == [(row["series"], row["x"]) for row in rows]


def test_csv_can_be_read_back() -> None:
    table = pd.DataFrame(
        {
            "series": ["CodedFedL, no noise", "NA"],
            "n": [1, 2],
            "x": [0.1, 1e-9],
            "y": [math.nan, -math.inf],
            "so": [True, False],
        }
    )
    pd.testing.assert_frame_equal(read_csv(to_csv(table)), table)


def test_an_empty_table_is_an_empty_file() -> None:
    assert to_csv(pd.DataFrame()) == to_csv(where(TABLE, kind="c")) == ""
    assert read_csv("").empty


@pytest.mark.parametrize("count", [2, 3, 5, 30])
def test_the_interval_is_that_of_students_t(count: int) -> None:
    values = np.random.default_rng(count).normal(0.3, 2.0, count)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert interval(values) == pytest.approx((values.mean(), expected.low, expected.high), rel=1e-10)


def test_the_interval_of_two_values_by_hand() -> None:
    # The quantile of t with one degree of freedom is tan(pi (p - 1/2)); the standard error of 1 and 3 is 1.
    half = np.tan(np.pi * (0.975 - 0.5))
    assert interval(np.array([1.0, 3.0])) == pytest.approx((2.0, 2.0 - half, 2.0 + half))


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, *(pytest.param(count, marks=pytest.mark.slow) for count in (3, 6))])
def test_the_interval_covers_the_truth_in_95_percent_of_cases(count: int) -> None:
    draws, truth = 3000, 0.7
    samples = np.random.default_rng(7).normal(truth, 0.4, (draws, count))
    intervals = np.array([interval(values) for values in samples])
    covered = np.mean((intervals[:, 1] <= truth) & (truth <= intervals[:, 2]))
    # 4.5 standard errors of a frequency, exceeded with probability 7e-6.
    assert abs(covered - 0.95) <= 4.5 * np.sqrt(0.95 * 0.05 / draws)


def test_a_summary_has_the_mean_over_seeds_and_its_interval() -> None:
    values = {("a", 1.0): (0.9, 0.8, 0.7), ("a", 2.0): (0.5, 0.6), ("b", 1.0): (0.25,)}
    summary = summary_table(points(values)["points"]).to_dict("records")
    assert [(row["panel"], row["series"], row["x"], row["seeds"]) for row in summary] == [
        ("digits", "a", 1.0, 3),
        ("digits", "a", 2.0, 2),
        ("digits", "b", 1.0, 1),
    ]
    for row, own in zip(summary, values.values(), strict=True):
        assert (row["mean"], row["low"], row["high"]) == interval(np.array(own))


def test_a_summary_of_another_column_by_other_columns() -> None:
    summary = summary_table(TABLE, "y", by=("kind",))
    assert list(summary.columns) == ["kind", "mean", "low", "high", "seeds"]
    assert [(row["kind"], row["mean"], row["seeds"]) for row in summary.to_dict("records")] == [
        ("a", 1.0, 2),
        ("b", 0.25, 1),
    ]


def test_a_summary_of_nothing_has_columns_and_no_rows() -> None:
    summary = summary_table(where(TABLE, kind="c"), "y", by=("kind",))
    assert summary.empty
    assert list(summary.columns) == ["kind", "mean", "low", "high", "seeds"]
