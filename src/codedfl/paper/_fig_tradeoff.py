"""Fig. 4: the accuracy cost of privacy. The privacy budget is MI-DP for all data (h = 0), in bits."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.paper._claims import Claim, Evidence, above, accuracies, alike, higher, lower, places, rising
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._figure import Figure
from codedfl.paper._runs import FigureRun, run_of
from codedfl.paper._setups import Scope, Setup
from codedfl.paper._tables import Tables
from codedfl.privacy import mi_dp_bits
from codedfl.typing import FloatArray

SCHEMES = ("SCFL", "DP-CFL", "CodedFedL")
NOISE_VARIANCES = {
    "mnist": (10.0, 2.5, 0.25, 0.15, 0.04),
    "cifar10": (10.0, 2.5, 0.25, 0.15, 0.04),
    "digits": (3.0, 0.3, 0.1, 0.01),
}
"""sigma_i^2 of every device: budgets of 5.0, 6.0, 7.6, 8.0 and 9.0 bits at c = 10,000."""

FLAT = 0.005
"""A smaller change counts as a plateau."""


def budget(setup: Setup, noise_variance: float) -> float:
    """Return the MI-DP budget for a noise variance, to two decimals."""
    return round(mi_dp_bits(setup.config.coding.coded_samples, noise_variance), 2)


def runs(scope: Scope) -> Sequence[FigureRun]:
    """Train the three coded schemes at every noise level."""
    return [
        run_of(setup, series, budget(setup, variance), coding__noise_variance=variance)
        for setup in scope.setups
        for series in SCHEMES
        for variance in NOISE_VARIANCES[setup.name]
    ]


def _last_two(tables: Tables, panel: str, series: str) -> tuple[str, FloatArray, FloatArray]:
    """Return the comparison of the two largest budgets in words, and their accuracies, the larger budget first."""
    *_, before, after = places(tables, panel, series)
    text = f"{series}: at {after:g} {{}} at {before:g}"
    return text, accuracies(tables, panel, series, after), accuracies(tables, panel, series, before)


def _still_rising(tables: Tables, panel: str) -> list[Evidence]:
    found = [_last_two(tables, panel, series) for series in SCHEMES]
    return [above(text.format("over"), after, before) for text, after, before in found]


def _flat(tables: Tables, panel: str) -> list[Evidence]:
    found = [_last_two(tables, panel, series) for series in SCHEMES]
    return [
        alike(f"{text.format('and')} within {FLAT:.1%}", after, before, margin=FLAT) for text, after, before in found
    ]


FIG_TRADEOFF = Figure(
    name="fig-tradeoff",
    title="Privacy-performance tradeoff",
    place="Fig. 4",
    runs=runs,
    draw=line_figure(Axis("MI-DP budget of every device (bits)")),
    claims=(
        Claim("test accuracy rises with the privacy budget", rising(*SCHEMES)),
        Claim("SCFL has the highest test accuracy under any privacy budget", higher("SCFL", "DP-CFL", "CodedFedL")),
        Claim("CodedFedL has the worst test accuracy", lower("CodedFedL", "SCFL", "DP-CFL")),
        Claim("test accuracy on MNIST keeps increasing, also beyond 8.0", _still_rising, panels=("mnist",)),
        Claim("test accuracy on CIFAR-10 plateaus beyond a budget of 8.0", _flat, panels=("cifar10",)),
        Claim(
            "at very low noise (sigma^2 <= 5, which is 0.25 a device) SCFL outperforms DP-CFL by a notable margin (a point)",
            higher("SCFL", "DP-CFL", least=0.01, among=lambda x: x > 7.6),
        ),
    ),
)
