"""Fig. 7: test accuracy of SCFL against the number of coded samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from codedfl.paper._claims import Claim, Evidence, above, accuracies, places, rising
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._fig_stragglers import RATIOS, TRAINING_TIME_S
from codedfl.paper._figure import Figure
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import MNIST, Scope
from codedfl.paper._tables import Tables

CODED_SAMPLES = {"mnist": (2_500, 5_000, 10_000, 20_000), "digits": (250, 1000, 4000)}
LINES = {ratio: f"{ratio:.0%} stragglers" for ratio in RATIOS}


def runs(scope: Scope) -> Sequence[FigureRun]:
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
    runs=runs,
    draw=line_figure(Axis("coded samples of a device", logarithmic=True)),
    claims=(
        Claim("more coded data gives a higher test accuracy", rising(*LINES.values())),
        Claim("more coded data is needed, and helps more, when there are more stragglers", _needs_more),
    ),
)
