from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from codedfl.cli.tables import results_table
from codedfl.experiment import run
from codedfl.results import (
    SCORE,
    TO_95,
    VIEWS,
    Comparison,
    ResultTable,
    columns_of,
    half_width,
    keeping,
    over_seeds,
    summarise,
    table_of,
)
from tests.support import small_config


def row(scheme: str, score: float | None, seconds: float | None = None) -> dict[str, Any]:
    return {"scheme": scheme, "title": scheme.upper(), "accuracy": score, "time_to_95_s": seconds}


@pytest.fixture(scope="module")
def private() -> Comparison:
    found = run(small_config(schemes=["scfl", "ssp"], privacy__epsilon=0.05))
    assert found["scfl"].final.score > found["ssp"].final.score
    assert [found.privacy(name)["covers"] for name in ("scfl", "ssp")] == ["upload", "everything"]
    return found


def test_a_notebook_marks_what_the_terminal_marks_under_an_epsilon(private: Comparison) -> None:
    """The best score is that of a scheme that does not keep the epsilon."""
    weights = re.findall(r"<tr style=\"font-weight:(\w+)\"", private._repr_html_())
    assert weights == ["normal", "bold"]
    assert [str(each.style) for each in results_table(private).rows] == ["", "bold"]


def test_rows_are_those_of_the_summary(private: Comparison) -> None:
    assert [set(each) for each in table_of(private).rows] == [set(each) for each in summarise(private)["schemes"]]


def test_every_column_of_a_run_is_in_its_summary(private: Comparison) -> None:
    row = summarise(private)["schemes"][0]
    for view in ("terminal", "notebook", "means over seeds"):
        for column in (*columns_of(view, "accuracy"), *columns_of(view, "accuracy", private=True)):
            assert column.keys[0].split(".")[0] in row, (view, column.title)


@pytest.mark.parametrize(
    ("kept", "best_score", "soonest"),
    [
        (None, {"a"}, {"b"}),
        (frozenset({"b", "c", "d"}), {"b"}, {"b"}),
        (frozenset("c"), {"c"}, {"c"}),
        (frozenset(), set(), set()),
    ],
)
def test_one_rule_marks_the_best(kept: frozenset[str] | None, best_score: set[str], soonest: set[str]) -> None:
    """A diverged scheme, d, was the soonest to pass the goal."""
    table = ResultTable(
        [row("a", 0.9, 9.0), row("b", 0.8, 5.0), row("c", 0.7, 7.0), row("d", None, 1.0)], "accuracy", 0.95, kept
    )
    assert table.best(SCORE) == best_score
    assert table.best(TO_95) == soonest
    assert table.best(columns_of("terminal", "accuracy")[0]) == frozenset()


def test_all_that_are_equally_good_are_marked() -> None:
    assert ResultTable([row("a", 0.9), row("b", 0.9)], "accuracy", None).best(SCORE) == {"a", "b"}


def test_a_scheme_keeps_an_epsilon_if_it_does_so_in_every_run() -> None:
    rows: list[dict[str, Any]] = [
        {"scheme": "a", "privacy": {"covers": "everything", "epsilon": 2.0}},
        {"scheme": "b", "epsilon": 2.0, "covers": "everything"},
        {"scheme": "a", "privacy": {"covers": "everything", "epsilon": 2.1}},
    ]
    assert keeping(rows, 2.0) == frozenset("b")
    assert keeping(rows, None) is None


def test_an_unbounded_epsilon_is_not_that_of_the_upload() -> None:
    """JSON has null for infinity; the key of the same name at the top is the upload's."""
    (column,) = (column for column in VIEWS["page"] if column.name == "epsilon")
    assert column.value({"privacy": {"epsilon": None}, "epsilon": 3.0}) is None
    assert column.value({"epsilon": 3.0}) == 3.0


@pytest.mark.parametrize(
    ("values", "reference", "cells"),
    [
        ((0.5, 12.0), 0.9, ("0.5000", "12")),
        ((None, None), 0.9, ("diverged", "never")),
        ((None, None), None, ("diverged", "-")),
        ((over_seeds([0.4, 0.6]), over_seeds([10.0, 14.0])), 0.9, ("0.5000", "12")),
        ((over_seeds([0.4, None]), over_seeds([10.0, None, None])), 0.9, ("1 of 2 diverged", "1 of 3")),
        ((over_seeds([None, None]), over_seeds([None, None])), 0.9, ("2 of 2 diverged", "never")),
        ((over_seeds([None]), over_seeds([None])), -0.5, ("diverged", "-")),
    ],
)
def test_what_stands_for_a_value_that_is_not_there(
    values: tuple[Any, Any], reference: float | None, cells: tuple[str, str]
) -> None:
    table = ResultTable([row("a", *values)], "accuracy", reference)
    _, score, _, time, *_ = table.columns("terminal")
    assert (table.text(score, table.rows[0]), table.text(time, table.rows[0])) == cells


@pytest.mark.parametrize(
    ("bounds", "values"),
    [
        ((0.0, 1.0), [0.99, 1.0, 0.9]),
        ((0.0, math.inf), [1.0, 9.0]),
        ((-math.inf, 1.0), [-3.0, 0.9]),
        ((0.0, 1.0), [0.4, 0.41]),
    ],
)
def test_intervals_keep_to_the_range_of_a_quantity(bounds: tuple[float, float], values: list[float]) -> None:
    whole, cut = over_seeds(values), over_seeds(values, bounds)
    half = half_width(np.array(values))
    assert (whole["low"], whole["high"]) == (whole["mean"] - half, whole["mean"] + half)
    assert (cut["low"], cut["high"]) == (max(whole["low"], bounds[0]), min(whole["high"], bounds[1]))
    assert cut["half_width"] == whole["half_width"] == half
    assert bounds[0] <= cut["low"] <= cut["mean"] <= cut["high"] <= bounds[1]


def test_accuracies_times_and_bytes_are_bounded_and_r2_has_no_least() -> None:
    bounds = {column.name: column.bounds for column in columns_of("means of a sweep", "accuracy")}
    assert bounds.pop("score") == bounds.pop("centralised") == (0.0, 1.0)
    assert bounds == dict.fromkeys(
        ("time_to_90_s", "time_to_95_s", "everything_charged_s", "bytes_up"), (0.0, math.inf)
    )
    assert columns_of("means of a sweep", "r2")[0].bounds == (-math.inf, 1.0)
