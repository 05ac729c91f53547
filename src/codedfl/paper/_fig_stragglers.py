"""Fig. 6: test accuracy against the expected share of stragglers, set by the bandwidth."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.paper._claims import Claim, Evidence, above, accuracies, higher, lower, places, rising
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._figure import Figure
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Tables

RATIOS = (0.1, 0.3, 0.5)
TRAINING_TIME_S = {"mnist": 10_000.0, "cifar10": 20_000.0, "digits": 100.0}
ON_DEVICES = ("SCFL", "FedAvg", "CodedFedL")


def runs(scope: Scope) -> Sequence[FigureRun]:
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
    runs=runs,
    draw=line_figure(Axis("expected share of stragglers", percent=True)),
    claims=(
        Claim("all methods lose accuracy when there are more stragglers", rising(*ON_DEVICES, falling=True)),
        Claim("SCFL achieves the best test accuracy", higher("SCFL", "FedAvg", "DP-CFL", "CodedFedL")),
        Claim("SCFL loses least as stragglers increase", _loses_least),
        Claim("CodedFedL achieves the lowest test accuracy", lower("CodedFedL", "SCFL", "FedAvg", "DP-CFL")),
    ),
)
