"""Remark 1: where training ends. Limit points in closed form, next to what the runs of Figs. 4, 6, 7 and 8 reach in time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MplFigure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from codedfl.experiment import Config, Experiment, rounds_of
from codedfl.paper._claims import Claim, Evidence, alike, exactly, places, rising
from codedfl.paper._drawing import (
    GUESSING,
    HEIGHT,
    MARKERS,
    OTHER_COLOURS,
    PANEL_WIDTH,
    Axis,
    accuracy_range,
    add_legend,
    colour_of,
    draw_lines,
    finish,
)
from codedfl.paper._executor import Outcomes
from codedfl.paper._fig_incentive import CONTRACT, DEFAULT, FIG_INCENTIVE
from codedfl.paper._fig_stragglers import FIG_CODED_SAMPLES, FIG_STRAGGLERS, LINES
from codedfl.paper._fig_tradeoff import FIG_TRADEOFF
from codedfl.paper._figure import Figure, points_table
from codedfl.paper._jobs import measurement
from codedfl.paper._runs import FigureRun
from codedfl.paper._setups import MNIST, Scope
from codedfl.paper._tables import Row, Tables, column, summary_table, where
from codedfl.plotting import new_figure
from codedfl.schemes import make_scheme
from codedfl.theory import LimitPoint, arrival_limit_point, coded_limit_point, limit_point
from codedfl.training import Evaluator, PreparedScheme
from codedfl.typing import FloatArray

BUDGET, STRAGGLERS, CODED, REWARD = "privacy budget", "stragglers", "coded samples", "total reward"
CLOSE = 0.01
"""An excess loss below this share of the optimum's loss counts as zero."""


def runs(scope: Scope) -> Sequence[FigureRun]:
    """Return the runs of other figures whose scheme has a limit in closed form."""
    task = scope.only(MNIST).name
    few_stragglers = next(iter(LINES.values()))
    return [
        *_some(BUDGET, FIG_TRADEOFF.runs(scope), task, {"SCFL": "SCFL", "DP-CFL": "DP-CFL"}),
        *_some(STRAGGLERS, FIG_STRAGGLERS.runs(scope), task, {"SCFL": "SCFL", "FedAvg": "FedAvg"}),
        *_some(CODED, FIG_CODED_SAMPLES.runs(scope), task, {few_stragglers: "SCFL"}),
        *_some(REWARD, FIG_INCENTIVE.runs(scope), DEFAULT, {CONTRACT: "SCFL"}),
    ]


def _some(panel: str, own: Sequence[FigureRun], of: str, schemes: Mapping[str, str]) -> list[FigureRun]:
    """Return some series of one panel of a figure, named by their schemes."""
    return [
        replace(run, panel=panel, series=schemes[run.series])
        for run in own
        if run.panel == of and run.series in schemes
    ]


def configs(scope: Scope) -> Sequence[Config]:
    """Return the configurations of these runs."""
    return [run.config for run in runs(scope)]


def _scfl_limit(prepared: PreparedScheme) -> LimitPoint:
    (coded,) = prepared.held
    return limit_point(prepared.setting.gram, coded)


def _dp_cfl_limit(prepared: PreparedScheme) -> LimitPoint:
    (coded,) = prepared.held
    return coded_limit_point(prepared.setting.gram, coded)


def _fedavg_limit(prepared: PreparedScheme) -> LimitPoint:
    setting = prepared.setting
    parts = [setting.rows(device) for device in range(setting.federation.devices)]
    return arrival_limit_point(setting.gram, parts, prepared.device.arrivals.probability)


LIMIT_POINTS: Mapping[str, Callable[[PreparedScheme], LimitPoint]] = {
    "scfl": _scfl_limit,
    "dp-cfl": _dp_cfl_limit,
    "fedavg": _fedavg_limit,
}


def measure_limit(experiment: Experiment) -> list[Row]:
    """Solve for the limit point of a scheme with one local step; ``excess_loss`` is relative to the loss of the optimum."""
    setting, config = experiment.setting, experiment.config
    (name,) = config.schemes
    prepared = make_scheme(name, config.options.get(name)).prepare(setting)
    limit, evaluator = LIMIT_POINTS[name](prepared), Evaluator(setting)
    (accuracy,) = evaluator.scores(limit.model)
    return [
        {
            "panel": config.data.dataset,
            "seed": config.seed,
            "limit_accuracy": accuracy,
            "guessing": 1 / setting.federation.outputs,
            "excess_loss": limit.gap / setting.gram.loss(setting.gram.optimum),
            "least_eigenvalue": limit.least_eigenvalue,
            "smoothness": setting.gram.smoothness,
            "steps": setting.local_steps * rounds_of(config, prepared.scheme, setting, prepared.device),
        }
    ]


MEASUREMENT = measurement("limits", "solving for limits", measure_limit, unit=1.5e-4)


