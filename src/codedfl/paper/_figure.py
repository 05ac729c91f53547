"""A figure or table of the paper: its runs as data, its claims as predicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from codedfl.experiment import Config
from codedfl.paper._claims import Claim
from codedfl.paper._executor import Outcomes
from codedfl.paper._runs import Run
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Tables, points_table, steps_table, summary_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def no_runs(scope: Scope) -> Sequence[Run]:  # noqa: ARG001
    """Ask for no training at all."""
    return ()


def nothing_measured(scope: Scope) -> Sequence[Config]:  # noqa: ARG001
    """Ask for nothing but training."""
    return ()


def accuracy_tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return accuracy by panel, line and place: every run, the mean over seeds, and how step sizes were chosen."""
    points = points_table(outcomes)
    return {"points": points, "summary": summary_table(points), "step-sizes": steps_table(outcomes)}


@dataclass(frozen=True)
class Item:
    """A figure or table.

    Args:
        name: by which the command line calls it.
        title: what it shows.
        place: where it is in the paper.
        claims: what the paper says about it.
        runs: the training runs that it needs.
        measured: the configurations to measure something else in; `codedfl.paper._jobs.MEASURES` has what, by ``name``.
        tables: the numbers, from those runs or computed on the spot.
        draw: the picture, from the tables alone; None for a table.
    """

    name: str
    title: str
    place: str
    claims: Sequence[Claim] = ()
    runs: Callable[[Scope], Sequence[Run]] = no_runs
    measured: Callable[[Scope], Sequence[Config]] = nothing_measured
    tables: Callable[[Scope, Outcomes], Tables] = accuracy_tables
    draw: Callable[[Tables], Figure] | None = None
