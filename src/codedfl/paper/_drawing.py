"""Pictures of the figures, from their tables alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure as MplFigure
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator, PercentFormatter, ScalarFormatter

from codedfl.paper._setups import CIFAR10, DIGITS, MNIST
from codedfl.paper._tables import Table, Tables, Value
from codedfl.plotting._canvas import new_figure
from codedfl.plotting._curves import COLOURS

TITLES = {setup.name: setup.title for setup in (MNIST, CIFAR10, DIGITS)}

LINE_COLOURS = {
    "SCFL": COLOURS["scfl"],
    "SCFL (b=32)": COLOURS["scfl-fixed"],
    "FedAvg": COLOURS["fedavg"],
    "DP-CFL": COLOURS["dp-cfl"],
    "CodedFedL": COLOURS["codedfedl"],
    "CodedFedL, no noise": "#7BC8A4",
    "SCFL, contract": COLOURS["scfl"],
    "SCFL, Stackelberg": "#D55E00",
    "no incentive (FedAvg)": COLOURS["fedavg"],
}
OTHER_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = "osD^vP"
PANEL_WIDTH, HEIGHT = 4.6, 3.7
GUESSING = 0.2
"""Accuracies up to this are not worth a scale that shows them beside others."""


@dataclass(frozen=True)
class Axis:
    """A horizontal axis.

    Args:
        title: what is on it.
        percent: whether it counts shares.
        logarithmic: whether equal ratios are equal distances.
        column: the column of the table that it shows.
    """

    title: str
    percent: bool = False
    logarithmic: bool = False
    column: str = "x"


def line_figure(axis: Axis) -> Callable[[Tables], MplFigure]:
    """Return what draws mean accuracy with its 95% interval, a panel for each task and a line for each series."""

    def draw(tables: Tables) -> MplFigure:
        summary = tables["summary"]
        panels = summary.distinct("panel")
        figure = new_figure(PANEL_WIDTH * len(panels) + 0.4, HEIGHT)
        for axes, panel in zip(_row(figure, len(panels)), panels, strict=True):
            draw_lines(axes, summary.where(panel=panel), axis, markers=True)
            axes.set_title(TITLES.get(str(panel), str(panel)), loc="left", fontsize=11)
        return figure

    return draw


def draw_curves(tables: Tables) -> MplFigure:
    """Draw learning curves: a row for each clock, a column for each task."""
    table = tables["mean-curves"]
    panels = table.distinct("panel")
    clocks = (
        Axis("simulated training time (s): the paper's clock", column="time_s"),
        Axis("the same with encoding and upload charged (s)", column="charged_s"),
    )
    late = 0.1 * table.column("time_s").max()  # from where on the schemes differ
    figure = new_figure(PANEL_WIDTH * len(panels) + 0.4, HEIGHT * len(clocks))
    for line, axis in enumerate(clocks):
        for place, panel in enumerate(panels):
            axes = figure.add_subplot(len(clocks), len(panels), line * len(panels) + place + 1)
            own = table.where(panel=panel)
            draw_lines(axes, own, axis, markers=False)
            axes.xaxis.set_major_locator(MaxNLocator(5))
            axes.set_ylim(*_limits([float(row["mean"]) for row in own if float(row["time_s"]) >= late]))
            if line == 0:
                axes.set_title(TITLES.get(str(panel), str(panel)), loc="left", fontsize=11)
    return figure


def draw_incentive(tables: Tables) -> MplFigure:
    """Draw the utility of contract items for some devices, and accuracy against reward with few and with many stragglers."""
    from codedfl.paper._fig_incentive import SHOWN_DEVICES

    summary, menu = tables["summary"], tables["menu"]
    panels = summary.distinct("panel")
    figure = new_figure(PANEL_WIDTH * (1 + len(panels)), HEIGHT)
    first, *others = _row(figure, 1 + len(panels))
    for colour, marker, device in zip(OTHER_COLOURS, MARKERS, SHOWN_DEVICES, strict=False):
        own = menu.where(device=device)
        items, utilities = own.column("item"), own.column("utility")
        first.plot(items, utilities, color=colour, label=f"device {device}")
        first.plot([device], [utilities[device - 1]], marker, color=colour)
    first.set_xlabel("contract item")
    first.set_ylabel("utility of the device")
    first.set_title("(a) each device's own item is marked", loc="left", fontsize=11)
    _finish(first)
    for letter, axes, panel in zip("bc", others, panels, strict=True):
        draw_lines(axes, summary.where(panel=panel), Axis("total reward"), markers=True)
        axes.set_title(f"({letter}) {panel}", loc="left", fontsize=11)
    return figure


def draw_attack(tables: Tables) -> MplFigure:
    """Draw reconstruction errors, a panel for each attack; what a guess of the mean achieves is dashed."""
    summary = tables["summary"]
    figure = new_figure(PANEL_WIDTH * 2 + 0.4, HEIGHT)
    titles = {"feasible": "an attack that can be carried out", "oracle": "rotated by an oracle: the most that leaks"}
    for axes, (attack, title) in zip(_row(figure, 2), titles.items(), strict=True):
        axis = Axis("share of samples that the attacker knows", percent=True)
        draw_lines(axes, summary.where(attack=attack), axis, markers=True, title="relative reconstruction error")
        for name, style, label in (("baseline", "--", "mean of the known"), (f"{attack}_control", ":", "control")):
            own = summary.where(attack=name, series="no noise")
            axes.plot(own.column("x"), own.column("mean"), style, color="#333333", linewidth=1, label=label)
        axes.set_ylim(0, 1.15)
        axes.set_title(title, loc="left", fontsize=11)
        _finish(axes)
    return figure


def draw_limits(tables: Tables) -> MplFigure:
    """Draw measured accuracies, those of the limits dashed, and accuracy against how often the worst direction grew e-fold."""
    from codedfl.paper._limits import BUDGET, CODED, STRAGGLERS

    axis_of = {
        BUDGET: Axis("MI-DP budget of every device (bits)"),
        STRAGGLERS: Axis("expected share of stragglers", percent=True),
        CODED: Axis("coded samples of a device", logarithmic=True),
    }
    figure = new_figure(PANEL_WIDTH * 2 + 0.4, 2 * HEIGHT)
    places = [figure.add_subplot(2, 2, place + 1) for place in range(4)]
    for letter, axes, (panel, axis) in zip("abc", places, axis_of.items(), strict=False):
        own, limits = tables["summary"].where(panel=panel), tables["limits"].where(panel=panel)
        draw_lines(axes, own, axis, markers=True)
        for place, series in enumerate(limits.distinct("series")):
            line = limits.where(series=series)
            axes.plot(line.column("x"), line.column("mean"), "--", color=_colour(series, place), linewidth=1)
        means = [float(row["mean"]) for table in (own, limits) for row in table]
        axes.set_ylim(*_limits([mean for mean in means if mean > GUESSING] or means))
        axes.set_title(f"({letter}) {panel}; limits dashed", loc="left", fontsize=11)
    _draw_growth(places[3], tables["points"].where(series="SCFL"))
    return figure


def _draw_growth(axes: Axes, points: Table) -> None:
    """Draw accuracy against how often the worst direction grew e-fold, a point for each run."""
    for colour, marker, panel in zip(OTHER_COLOURS, MARKERS, points.distinct("panel"), strict=False):
        own = points.where(panel=panel)
        axes.plot(
            own.column("e_foldings"), own.column("accuracy"), marker, color=colour, markersize=4.5, label=str(panel)
        )
    axes.axvline(0.0, color="#333333", linewidth=1, linestyle=":")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("e-foldings of the worst direction in the time of the run")
    axes.set_ylabel("test accuracy of SCFL")
    axes.set_title("(d) right of the dotted line there is no limit", loc="left", fontsize=11)
    _finish(axes)


def draw_lines(axes: Axes, table: Table, axis: Axis, *, markers: bool, title: str = "test accuracy") -> None:
    """Draw the columns mean, low and high of a table, a line for each series."""
    for place, series in enumerate(table.distinct("series")):
        own = table.where(series=series)
        order = own.column(axis.column).argsort()
        x, mean, low, high = (own.column(name)[order] for name in (axis.column, "mean", "low", "high"))
        colour = _colour(series, place)
        strong = series == "SCFL"
        marker = MARKERS[place % len(MARKERS)] if markers else None
        axes.plot(
            x, mean, color=colour, marker=marker, markersize=4.5, linewidth=2.2 if strong else 1.5, label=str(series)
        )
        axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    if markers:
        axes.set_ylim(*_limits(list(table.column("mean"))))
    if axis.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(table.column(axis.column)))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
    if axis.percent:
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(table.column(axis.column)))))
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(axis.title)
    axes.set_ylabel(title)
    _finish(axes)


def _finish(axes: Axes) -> None:
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


def _row(figure: MplFigure, count: int) -> list[Axes]:
    return [figure.add_subplot(1, count, place + 1) for place in range(count)]


def _colour(series: Value, place: int) -> str:
    return LINE_COLOURS.get(str(series), OTHER_COLOURS[place % len(OTHER_COLOURS)])


def _limits(values: Sequence[float]) -> tuple[float, float]:
    """Choose a range from the lowest mean to the highest, with a margin; intervals may leave it."""
    low, high = min(values), max(values)
    margin = 0.06 * max(high - low, 0.01)
    return low - margin, high + margin