def tables(scope: Scope, outcomes: Outcomes) -> Tables:  # noqa: ARG001
    """Return the accuracy of runs and of their limits, and how much the worst direction grows during the run."""
    limit = pd.DataFrame(outcomes.measured)
    points, least = points_table(outcomes), limit["least_eigenvalue"]
    # To first order a direction with eigenvalue v changes by exp(-eta v) in a step. A model that runs away from the limit point
    # counts as guessing, like a run that diverges.
    eta = points["step_size"] / limit["smoothness"]
    points = points.assign(
        stable=least > 0,
        limit_accuracy=limit["limit_accuracy"].where(least > 0, limit["guessing"]),
        excess_loss=limit["excess_loss"],
        least_eigenvalue=least,
        e_foldings=-eta * limit["steps"] * least,
    )
    limits = summary_table(where(points, stable=True), "limit_accuracy")
    return {"points": points, "summary": summary_table(points), "limits": limits}


def _of_scfl(tables: Tables, panel: str, name: str) -> dict[float, FloatArray]:
    """Return a column of SCFL's points by x, one value per seed."""
    points = where(tables["points"], panel=panel, series="SCFL")
    return {x: column(points, name, x=x) for x in places(tables, panel, "SCFL")}


def _converges(tables: Tables, panel: str) -> list[Evidence]:
    return [
        exactly(f"at {x:g} the least eigenvalue is {least.min():,.4g}", min(least) > 0)
        for x, least in _of_scfl(tables, panel, "least_eigenvalue").items()
    ]


def _to_the_optimum(tables: Tables, panel: str) -> list[Evidence]:
    stable = _of_scfl(tables, panel, "stable")
    return [
        alike(f"loss of the limit at {x:g} and of the optimum within {CLOSE:.0%}", excess, 0 * excess, margin=CLOSE)
        for x, excess in _of_scfl(tables, panel, "excess_loss").items()
        if stable[x].all()
    ]


def _noise_harms(tables: Tables, panel: str) -> list[Evidence]:
    points = tables["points"]
    return list(rising("SCFL")({"points": points.assign(accuracy=points["limit_accuracy"])}, panel))


def draw_limits(tables: Tables) -> MplFigure:
    """Draw accuracies (limits dashed), and accuracy against the e-foldings of the worst direction."""
    axis_of = {
        BUDGET: Axis("MI-DP budget of every device (bits)"),
        STRAGGLERS: Axis("expected share of stragglers", percent=True),
        CODED: Axis("coded samples of a device", logarithmic=True),
    }
    figure = new_figure(PANEL_WIDTH * 2 + 0.4, 2 * HEIGHT + 0.3)
    places = [figure.add_subplot(2, 2, place + 1) for place in range(4)]
    for letter, axes, (panel, axis) in zip("abc", places, axis_of.items(), strict=False):
        own, limits = (where(tables[name], panel=panel) for name in ("summary", "limits"))
        draw_lines(axes, own, axis, markers=True)
        for place, series in enumerate(limits["series"].unique()):
            line = where(limits, series=series)
            axes.plot(line["x"], line["mean"], "--", color=colour_of(series, place), linewidth=1)
        means = [*own["mean"], *limits["mean"]]
        axes.set_ylim(*accuracy_range([mean for mean in means if mean > GUESSING] or means))
        axes.set_title(f"({letter}) {panel}", loc="left", fontsize=11)
    _draw_growth(places[3], where(tables["points"], series="SCFL"))
    limit = Line2D([], [], color="#333333", linestyle="--", linewidth=1, label="where training would end")
    add_legend(figure, tables["summary"], limit)
    return figure


def _draw_growth(axes: Axes, points: pd.DataFrame) -> None:
    """Draw accuracy against the e-foldings of the worst direction, one point per run."""
    for colour, marker, panel in zip(OTHER_COLOURS, MARKERS, points["panel"].unique(), strict=False):
        own = where(points, panel=panel)
        axes.plot(own["e_foldings"], own["accuracy"], marker, color=colour, markersize=4.5, label=f"(d) {panel}")
    axes.axvline(0.0, color="#333333", linewidth=1, linestyle=":")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("e-foldings of the worst direction in the time of the run")
    axes.set_ylabel("test accuracy of SCFL")
    axes.set_title("(d) right of the dotted line there is no limit", loc="left", fontsize=11)
    finish(axes)


LIMITS = Figure(
    name="limits",
    title="Where training ends: limit points in closed form, and what runs reach",
    place="Remark 1",
    runs=runs,
    measurement=MEASUREMENT,
    measured=configs,
    tables=tables,
    draw=draw_limits,
    claims=(
        Claim("with decreasing steps SCFL converges", _converges),
        Claim("what it converges to is the optimal linear regression model", _to_the_optimum),
        Claim("adding stronger noise degrades the learned model", _noise_harms, panels=(BUDGET,)),
    ),
)
