"""Fig. 5: the number of local steps. The batch is fixed (b = 32), since uplink failures only appear with a fixed batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codedfl.paper._claims import Claim, Evidence, above, accuracies, places
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._figure import Figure
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Tables

GOOD, POOR = "good channel", "poor channel"
MEAN_GAINS = {GOOD: 1e-8, POOR: 4e-9}
"""The default, and 40% of it: the paper does not give the poor one."""

LOCAL_STEPS = {"mnist": (1, 3, 5, 9), "cifar10": (1, 3, 5, 7), "digits": (1, 3, 10, 20)}
"""Up to the number at which a batch of 32 barely fits into a round."""


def runs(scope: Scope) -> Sequence[FigureRun]:
    """Train SCFL with b = 32 and the server's batch as large as its time allows, in two channels."""
    return [
        replace(
            run_of(
                setup,
                "SCFL (b=32)",
                tau,
                training__local_steps=tau,
                training__server_batch=0,
                fleet__mean_gain=gain,
                fleet__straggler_ratio=0.0,
            ),
            series=channel,
        )
        for setup in scope.setups
        for channel, gain in MEAN_GAINS.items()
        for tau in LOCAL_STEPS[setup.name]
    ]


def _helps(tables: Tables, panel: str) -> list[Evidence]:
    return [
        above(f"{line}: tau = 3 over 1", *(accuracies(tables, panel, line, tau) for tau in (3, 1)))
        for line in MEAN_GAINS
    ]


def _drops(tables: Tables, panel: str) -> list[Evidence]:
    return [
        above(f"{line}: tau = 3 over {tau:g}", *(accuracies(tables, panel, line, x) for x in (3, tau)))
        for line in MEAN_GAINS
        for tau in places(tables, panel, line)
        if tau > 3
    ]


def _worse(tables: Tables, panel: str) -> list[Evidence]:
    last = places(tables, panel, GOOD)[-1]
    lost = {line: accuracies(tables, panel, line, 3) - accuracies(tables, panel, line, last) for line in MEAN_GAINS}
    return [above(f"loss from tau = 3 to {last:g}: {POOR} over {GOOD}", lost[POOR], lost[GOOD])]


FIG_TAU = Figure(
    name="fig-tau",
    title="Test accuracy of SCFL with different numbers of local steps",
    place="Fig. 5",
    runs=runs,
    draw=line_figure(Axis("local steps in a round", whole=True)),
    claims=(
        Claim("slightly more local steps (from 1 to 3) improve the model", _helps),
        Claim("beyond 3 the accuracy drops drastically", _drops),
        Claim("it degrades more when the channel is poor", _worse),
    ),
)
