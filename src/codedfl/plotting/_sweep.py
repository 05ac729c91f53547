"""The picture of a sweep: the score against one key, a line per scheme, panels for further keys."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from codedfl.plotting._canvas import DARK, GREY, new_figure, tidy, to_png
from codedfl.plotting._curves import SCORE_TITLES, seed_handles
from codedfl.plotting._lines import Line, lines_named

MOST_KEYS, MOST_PANELS, MOST_COLUMNS = 3, 16, 4

WIDE_SPAN = 20.0
"""Ratio of the largest to the smallest value from which on an axis is logarithmic."""

LEAST_GAP = 0.075
"""Distance of two tick labels, as a share of the axis, at which they do not touch; in a picture with one column of panels."""

Values = Mapping[str, Sequence[Any]]


def can_draw_sweep(over: Values) -> bool:
    """Return whether a grid fits in a picture: one to three keys, and not too many panels.

    Example:
        >>> can_draw_sweep({"coding.noise_variance": [0.1, 1.0]}), can_draw_sweep({name: [1, 2] for name in "abcd"})
        (True, False)
    """
    panels = math.prod(len(values) for values in list(over.values())[1:])
    return 1 <= len(over) <= MOST_KEYS and panels <= MOST_PANELS


def draw_sweep(over: Values, means: Sequence[Mapping[str, Any]], metric: str, seeds: int = 1, title: str = "") -> bytes:
    """Draw the score against the first key, one line per scheme; the second key has panels, and the third has rows of them.

    Args:
        over: values by key.
        means: one mapping per point and scheme: ``values`` by key, ``scheme``, ``title``, and ``score`` and ``centralised`` with
            their ``mean`` and ``values``.
        metric: ``accuracy`` or ``r2``.
        seeds: number of seeds of each point; with more than one, bands show the lowest and the highest.
        title: the title of the picture.

    Returns:
        A PNG file.
    """
    keys = list(over)
    panels = list(itertools.product(*(over[key] for key in keys[1:])))
    columns = len(over[keys[1]]) if len(keys) == MOST_KEYS else min(len(panels), MOST_COLUMNS)
    columns = min(columns, MOST_PANELS)
    rows = math.ceil(len(panels) / columns)
    if len(keys) == MOST_KEYS:  # the second key from left to right, the third from top to bottom
        panels = [(second, third) for third in over[keys[2]] for second in over[keys[1]]]
    width = 3.2 * columns + 2.0 if columns > 1 else 8.0
    figure = new_figure(width, 3.0 * rows + 0.6 if len(panels) > 1 else 4.6)
    grid = figure.subplots(rows, columns, sharey=True, squeeze=False)
    titles: dict[str, str] = {}
    looks = lines_named(dict.fromkeys(mean["scheme"] for mean in means))
    for axes, panel in itertools.zip_longest(grid.flat, panels):
        if panel is None:
            axes.set_visible(False)
            continue
        here = dict(zip(keys[1:], panel, strict=True))
        inside = [mean for mean in means if all(mean["values"][key] == value for key, value in here.items())]
        titles |= _draw_panel(axes, keys[0], over[keys[0]], inside, looks, seeds)
        if here:
            label = ", ".join(f"{_short(key)} = {_shown(value)}" for key, value in here.items())
            axes.set_title(label, loc="left", fontsize=9.5, parse_math=False)
        _scale(axes, over[keys[0]], columns)
        tidy(axes)
        if metric == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, parse_math=False)
    figure.supxlabel(keys[0], fontsize=10.5)
    figure.supylabel(SCORE_TITLES[metric], fontsize=10.5)
    figure.legend(handles=_legend(means, titles, looks, seeds), loc="outside right upper", fontsize=9, frameon=False)
    return to_png(figure)


def _draw_panel(
    axes: Axes,
    key: str,
    values: Sequence[Any],
    means: Sequence[Mapping[str, Any]],
    looks: Mapping[str, Line],
    seeds: int,
) -> dict[str, str]:
    """Draw the lines of one panel and return the titles of its schemes by name."""
    titles = {mean["scheme"]: mean["title"] for mean in means}
    places = _places(values)
    for name in titles:
        mine = [
            (places[_index(values, mean["values"][key])], mean["score"]) for mean in means if mean["scheme"] == name
        ]
        mine.sort(key=lambda item: item[0])
        x, y = [place for place, _ in mine], [_number(score["mean"]) for _, score in mine]
        colour = looks[name].colour
        weight, order = (2.2, 3) if looks[name].prominent else (1.5, 2)
        axes.plot(x, y, color=colour, marker="o", markersize=4, linewidth=weight, zorder=order)
        lost = [place for place, score in zip(x, y, strict=True) if math.isnan(score)]
        axes.plot(lost, [0.03] * len(lost), "x", color=colour, transform=axes.get_xaxis_transform(), zorder=order)
        if seeds > 1:
            spread = [
                [_number(v) for v in score["values"]] if score["mean"] is not None else [math.nan] for _, score in mine
            ]
            low, high = [min(each) for each in spread], [max(each) for each in spread]
            axes.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
    reference = sorted((places[_index(values, m["values"][key])], _number(m["centralised"]["mean"])) for m in means)
    if reference and not all(math.isnan(score) for _, score in reference):
        axes.plot(*zip(*reference, strict=True), color=DARK, linestyle="--", linewidth=1, zorder=1)
    return titles


def _legend(
    means: Sequence[Mapping[str, Any]], titles: Mapping[str, str], looks: Mapping[str, Line], seeds: int
) -> list[Line2D | Patch]:
    """Return the entries of the legend: schemes, the reference, and what a band is."""
    handles: list[Line2D | Patch] = [
        Line2D([], [], color=looks[name].colour, marker="o", markersize=4, label=title)
        for name, title in titles.items()
    ]
    if any(mean["centralised"]["mean"] is not None for mean in means):
        handles.append(Line2D([], [], color=DARK, linestyle="--", linewidth=1, label="centralised"))
    if seeds > 1:
        handles += seed_handles(seeds, linewidth=1.5)
    if any(mean["score"]["mean"] is None for mean in means):
        handles.append(Line2D([], [], linestyle="none", marker="x", color=GREY, label="diverged"))
    return handles


def _scale(axes: Axes, values: Sequence[Any], columns: int) -> None:
    """Choose a logarithmic axis where values span it, and put ticks at as many of the values as there is room for."""
    places = _places(values)
    if not _numeric(values):
        axes.set_xticks(places, [_shown(value) for value in values], fontsize=8.5, parse_math=False)
        axes.set_xlim(-0.4, len(values) - 0.6)
        return
    positive = [place for place in places if place > 0]
    wide = len(positive) > 1 and max(positive) / min(positive) >= WIDE_SPAN and min(places) >= 0
    if wide and min(places) > 0:
        axes.set_xscale("log")
    elif wide:  # zero is on the axis as well
        axes.set_xscale("symlog", linthresh=min(positive), linscale=0.6)
    ticks: list[float] = []
    for place in sorted(places):
        before = _share(axes, ticks[-1]) if ticks else -math.inf
        if _share(axes, place) - before >= LEAST_GAP * columns:
            ticks.append(place)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: f"{place:g}"))
    axes.xaxis.set_minor_locator(NullLocator())


def _share(axes: Axes, place: float) -> float:
    """Return how far along the axis a value is, from 0 to 1."""
    share: float = axes.transAxes.inverted().transform(axes.transData.transform((place, axes.get_ylim()[0])))[0]
    return share


def _numeric(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)


def _places(values: Sequence[Any]) -> list[float]:
    """Return where values are on the axis: at themselves, or one after the other if they are words."""
    return [float(value) for value in values] if _numeric(values) else [float(place) for place in range(len(values))]


def _index(values: Sequence[Any], value: Any) -> int:
    return next(place for place, each in enumerate(values) if each == value and type(each) is type(value))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _short(key: str) -> str:
    return key.rsplit(".", 1)[-1]


def _shown(value: Any) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 20 else f"{text[:17]}..."
