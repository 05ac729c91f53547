from __future__ import annotations

from itertools import product

import numpy as np
import pandas as pd
import pytest

from codedfl.paper import Evidence
from codedfl.paper._claims import (
    NOISE,
    Finding,
    Judge,
    Verdict,
    above,
    accuracies,
    alike,
    exactly,
    higher,
    lower,
    places,
    rising,
    verdict_of,
)
from codedfl.paper._tables import interval
from tests.paper.made_up import points

HOLDS, FAILS, OPEN = (
    Evidence("yes", 0.02, 0.01, 0.03),
    Evidence("no", -0.02, -0.03, -0.01),
    Evidence("?", 0.0, -0.01, 0.01),
)


def test_a_single_seed_counts_as_it_is() -> None:
    assert interval(np.array([0.25])) == (0.25, 0.25, 0.25)
    assert above("one seed", np.array([0.9]), np.array([0.8])).finding == "holds"
    assert above("one seed", np.array([0.8]), np.array([0.9])).finding == "fails"
    assert above("one seed", np.array([0.9]), np.array([0.9])).finding == "fails", "no difference is not above"


@pytest.mark.parametrize(
    ("low", "high", "least", "finding"),
    [
        (0.01, 0.03, 0.0, "holds"),
        (0.0, 0.03, 0.0, "open"),
        (-0.01, 0.01, 0.0, "open"),
        (-0.03, 0.0, 0.0, "fails"),
        (-0.03, -0.01, 0.0, "fails"),
        (0.01, 0.03, 0.01, "open"),
        (0.01, 0.03, 0.03, "fails"),
        (0.011, 0.03, 0.01, "holds"),
        (-0.001, 0.03, -0.002, "holds"),
        (-0.003, -0.002, -0.002, "fails"),
    ],
)
def test_a_comparison_is_decided_by_its_whole_interval(low: float, high: float, least: float, finding: Finding) -> None:
    assert Evidence("x", (low + high) / 2, low, high, least).finding == finding


@pytest.mark.parametrize("evidence", [e for n in (1, 2, 3) for e in product((HOLDS, FAILS, OPEN), repeat=n)])
def test_a_verdict_counts_what_holds(evidence: tuple[Evidence, ...]) -> None:
    holding = evidence.count(HOLDS)
    expected: Verdict = "partly"
    if holding == len(evidence):
        expected = "confirmed"
    if holding == 0:
        expected = "not confirmed"
    assert verdict_of(evidence) == expected


def test_without_evidence_nothing_is_confirmed() -> None:
    assert verdict_of([]) == "not confirmed"


def test_above_compares_seed_by_seed() -> None:
    luck = np.array([0.0, 0.1, -0.1, 0.2])  # shared by both, so that it cancels
    other = 0.5 + luck
    one = other + np.array([0.010, 0.012, 0.011, 0.013])
    found = above("paired", one, other)
    assert found.finding == "holds"
    assert found.difference == pytest.approx(0.0115)
    assert (found.low, found.high) == pytest.approx(interval(one - other)[1:])
    assert above("paired", other, one).finding == "fails"
    assert above("not paired", one, other[::-1]).finding == "open"


@pytest.mark.parametrize(("least", "finding"), [(0.005, "holds"), (0.0115, "open"), (0.02, "fails")])
def test_above_by_a_least_difference(least: float, finding: Finding) -> None:
    one = np.array([0.010, 0.012, 0.011, 0.013])
    found = above("by more", one, np.zeros(4), least=least)
    assert (found.finding, found.least, found.what) == (finding, least, "by more")
    assert found.difference == pytest.approx(0.0115), "the difference itself, not what it exceeds"


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("differences", "finding"),
    [
        ((0.001, -0.001, 0.0005), "holds"),
        ((0.004, 0.005, 0.006), "holds"),
        ((0.02, 0.021, 0.022), "fails"),
        ((0.009, 0.010, 0.011), "open"),
        ((0.05, -0.05, 0.0), "open"),
    ],
)
def test_two_are_alike_if_their_difference_is_within_the_margin(
    sign: int, differences: tuple[float, ...], finding: Finding
) -> None:
    one = np.array([0.9, 0.8, 0.85])
    found = alike("both", one, one + sign * np.array(differences), margin=0.01)
    assert found.finding == finding
    assert found.low <= found.difference <= found.high
    mean, low, high = interval(sign * np.array(differences))
    assert found.difference == pytest.approx(0.01 - abs(mean))
    assert found.low == pytest.approx(0.01 - max(abs(low), abs(high)))
    assert found.high == pytest.approx(0.01 if low <= 0 <= high else 0.01 - min(abs(low), abs(high)))


def test_what_is_computed_holds_or_fails() -> None:
    yes, no = exactly("two is even", True), exactly("two is odd", False)
    assert (yes.finding, no.finding) == ("holds", "fails")
    assert (yes.what, no.what) == ("two is even", "two is odd")
    assert yes.exact
    assert no.exact
    assert not above("measured", np.ones(2), np.zeros(2)).exact


GOOD, BAD, WILD = (0.90, 0.91, 0.92), (0.80, 0.81, 0.82), (0.95, 0.70, 0.90)
"""Accuracies of three seeds; the last are all over the place."""


def findings(judge: Judge, tables: dict[str, pd.DataFrame], panel: str = "digits") -> list[str]:
    return [item.finding for item in judge(tables, panel)]


