"""Figs. 6 and 7: test accuracy against the expected share of stragglers, and against the coded samples that make up for them.

The bandwidth sets the share of stragglers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from codedfl.paper._claims import Claim, Evidence, above, accuracies, higher, lower, places, rising
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._figure import Figure
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import MNIST, Scope
from codedfl.paper._tables import Tables

RATIOS = (0.1, 0.3, 0.5)
TRAINING_TIME_S = {"mnist": 10_000.0, "cifar10": 20_000.0, "digits": 100.0}
ON_DEVICES = ("SCFL", "FedAvg", "CodedFedL")
CODED_SAMPLES = {"mnist": (2_500, 5_000, 10_000, 20_000), "digits": (250, 1000, 4000)}
LINES = {ratio: f"{ratio:.0%} stragglers" for ratio in RATIOS}


def _runs_by_ratio(scope: Scope) -> Sequence[FigureRun]:
    """Train at every ratio; DP-CFL trains without the devices, so one run serves all ratios."""
    wanted = []
    for setup in scope.setups:
        time = TRAINING_TIME_S[setup.name]
        wanted += [
            run_of(setup, series, ratio, fleet__straggler_ratio=ratio, training__total_time_s=time)
            for series in ON_DEVICES
            for ratio in RATIOS
        ]
        wanted += [run_of(setup, "DP-CFL", ratio, read_at_s=time) for ratio in RATIOS]
    return wanted


def _loses_least(tables: Tables, panel: str) -> list[Evidence]:
    first, *_, last = places(tables, panel, *ON_DEVICES)
    lost = {name: accuracies(tables, panel, name, first) - accuracies(tables, panel, name, last) for name in ON_DEVICES}
    return [
        above(f"loss from {first:.0%} to {last:.0%} stragglers: {name} over SCFL", lost[name], lost["SCFL"])
        for name in ("FedAvg", "CodedFedL")
    ]


FIG_STRAGGLERS = Figure(
    name="fig-stragglers",
    title="Test accuracy with different shares of stragglers",
    place="Fig. 6",
    runs=_runs_by_ratio,
    draw=line_figure(Axis("expected share of stragglers", percent=True)),
    claims=(
        Claim("all methods lose accuracy when there are more stragglers", rising(*ON_DEVICES, falling=True)),
        Claim("SCFL achieves the best test accuracy", higher("SCFL", "FedAvg", "DP-CFL", "CodedFedL")),
        Claim("SCFL loses least as stragglers increase", _loses_least),
        Claim("CodedFedL achieves the lowest test accuracy", lower("CodedFedL", "SCFL", "FedAvg", "DP-CFL")),
    ),
)


def _runs_by_coded_samples(scope: Scope) -> Sequence[FigureRun]:
    """Train SCFL for every number of coded samples, at several ratios of stragglers."""
    setup = scope.only(MNIST)
    return [
        replace(
            run_of(
                setup,
                "SCFL",
                coded,
                coding__coded_samples=coded,
                fleet__straggler_ratio=ratio,
                training__total_time_s=TRAINING_TIME_S[setup.name],
            ),
            series=line,
        )
        for ratio, line in LINES.items()
        for coded in CODED_SAMPLES[setup.name]
    ]


def _needs_more(tables: Tables, panel: str) -> list[Evidence]:
    least, *_, most = places(tables, panel, *LINES.values())
    gain = {
        line: accuracies(tables, panel, line, most) - accuracies(tables, panel, line, least) for line in LINES.values()
    }
    return [
        above(f"gain from c = {least:g} to {most:g}: {more} over {fewer}", gain[more], gain[fewer])
        for fewer, more in pairwise(LINES.values())
    ]


FIG_CODED_SAMPLES = Figure(
    name="fig-coded-samples",
    title="Test accuracy of SCFL with different numbers of coded samples",
    place="Fig. 7",
    runs=_runs_by_coded_samples,
    draw=line_figure(Axis("coded samples of a device", logarithmic=True)),
    claims=(
        Claim("more coded data gives a higher test accuracy", rising(*LINES.values())),
        Claim("more coded data is needed, and helps more, when there are more stragglers", _needs_more),
    ),
)
