"""What the pictures of several figures share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure as MplFigure
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, NullLocator, PercentFormatter, ScalarFormatter

from codedfl.paper._setups import CIFAR10, DIGITS, MNIST
from codedfl.paper._tables import Tables, column, where
from codedfl.plotting import new_figure
from codedfl.schemes import PAPER_SCHEMES, make_scheme

TITLES = {setup.name: setup.title for setup in (MNIST, CIFAR10, DIGITS)}

_OWN = {name: make_scheme(name).colour or "" for name in PAPER_SCHEMES}

LINE_COLOURS = {
    "SCFL": _OWN["scfl"],
    "SCFL (b=32)": _OWN["scfl-fixed"],
    "FedAvg": _OWN["fedavg"],
    "DP-CFL": _OWN["dp-cfl"],
    "CodedFedL": _OWN["codedfedl"],
    "CodedFedL, no noise": "#7BC8A4",
    "SCFL, contract": _OWN["scfl"],
    "SCFL, Stackelberg": "#D55E00",
    "no incentive (FedAvg)": _OWN["fedavg"],
}
OTHER_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00")
MARKERS = "osD^vP"
PANEL_WIDTH, HEIGHT = 4.6, 3.7
COLUMN_WIDTH = 2.1
"""Inches of a legend's entry, the longest of which fit into it."""
GUESSING = 0.2
"""Accuracies up to this value are left out of the range of an axis that shows better ones."""


@dataclass(frozen=True)
class Axis:
    """A horizontal axis.

    Args:
        title: its label.
        percent: whether its values are shares.
        logarithmic: whether its scale is logarithmic.
        column: the column of the table on this axis.
        whole: whether its values are whole numbers, and ticks are wanted nowhere else.
    """

    title: str
    percent: bool = False
    logarithmic: bool = False
    column: str = "x"
    whole: bool = False


def line_figure(axis: Axis) -> Callable[[Tables], MplFigure]:
    """Return a function that draws mean accuracy with its 95% interval, one panel per task and one line per series."""

    def draw(tables: Tables) -> MplFigure:
        summary = tables["summary"]
        panels = summary["panel"].unique()
        figure = new_figure(PANEL_WIDTH * len(panels) + 0.4, HEIGHT)
        for axes, panel in zip(row_of_panels(figure, len(panels)), panels, strict=True):
            draw_lines(axes, where(summary, panel=panel), axis, markers=True)
            axes.set_title(TITLES.get(panel, panel), loc="left", fontsize=11)
        add_legend(figure, summary)
        return figure

    return draw


def draw_lines(axes: Axes, table: pd.DataFrame, axis: Axis, *, markers: bool, title: str = "test accuracy") -> None:
    """Draw the columns mean, low and high of a table, one line per series."""
    for place, series in enumerate(table["series"].unique()):
        own = where(table, series=series)
        order = column(own, axis.column).argsort()
        x, mean, low, high = (column(own, name)[order] for name in (axis.column, "mean", "low", "high"))
        colour = colour_of(series, place)
        strong = series == "SCFL"
        marker = MARKERS[place % len(MARKERS)] if markers else None
        axes.plot(x, mean, color=colour, marker=marker, markersize=4.5, linewidth=2.2 if strong else 1.5, label=series)
        axes.fill_between(x, low, high, color=colour, alpha=0.12, linewidth=0)
    if markers:
        axes.set_ylim(*accuracy_range(list(table["mean"])))
    if axis.logarithmic:
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(column(table, axis.column)))))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(ScalarFormatter())
    if axis.percent or axis.whole:
        axes.xaxis.set_major_locator(FixedLocator(sorted(set(column(table, axis.column)))))
    if axis.percent:
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(axis.title)
    axes.set_ylabel(title)
    finish(axes)


def finish(axes: Axes) -> None:
    """Add a light grid."""
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def add_legend(figure: MplFigure, table: pd.DataFrame, *others: Artist) -> None:
    """Name the lines of all panels, and what the bands are, below the panels, where no curve can be.

    Args:
        figure: the figure.
        table: the table that was drawn, with the columns low and high.
        others: further entries.
    """
    named = {label: line for axes in figure.axes for line, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    handles = [*named.values(), *others, *_band_of(table)]
    columns = max(1, min(len(handles), int(figure.get_figwidth() / COLUMN_WIDTH)))
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=8, frameon=False)


def _band_of(table: pd.DataFrame) -> list[Artist]:
    """Return an entry that explains the bands of a table; none if all have no width, as those of a single seed."""
    if (column(table, "low") == column(table, "high")).all():
        return []
    seeds = f" over {int(table['seeds'].max())} seeds" if "seeds" in table else ""
    return [Patch(color="#999999", alpha=0.3, linewidth=0, label=f"band: 95% interval{seeds}")]


def row_of_panels(figure: MplFigure, count: int) -> list[Axes]:
    """Return panels side by side."""
    return [figure.add_subplot(1, count, place + 1) for place in range(count)]


def colour_of(series: str, place: int) -> str:
    """Return the colour of a series, by its name or else by its place."""
    return LINE_COLOURS.get(series, OTHER_COLOURS[place % len(OTHER_COLOURS)])


def accuracy_range(values: Sequence[float]) -> tuple[float, float]:
    """Return a range from the lowest mean to the highest, with a margin; intervals may exceed it."""
    low, high = min(values), max(values)
    margin = 0.06 * max(high - low, 0.01)
    return low - margin, high + margin
