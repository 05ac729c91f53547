from __future__ import annotations

import csv
import io
import math

import numpy as np
import pytest

from codedfl.paper import Outcomes
from codedfl.paper._claims import interval
from codedfl.paper._tables import Row, Table, points_table, steps_table, summary_table
from codedfl.training import StepSizeChoice, Trial
from tests.paper.made_up import points, record, small_run

TABLE = Table([{"kind": "a", "x": 1, "y": 0.5}, {"kind": "b", "x": 2, "y": 0.25}, {"kind": "a", "x": 2, "y": 1.5}])


def outcomes() -> Outcomes:
    whole, early = small_run("SCFL", 1.0), small_run("DP-CFL", 2.0)
    early = type(early)(early.panel, early.series, early.x, early.config, read_at_s=25.0)
    choice = StepSizeChoice(0.5, (Trial(0.25, 0.8, 1.0), Trial(0.5, 0.9, 0.5)))
    return Outcomes(
        (4, 7),
        {whole: (record(0.9), record(0.8, status="diverged")), early: (record(0.6), record(0.4))},
        {whole: choice, early: choice},
    )


def test_rows_columns_and_values_can_be_asked_for() -> None:
    assert [row["y"] for row in TABLE.where(kind="a")] == [0.5, 1.5]
    assert [row["y"] for row in TABLE.where(kind="a", x=2)] == [1.5]
    assert list(TABLE.column("y", x=2)) == [0.25, 1.5]
    assert TABLE.column("x").dtype == float
    assert TABLE.distinct("kind") == ["a", "b"]
    assert list(TABLE.where(kind="c")) == []
    with pytest.raises(KeyError, match="'kind': 'c'"):
        TABLE.column("y", kind="c")


def test_csv_has_a_header_and_a_line_for_each_row() -> None:
    assert TABLE.to_csv() == "kind,x,y\na,1,0.5\nb,2,0.25\na,2,1.5\n"


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
    assert Table([{"value": value}]).to_csv() == f"value\n{text}\n"


def test_csv_can_be_read_back() -> None:
    rows: list[Row] = [{"series": "CodedFedL, no noise", "x": 0.1}, {"series": "two\nlines", "x": 1e-9}]
    read = list(csv.DictReader(io.StringIO(Table(rows).to_csv(), newline="")))
    assert [(row["series"], float(row["x"])) for row in read] == [(row["series"], row["x"]) for row in rows]


def test_an_empty_table_is_an_empty_file() -> None:
    assert Table([]).to_csv() == ""


def test_points_have_the_accuracy_at_the_time_that_counts() -> None:
    first, diverged, early, other = points_table(outcomes())
    assert (first["series"], first["x"], first["seed"], first["accuracy"]) == ("SCFL", 1.0, 4, 0.9)
    assert (diverged["seed"], diverged["status"], diverged["accuracy"]) == (7, "diverged", 0.1)
    assert (early["time_s"], other["time_s"], other["seed"]) == (20.0, 20.0, 7)
    assert early["accuracy"] == pytest.approx(0.6 * 0.75)
    assert other["accuracy"] == pytest.approx(0.4 * 0.75)
    assert (first["time_s"], first["loss_gap"], first["step_size"], first["stragglers"]) == (40.0, 0.2, 0.5, 0.3)
    assert first["last_accuracy"] == pytest.approx(0.89)
    assert first["panel"] == "digits"


def test_step_sizes_have_a_row_for_each_candidate() -> None:
    rows = steps_table(outcomes()).rows
    assert [(row["series"], row["step_size"], row["chosen"]) for row in rows] == [
        (series, scale, scale == 0.5) for series in ("SCFL", "DP-CFL") for scale in (0.25, 0.5)
    ]
    assert [row["validation_accuracy"] for row in rows] == [0.8, 0.9, 0.8, 0.9]


def test_a_summary_has_the_mean_over_seeds_and_its_interval() -> None:
    values = {("a", 1.0): (0.9, 0.8, 0.7), ("a", 2.0): (0.5, 0.6), ("b", 1.0): (0.25,)}
    summary = summary_table(points(values)["points"])
    assert [(row["panel"], row["series"], row["x"], row["seeds"]) for row in summary] == [
        ("digits", "a", 1.0, 3),
        ("digits", "a", 2.0, 2),
        ("digits", "b", 1.0, 1),
    ]
    for row, own in zip(summary, values.values(), strict=True):
        assert (row["mean"], row["low"], row["high"]) == interval(np.array(own))


def test_a_summary_of_another_column_by_other_columns() -> None:
    summary = summary_table(TABLE, "y", by=("kind",))
    assert [(row["kind"], row["mean"], row["seeds"]) for row in summary] == [("a", 1.0, 2), ("b", 0.25, 1)]
    assert list(summary.rows[0]) == ["kind", "mean", "low", "high", "seeds"]
