"""Comparisons that several claims make, on the table ``points`` of a figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from codedfl.paper._claims import Evidence, above
from codedfl.paper._tables import Tables
from codedfl.typing import FloatArray

Judge = Callable[[Tables, str], Sequence[Evidence]]

NOISE = 0.002
"""A step that loses less than this is no fall: two standard errors of an accuracy of 95% on 10,000 test samples are 0.4%."""


def accuracies(tables: Tables, panel: str, series: str, x: float) -> FloatArray:
    """Return the accuracy of one point for each seed."""
    return tables["points"].column("accuracy", panel=panel, series=series, x=x)


def places(tables: Tables, panel: str, *series: str) -> list[float]:
    """Return where on the horizontal axis all of these lines have points, in order."""
    found = [tables["points"].where(panel=panel, series=name).distinct("x") for name in series]
    return sorted(float(x) for x in found[0] if all(x in other for other in found[1:]))


def higher(one: str, *others: str, least: float = 0.0, among: Callable[[float], bool] = lambda _: True) -> Judge:
    """One line is above the others everywhere (or where it counts)."""

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
    """One line is below the others everywhere."""

    def judge(tables: Tables, panel: str) -> list[Evidence]:
        return [item for other in others for item in higher(other, one)(tables, panel)]

    return judge


def rising(*lines: str, falling: bool = False) -> Judge:
    """Lines rise (or fall) from their first point to their last, without a step the other way."""

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
    return f" at {x:g}" if len(tables["points"].where(panel=panel).distinct("x")) > 1 else ""
