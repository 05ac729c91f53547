"""Claims of the paper, the rule that decides them, and the comparisons that several claims share.

A claim is a list of comparisons. Each compares two quantities on the same seeds: the mean difference, signed so that the claim
predicts a positive one, has a 95% interval by Student's t. The comparison *holds* if the whole interval is above the least
difference that the claim needs, *fails* if the whole interval is below it, and is *open* otherwise. A claim is *confirmed* if
all of its comparisons hold, *not confirmed* if none does, and *partly* confirmed otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from codedfl.paper._tables import Tables, column, interval, where
from codedfl.typing import FloatArray

NOISE = 0.002
"""A smaller loss does not count as a fall: two standard errors of an accuracy of 95% on 10,000 test samples are 0.4%."""

Finding = Literal["holds", "fails", "open"]
Verdict = Literal["confirmed", "partly", "not confirmed"]


@dataclass(frozen=True)
class Evidence:
    """One comparison.

    Args:
        what: the comparison in words.
        difference: the mean difference; positive if it supports the claim.
        low: lower end of its interval.
        high: upper end of its interval.
        least: the value that the difference must exceed.
        exact: whether the comparison is computed, not estimated; the difference is then 1 if it holds and -1 if not.
    """

    what: str
    difference: float
    low: float
    high: float
    least: float = 0.0
    exact: bool = False

    @property
    def finding(self) -> Finding:
        """Whether the comparison holds."""
        return "holds" if self.low > self.least else "fails" if self.high <= self.least else "open"


Judge = Callable[[Tables, str], Sequence[Evidence]]
"""Finds the evidence for a claim in the tables of a figure, for one panel."""


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and how to judge it.

    Args:
        text: the claim in words.
        judge: finds the evidence for one panel.
        panels: the panels that the claim is about; empty for all.
    """

    text: str
    judge: Judge
    panels: tuple[str, ...] = ()


def verdict_of(evidence: Sequence[Evidence]) -> Verdict:
    """Decide a claim.

    Example:
        >>> verdict_of([Evidence("a over b", 0.02, 0.01, 0.03), Evidence("a over c", 0.0, -0.01, 0.01)])
        'partly'
    """
    holding = [item.finding == "holds" for item in evidence]
    return "confirmed" if all(holding) and holding else "partly" if any(holding) else "not confirmed"


def above(what: str, one: FloatArray, other: FloatArray, *, least: float = 0.0) -> Evidence:
    """Test that one quantity exceeds another by more than ``least``."""
    return Evidence(what, *interval(one - other), least)


def alike(what: str, one: FloatArray, other: FloatArray, *, margin: float) -> Evidence:
    """Test that two quantities differ by less than a margin."""
    mean, low, high = interval(one - other)
    nearest = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    return Evidence(
        f"{what} (margin minus distance)", margin - abs(mean), margin - max(abs(low), abs(high)), margin - nearest
    )


def exactly(what: str, holds: bool) -> Evidence:
    """Record whether a computed statement is true."""
    value = 1.0 if holds else -1.0
    return Evidence(what, value, value, value, exact=True)


def accuracies(tables: Tables, panel: str, series: str, x: float) -> FloatArray:
    """Return the accuracies of one point, one per seed."""
    return column(tables["points"], "accuracy", panel=panel, series=series, x=x)


def places(tables: Tables, panel: str, *series: str) -> list[float]:
    """Return the sorted x values at which all of these series have points."""
    found = [set(where(tables["points"], panel=panel, series=name)["x"]) for name in series]
    return sorted(map(float, set.intersection(*found)))


def higher(one: str, *others: str, least: float = 0.0, among: Callable[[float], bool] = lambda _: True) -> Judge:
    """Judge that one series is above the others at every x (or at those that count)."""

    def judge(tables: Tables, panel: str) -> list[Evidence]:
        return [
            above(
                f"{one} over {other}{_at(tables, panel, x)}",
                accuracies(tables, panel, one, x),
                accuracies(tables, panel, other, x),
                least=least,
            )
            for other in others
            for x in places(tables, panel, one, other)
            if among(x)
        ]

    return judge


def lower(one: str, *others: str) -> Judge:
    """Judge that one series is below the others at every x."""

    def judge(tables: Tables, panel: str) -> list[Evidence]:
        return [item for other in others for item in higher(other, one)(tables, panel)]

    return judge


def rising(*lines: str, falling: bool = False) -> Judge:
    """Judge that series rise (or fall) from their first point to their last, without a step the other way."""

    def judge(tables: Tables, panel: str) -> list[Evidence]:
        evidence = []
        for series in lines:
            xs = places(tables, panel, series)
            if falling:
                xs.reverse()
            at = {x: accuracies(tables, panel, series, x) for x in xs}
            evidence.append(above(f"{series}: at {xs[-1]:g} over at {xs[0]:g}", at[xs[-1]], at[xs[0]]))
            evidence += [
                above(f"{series}: at {after:g} not below at {before:g}", at[after], at[before], least=-NOISE)
                for before, after in pairwise(xs)
                if len(xs) > 2
            ]
        return evidence

    return judge


def _at(tables: Tables, panel: str, x: float) -> str:
    return f" at {x:g}" if where(tables["points"], panel=panel)["x"].nunique() > 1 else ""
