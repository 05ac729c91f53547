"""Fig. 3: test accuracy against training latency, on the paper's clock and with the coded upload included."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure as MplFigure
from matplotlib.ticker import MaxNLocator

from codedfl.paper._claims import Claim, Evidence, above, accuracies, alike, higher, lower
from codedfl.paper._drawing import HEIGHT, PANEL_WIDTH, TITLES, Axis, accuracy_range, add_legend, draw_lines
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure, accuracy_tables
from codedfl.paper._runs import SERIES, FigureRun, run_of
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Tables, column, summary_table, where
from codedfl.plotting import new_figure
from codedfl.typing import FloatArray

SIMILAR = 0.01
"""Accuracies that differ by less count as similar."""


def runs(scope: Scope) -> Sequence[FigureRun]:
    """Train every scheme in the setting of Sec. VI-A."""
    return [run_of(setup, series) for setup in scope.setups for series in SERIES]


def tables(scope: Scope, outcomes: Outcomes) -> Tables:
    """Return the final accuracy and the learning curves."""
    curves = pd.DataFrame(
        {
            "panel": run.panel,
            "series": run.series,
            "time_s": point.time_s,
            "charged_s": point.charged_s,
            "seed": seed,
            "accuracy": point.accuracy,
            "last_accuracy": point.last_accuracy,
        }
        for run, records in outcomes.records.items()
        for seed, record in zip(outcomes.seeds, records, strict=True)
        for point in record.curve
    )
    by = ("panel", "series", "time_s")
    mean = summary_table(curves, by=by).assign(charged_s=summary_table(curves, "charged_s", by)["mean"])
    return {**accuracy_tables(scope, outcomes), "curves": curves, "mean-curves": mean}


def _along(tables: Tables, panel: str, series: str) -> FloatArray:
    """Return the accuracy averaged over the training time, one value per seed."""
    own = where(tables["curves"], panel=panel, series=series)
    return np.array([np.mean(column(own, "accuracy", seed=seed)) for seed in own["seed"].unique()])


def _faster(tables: Tables, panel: str) -> list[Evidence]:
    adaptive, fixed = (_along(tables, panel, series) for series in ("SCFL", "SCFL (b=32)"))
    return [above("accuracy averaged over time: SCFL over SCFL (b=32)", adaptive, fixed)]


def _similar(tables: Tables, panel: str) -> list[Evidence]:
    ends = [accuracies(tables, panel, series, 0.0) for series in ("DP-CFL", "FedAvg")]
    return [alike(f"DP-CFL and FedAvg within {SIMILAR:.0%}", *ends, margin=SIMILAR)]


def draw_curves(tables: Tables) -> MplFigure:
    """Draw learning curves: one row per clock, one column per task."""
    table = tables["mean-curves"]
    panels = table["panel"].unique()
    clocks = (
        Axis("simulated training time (s): the paper's clock", column="time_s"),
        Axis("the same with encoding and upload charged (s)", column="charged_s"),
    )
    late = 0.1 * table["time_s"].max()  # from where on the schemes differ
    figure = new_figure(PANEL_WIDTH * len(panels) + 0.4, HEIGHT * len(clocks))
    for line, axis in enumerate(clocks):
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(len(clocks), len(panels), line * len(panels) + place + 1)
            own = where(table, panel=panel)
            draw_lines(axes, own, axis, markers=False)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(*accuracy_range(list(own["mean"][own["time_s"] >= late])))
            if line == 0:
                axes.set_title(TITLES.get(panel, panel), loc="left", fontsize=11)
    add_legend(figure, table)
    return figure


FIG_CONVERGENCE = Figure(
    name="fig-convergence",
    title="Test accuracy against training latency",
    place="Fig. 3",
    runs=runs,
    tables=tables,
    draw=draw_curves,
    claims=(
        Claim(
            "SCFL achieves the highest test accuracy within the given training time",
            higher("SCFL", "FedAvg", "DP-CFL", "CodedFedL", "CodedFedL, no noise"),
        ),
        Claim("batch adaptation further accelerates convergence", _faster),
        Claim("CodedFedL achieves the lowest test accuracy", lower("CodedFedL", "SCFL", "FedAvg", "DP-CFL")),
        Claim(
            "even without noise, CodedFedL is worse than the other schemes",
            lower("CodedFedL, no noise", "SCFL", "FedAvg", "DP-CFL"),
        ),
        Claim("DP-CFL achieves a similar test accuracy with FedAvg", _similar),
    ),
)
