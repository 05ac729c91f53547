"""A figure or table of the paper: its runs as data, its claims as predicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from codedfl.experiment import Config
from codedfl.paper._claims import Claim
from codedfl.paper._executor import Outcomes
from codedfl.paper._jobs import Computation
from codedfl.paper._runs import FigureRun
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Row, Tables, summary_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure as MplFigure


def no_runs(scope: Scope) -> Sequence[FigureRun]:  # noqa: ARG001
    """Ask for no training."""
    return ()


def no_measurements(scope: Scope) -> Sequence[Config]:  # noqa: ARG001
    """Ask for nothing but training."""
    return ()


def points_table(outcomes: Outcomes) -> pd.DataFrame:
    """Return one row per run and seed, with its accuracy at the time that counts."""
    return pd.DataFrame(
        {
            "panel": run.panel,
            "series": run.series,
            "x": run.x,
            "seed": seed,
            "accuracy": record.accuracy(run.read_at_s),
            "last_accuracy": record.at(run.read_at_s).last_accuracy,
            "loss_gap": record.at(run.read_at_s).gap,
            "time_s": record.at(run.read_at_s).time_s,
            "stragglers": record.stragglers,
            "step_size": record.scale,
            "status": record.status,
        }
        for run, records in outcomes.records.items()
        for seed, record in zip(outcomes.seeds, records, strict=True)
    )


def steps_table(outcomes: Outcomes) -> pd.DataFrame:
    """Return how the step size of each run was chosen, one row per candidate."""
    return pd.DataFrame(
        {
            "panel": run.panel,
            "series": run.series,
            "x": run.x,
            "step_size": trial.scale,
            "validation_accuracy": trial.score,
            "chosen": trial.scale == choice.scale,
        }
        for run, choice in outcomes.choices.items()
        for trial in choice.trials
    )


def accuracy_tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return accuracy by panel, series and x: every run, the mean over seeds, and how step sizes were chosen."""
    points = points_table(outcomes)
    return {"points": points, "summary": summary_table(points), "step-sizes": steps_table(outcomes)}


@dataclass(frozen=True)
class Figure:
    """A figure or table of the paper.

    Args:
        name: its name on the command line.
        title: what it shows.
        place: where it is in the paper.
        claims: what the paper says about it.
        runs: the training runs that it needs.
        measurement: what it measures besides training; None if nothing.
        measured: the configurations to measure that in.
        tables: its numbers, from the outcomes of runs and measurements.
        draw: its picture, from the tables alone; None for a table.
    """

    name: str
    title: str
    place: str
    claims: Sequence[Claim] = ()
    runs: Callable[[Scope], Sequence[FigureRun]] = no_runs
    measurement: Computation[list[Row]] | None = None
    measured: Callable[[Scope], Sequence[Config]] = no_measurements
    tables: Callable[[Scope, Outcomes], Tables] = accuracy_tables
    draw: Callable[[Tables], MplFigure] | None = None
