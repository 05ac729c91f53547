"""The picture of a comparison under several seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from codedfl.plotting._canvas import DARK, GREY, new_figure, to_png
from codedfl.plotting._curves import AXIS_TITLES, Clock
from codedfl.plotting._lines import lines_named
from codedfl.training import Evaluation
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class SeedCurves:
    """The learning curves of one scheme.

    Args:
        name: the name of the scheme, for its colour.
        title: what the legend calls it.
        curves: one curve per seed.
    """

    name: str
    title: str
    curves: Sequence[Sequence[Evaluation]]


def draw_seed_curves(
    schemes: Sequence[SeedCurves],
    *,
    title: str,
    metric: Literal["accuracy", "r2"],
    centralised: float | None = None,
    clock: Clock = "training",
) -> bytes:
    """Draw the mean score over seeds against simulated time, with a band from the lowest to the highest.

    Args:
        schemes: the curves to draw, at least one scheme with one curve.
        title: the title of the picture.
        metric: the metric of the score.
        centralised: mean score of the centralised optimum, if it is known.
        clock: ``training`` for the paper's convention, ``everything`` to charge preparation as well.

    Returns:
        A PNG file.
    """
    figure = new_figure(9, 4.8)
    axes = figure.add_subplot()
    seeds = max(len(scheme.curves) for scheme in schemes)
    ends = [[_seconds(curve[-1], clock) for curve in scheme.curves if curve] for scheme in schemes]
    latest = max((float(np.mean(each)) for each in ends if each), default=0.0) or 1.0
    drawn: list[tuple[float, float, float, Line2D]] = []
    looks = lines_named(scheme.name for scheme in schemes)
    for scheme in schemes:
        band = _band(scheme.curves, clock, latest)
        if band is None:
            continue
        times, low, mean, high = band
        look = looks[scheme.name]
        width = 2.4 if look.prominent else 1.6
        axes.fill_between(times, low, high, color=look.colour, alpha=0.13, linewidth=0, zorder=1)
        lines = axes.plot(times, mean, color=look.colour, linewidth=width, label=scheme.title, zorder=2)
        drawn.append((float(mean[-1]), float(mean[len(mean) // 20]), float(high.max()), lines[0]))
    handles: list[Line2D | Patch] = [line for _, _, _, line in sorted(drawn, key=lambda item: -item[0])]
    if centralised is not None and math.isfinite(centralised):
        handles.append(axes.axhline(centralised, color=DARK, linestyle="--", linewidth=1, label="centralised, mean"))
    if drawn:
        _limit_scores(axes.set_ylim, [(end, early, top) for end, early, top, _ in drawn], centralised)
    handles.append(Line2D([], [], color=GREY, linewidth=1.6, label=f"line: mean of {seeds} seeds"))
    handles.append(Patch(color=GREY, alpha=0.3, linewidth=0, label="band: lowest to\nhighest seed"))
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(0, latest)
    axes.set_xlabel(AXIS_TITLES[clock])
    axes.set_ylabel("test accuracy" if metric == "accuracy" else "test R²")
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, parse_math=False)
    figure.legend(handles=handles, loc="outside right upper", fontsize=9, frameon=False)
    return to_png(figure)


def _band(
    curves: Sequence[Sequence[Evaluation]], clock: Clock, latest: float
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray] | None:
    """Return times, and the lowest, mean and highest score there; None if no curve can be drawn.

    Seeds meet at the same training time. What is charged before it differs between them, so that the clock which charges
    everything shows its mean.
    """
    finite = [[point for point in curve if math.isfinite(point.score)] for curve in curves]
    lines = [_arrays(curve) for curve in finite if curve]
    if not lines:
        return None
    start, end = max(trained[0] for trained, _, _ in lines), min(trained[-1] for trained, _, _ in lines)
    grid = np.unique(np.concatenate([trained for trained, _, _ in lines]))
    grid = grid[(grid >= start) & (grid <= end)]
    if not grid.size:
        return None
    scores = np.array([np.interp(grid, trained, each) for trained, _, each in lines])
    charged = np.mean([np.interp(grid, trained, each) for trained, each, _ in lines], axis=0)
    low, mean, high = scores.min(axis=0), scores.mean(axis=0), scores.max(axis=0)
    times = grid if clock == "training" else charged
    if grid.size == 1:  # a model that is there at once stays until the end
        low, mean, high = (np.repeat(each, 2) for each in (low, mean, high))
        times = np.array([times[0], max(latest, float(times[0]))])
    return times, low, mean, high


def _arrays(curve: Sequence[Evaluation]) -> tuple[FloatArray, FloatArray, FloatArray]:
    columns = [(point.simulated_time_s, point.everything_charged_s, point.score) for point in curve]
    trained, charged, scores = np.array(columns).T
    return trained, charged, scores


def _limit_scores(set_limits: object, heights: Sequence[tuple[float, float, float]], centralised: float | None) -> None:
    """Show where the schemes differ: the steep start may be cut off, but no end."""
    assert callable(set_limits)
    ends = [end for end, _, _ in heights] + ([] if centralised is None else [centralised])
    high = max([*ends, *(top for _, _, top in heights)])
    early = min([*ends, *(each for _, each, _ in heights)])
    low = min([*ends, max(early, high - 5 * max(high - min(ends), 0.01))])
    margin = 0.06 * max(high - low, 1e-3)
    set_limits(low - margin, high + margin)


def _seconds(point: Evaluation, clock: Clock) -> float:
    return point.simulated_time_s if clock == "training" else point.everything_charged_s
