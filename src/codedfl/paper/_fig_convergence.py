"""Fig. 3: test accuracy against training latency, on the paper's clock and with the coded upload charged."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codedfl.paper._claims import Claim, Evidence, above, accuracies, alike, higher, lower
from codedfl.paper._drawing import draw_curves
from codedfl.paper._executor import Outcomes
from codedfl.paper._figure import Figure, accuracy_tables
from codedfl.paper._runs import SERIES, Run, run_of
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Table, Tables, summary_table
from codedfl.typing import FloatArray

SIMILAR = 0.01
"""Accuracies that differ by less are called similar."""


def runs(scope: Scope) -> Sequence[Run]:
    """Train every scheme in the setting of Sec. VI-A."""
    return [run_of(setup, series) for setup in scope.setups for series in SERIES]


def tables(scope: Scope, outcomes: Outcomes) -> Tables:
    """Return the accuracy at the end and along the way."""
    curves = Table(
        [
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
        ]
    )
    by = ("panel", "series", "time_s")
    charged = summary_table(curves, "charged_s", by)
    mean = [
        {**row, "charged_s": other["mean"]} for row, other in zip(summary_table(curves, by=by), charged, strict=True)
    ]
    return {**accuracy_tables(scope, outcomes), "curves": curves, "mean-curves": Table(mean)}


def _along(tables: Tables, panel: str, series: str) -> FloatArray:
    """Return the accuracy averaged over the training time, for each seed."""
    own = tables["curves"].where(panel=panel, series=series)
    return np.array([np.mean(own.column("accuracy", seed=seed)) for seed in own.distinct("seed")])


def _faster(tables: Tables, panel: str) -> list[Evidence]:
    adaptive, fixed = (_along(tables, panel, series) for series in ("SCFL", "SCFL (b=32)"))
    return [above("accuracy averaged over time: SCFL over SCFL (b=32)", adaptive, fixed)]


def _similar(tables: Tables, panel: str) -> list[Evidence]:
    ends = [accuracies(tables, panel, series, 0.0) for series in ("DP-CFL", "FedAvg")]
    return [alike(f"DP-CFL and FedAvg within {SIMILAR:.0%}", *ends, margin=SIMILAR)]


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