def line(series: str, *values: float) -> dict[tuple[str, float], tuple[float, ...]]:
    """Return a line with points at 1, 2, ... whose seeds differ by a tenth of a thousandth."""
    return {(series, float(x)): (y, y + 1e-4, y - 1e-4) for x, y in enumerate(values, 1)}


def test_a_line_above_another_is_higher() -> None:
    tables = points({("a", 1.0): GOOD, ("b", 1.0): BAD})
    assert findings(higher("a", "b"), tables) == ["holds"]
    assert findings(higher("b", "a"), tables) == ["fails"]
    assert findings(lower("b", "a"), tables) == ["holds"]
    assert findings(lower("a", "b"), tables) == ["fails"]


def test_what_is_all_over_the_place_is_open() -> None:
    tables = points({("a", 1.0): GOOD, ("wild", 1.0): WILD})
    for judge in (higher("a", "wild"), lower("a", "wild"), higher("wild", "a")):
        assert findings(judge, tables) == ["open"]


def test_higher_compares_with_each_of_the_others_at_each_place() -> None:
    tables = points({**line("a", 0.9, 0.8), **line("b", 0.8, 0.9), **line("c", 0.1, 0.1)})
    assert findings(higher("a", "b", "c"), tables) == ["holds", "fails", "holds", "holds"]
    assert [item.what for item in higher("a", "b")(tables, "digits")] == ["a over b at 1", "a over b at 2"]
    assert findings(lower("c", "a", "b"), tables) == ["holds"] * 4


def test_with_one_place_it_is_not_mentioned() -> None:
    tables = points({("a", 0.0): GOOD, ("b", 0.0): BAD})
    assert [item.what for item in higher("a", "b")(tables, "digits")] == ["a over b"]


def test_higher_by_a_least_difference_where_it_counts() -> None:
    tables = points({**line("a", 0.90, 0.90, 0.90), **line("b", 0.89, 0.85, 0.91)})
    assert findings(higher("a", "b"), tables) == ["holds", "holds", "fails"]
    assert findings(higher("a", "b", least=0.02), tables) == ["fails", "holds", "fails"]
    assert findings(higher("a", "b", least=0.02, among=lambda x: x == 2), tables) == ["holds"]
    assert findings(higher("a", "b", among=lambda x: x > 5), tables) == []


def test_lines_are_compared_where_both_have_points() -> None:
    tables = points({**line("a", 0.9, 0.9, 0.9), ("b", 2.0): BAD, ("b", 7.0): BAD})
    assert places(tables, "digits", "a", "b") == [2.0]
    assert places(tables, "digits", "b") == [2.0, 7.0]
    assert findings(higher("a", "b"), tables) == ["holds"]


def test_places_are_in_order_whatever_the_order_of_the_rows() -> None:
    tables = points({("a", x): GOOD for x in (3.0, 1.0, 2.0)})
    assert places(tables, "digits", "a") == [1.0, 2.0, 3.0]


def test_panels_are_judged_apart() -> None:
    one, other = points({("a", 1.0): GOOD, ("b", 1.0): BAD}), points({("a", 1.0): BAD, ("b", 1.0): GOOD}, "mnist")
    tables = {"points": pd.concat([one["points"], other["points"]])}
    assert findings(higher("a", "b"), tables) == ["holds"]
    assert findings(higher("a", "b"), tables, "mnist") == ["fails"]
    assert list(accuracies(tables, "mnist", "a", 1.0)) == list(BAD)


def test_a_line_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="nobody"):
        accuracies(points({("a", 1.0): GOOD}), "digits", "nobody", 1.0)


def test_a_rising_line_rises_and_does_not_fall() -> None:
    up, down = points(line("a", 0.5, 0.6, 0.7)), points(line("a", 0.7, 0.6, 0.5))
    assert findings(rising("a"), up) == ["holds"] * 3, "from first to last, and two steps"
    assert findings(rising("a", falling=True), down) == ["holds"] * 3
    assert findings(rising("a"), down) == ["fails"] * 3
    assert findings(rising("a", falling=True), up) == ["fails"] * 3


def test_a_line_with_a_step_the_other_way_does_not_rise_throughout() -> None:
    tables = points(line("a", 0.5, 0.7, 0.6))
    assert findings(rising("a"), tables) == ["holds", "holds", "fails"]
    assert findings(rising("a", falling=True), tables) == ["fails", "holds", "fails"], "read from the right"


def test_a_small_step_the_other_way_is_no_fall() -> None:
    tables = points(line("a", 0.5, 0.6, 0.6 - NOISE / 4))
    assert findings(rising("a"), tables) == ["holds", "holds", "holds"]
    assert findings(rising("a"), points(line("a", 0.5, 0.6, 0.6 - 2 * NOISE))) == ["holds", "holds", "fails"]


def test_two_points_are_compared_once() -> None:
    assert findings(rising("a"), points(line("a", 0.5, 0.6))) == ["holds"]


def test_a_level_line_neither_rises_nor_falls() -> None:
    tables = points({("a", float(x)): GOOD for x in (1, 2, 3)})
    assert findings(rising("a"), tables) == ["fails", "holds", "holds"]
    assert findings(rising("a", falling=True), tables) == ["fails", "holds", "holds"]


def test_several_lines_are_judged_one_after_the_other_and_may_be_open() -> None:
    tables = points({**line("a", 0.5, 0.6), ("b", 1.0): GOOD, ("b", 2.0): WILD})
    assert findings(rising("a", "b"), tables) == ["holds", "open"]
    assert [item.what for item in rising("a", "b", falling=True)(tables, "digits")] == [
        "a: at 1 over at 2",
        "b: at 1 over at 2",
    ]
