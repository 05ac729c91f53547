"""The pictures of a comparison: score against simulated time, of one run of each scheme or under several seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from codedfl.plotting._canvas import DARK, GREY, new_figure, tidy, to_png, without_maths
from codedfl.plotting._lines import Line, lines_named, lines_of
from codedfl.training import Evaluation, Reference, RunResult
from codedfl.typing import FloatArray

Clock = Literal["training", "everything"]
Metric = Literal["accuracy", "r2"]

SCORE_TITLES = {"accuracy": "test accuracy", "r2": "test R²"}

AXIS_TITLES = {
    "training": "simulated training time (s)",
    "everything": "simulated time with encoding and coded upload charged (s)",
}


def draw_curves(
    results: Sequence[RunResult],
    *,
    title: str,
    metric: Metric,
    reference: Reference | None = None,
    clock: Clock = "training",
) -> bytes:
    """Draw score against simulated time, one line per scheme with a dot where it ends, the centralised optimum dashed.

    Args:
        results: the runs to draw, at least one.
        title: the title of the picture.
        metric: the metric of the score.
        reference: the centralised optimum.
        clock: ``training`` for the paper's convention, ``everything`` to charge preparation as well.

    Returns:
        A PNG file.
    """
    return to_png(curves_figure(results, title=title, metric=metric, reference=reference, clock=clock))


def curves_figure(
    results: Sequence[RunResult],
    *,
    title: str,
    metric: Metric,
    reference: Reference | None = None,
    clock: Clock = "training",
) -> Figure:
    """Return the figure that `draw_curves` writes."""
    figure = new_figure(9, 4.8)
    axes = figure.add_subplot()
    curves = [(result, _finite(result.curve)) for result in results]
    latest = max(_seconds(result.final, clock) for result in results) or results[0].prepared.setting.deadline_s
    looks = lines_of(result.scheme for result in results)
    lines = [
        _draw_run(axes, result, curve, looks[result.scheme.name], clock, latest, metric)
        for result, curve in curves
        if curve
    ]
    if reference and math.isfinite(reference.score):
        label = f"centralised {_in_words(reference.score, metric)}"
        line = axes.axhline(reference.score, color=DARK, linestyle="--", linewidth=1, label=label, zorder=2)
        lines.append((reference.score, line))
    if lines:
        drawn = [curve for _, curve in curves if curve]
        early, best = (
            [curve[len(curve) // 20].score for curve in drawn],
            [point.score for curve in drawn for point in curve],
        )
        axes.set_ylim(*_score_limits([end for end, _ in lines], early, best, margin=0.04))
        # The order of the ends, so that the eye finds a line by its height; names of plug-ins may have a dollar sign.
        ordered = [line for _, line in sorted(lines, key=lambda item: -item[0])]
        without_maths(
            figure.legend(handles=ordered, loc="outside right upper", fontsize=9, frameon=False, title="in the end")
        )
    axes.set_xlim(0, 1.01 * latest)  # the dots at the ends are not cut
    _label(axes, title, metric, clock)
    return figure


def _finite(curve: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the points that can be drawn; a model may have overflowed, and the R2 of a single test row is NaN."""
    return [point for point in curve if math.isfinite(point.score)]


def _draw_run(
    axes: Axes,
    result: RunResult,
    curve: Sequence[Evaluation],
    look: Line,
    clock: Clock,
    latest: float,
    metric: Metric,
) -> tuple[float, Line2D]:
    """Draw one learning curve, and return its end; a model that is there at once stays, dotted, until the end."""
    end = curve[-1].score
    times, scores = [_seconds(point, clock) for point in curve], [point.score for point in curve]
    at_once = len(curve) == 1
    if at_once:
        times, scores = [*times, latest], scores * 2
    suffix = " (diverged)" if result.status == "diverged" else f" {_in_words(end, metric)}"
    (line,) = axes.plot(
        times,
        scores,
        ":" if at_once else "-",
        color=look.colour,
        linewidth=2.6 if look.prominent else 1.6,
        zorder=4 if look.prominent else 3,
        marker="o",
        markevery=[0 if at_once else -1],
        markersize=5,
        label=f"{result.scheme.title}{suffix}",
    )
    return end, line


def _in_words(score: float, metric: Metric) -> str:
    return f"{score:.1%}" if metric == "accuracy" else f"{score:.3f}"


def _seconds(point: Evaluation, clock: Clock) -> float:
    return point.simulated_time_s if clock == "training" else point.everything_charged_s


def _score_limits(
    ends: Sequence[float], early: Sequence[float], best: Sequence[float], margin: float
) -> tuple[float, float]:
    """Choose a range that shows where the schemes differ: it may cut off the steep start, but never the ends or the best."""
    high = max([*ends, *best])
    low = min([*ends, max(min([*ends, *early]), high - 5 * max(high - min(ends), 0.01))])
    room = margin * max(high - low, 1e-3)
    return low - room, high + room


def _label(axes: Axes, title: str, metric: Metric, clock: Clock) -> None:
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(AXIS_TITLES[clock])
    axes.set_ylabel(SCORE_TITLES[metric])
    tidy(axes)
    # A dollar sign in a file name must not start maths.
    axes.set_title(title, loc="left", fontsize=11, parse_math=False)


def seed_handles(seeds: int, linewidth: float) -> list[Line2D | Patch]:
    """Return the entries of a legend that explain the lines and bands of several seeds."""
    line = Line2D([], [], color=GREY, linewidth=linewidth, label=f"line: mean of {seeds} seeds")
    return [line, Patch(color=GREY, alpha=0.3, linewidth=0, label="band: lowest to\nhighest seed")]


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
    metric: Metric,
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
        lasts, early, best = zip(*(numbers for *numbers, _ in drawn), strict=True)
        axes.set_ylim(
            *_score_limits([*lasts, *([] if centralised is None else [centralised])], early, best, margin=0.06)
        )
    handles += seed_handles(seeds, linewidth=1.6)
    axes.set_xlim(0, latest)
    _label(axes, title, metric, clock)
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
