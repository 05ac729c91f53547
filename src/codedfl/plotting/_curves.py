"""The picture of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from codedfl.plotting._canvas import DARK, new_figure, to_png
from codedfl.training import Evaluation, Reference, RunResult

Clock = Literal["training", "everything"]
Label = tuple[float, str, str]
"""Height, text and colour of the label at the end of a line."""

COLOURS = {
    "fedavg": "#E69F00",
    "cfl-fb": "#999999",
    "codedfedl": "#009E73",
    "dp-cfl": "#CC79A7",
    "scfl-fixed": "#56B4E9",
    "scfl": "#0072B2",
    "ccfl": "#C1121F",
    "momentum": "#D55E00",
    "fed3r": "#117733",
    "one-shot": "#882255",
    "dp-gd": "#6A3D9A",
    "ihm": "#B15928",
    "ssp": "#44AA99",
    "scfl-private": "#88CCEE",
}
"""Colours that stay apart for colour-blind readers (Okabe and Ito, then Tol), with strong ones for SCFL and CCFL."""

AXIS_TITLES = {
    "training": "simulated training time (s)",
    "everything": "simulated time with encoding and coded upload charged (s)",
}


def draw_curves(
    results: Sequence[RunResult],
    *,
    title: str,
    metric: Literal["accuracy", "r2"],
    reference: Reference | None = None,
    clock: Clock = "training",
) -> bytes:
    """Draw score against simulated time, one line per scheme, the centralised optimum dashed.

    Args:
        results: the runs to draw, at least one.
        title: the title of the picture.
        metric: the metric of the score.
        reference: the centralised optimum.
        clock: ``training`` for the paper's convention, ``everything`` to charge preparation as well.

    Returns:
        A PNG file.
    """
    figure = new_figure(8, 4.8)
    axes = figure.add_subplot()
    curves = [(result, _finite(result.curve)) for result in results]
    latest = max(_seconds(result.final, clock) for result in results) or results[0].prepared.setting.deadline_s
    labels = [_draw_run(axes, result, curve, clock, latest) for result, curve in curves if curve]
    if reference and math.isfinite(reference.score):
        axes.axhline(reference.score, color=DARK, linestyle="--", linewidth=1)
        labels.append((reference.score, "centralised", DARK))
    if labels:
        low, high = _score_limits([curve for _, curve in curves if curve], labels)
        axes.set_ylim(low, high)
        _label_ends(axes, labels, low, high)
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(0, latest)
    axes.set_xlabel(AXIS_TITLES[clock])
    axes.set_ylabel("test accuracy" if metric == "accuracy" else "test R²")
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    # A dollar sign in a file name must not start maths.
    axes.set_title(title, loc="left", fontsize=11, parse_math=False)
    return to_png(figure)


def _finite(curve: Sequence[Evaluation]) -> list[Evaluation]:
    """Return the points that can be drawn; a model may have overflowed, and the R2 of a single test row is NaN."""
    return [point for point in curve if math.isfinite(point.score)]


def _draw_run(axes: Axes, result: RunResult, curve: Sequence[Evaluation], clock: Clock, latest: float) -> Label:
    """Draw one learning curve and return the label for its end; a model that is there at once stays until the end."""
    name = result.scheme.name
    colour = COLOURS.get(name, DARK)
    times, scores = [_seconds(point, clock) for point in curve], [point.score for point in curve]
    if len(curve) == 1:
        times, scores = [*times, latest], scores * 2
    strong = name in ("scfl", "ccfl")
    axes.plot(
        times,
        scores,
        color=colour,
        linewidth=2.6 if strong else 1.6,
        zorder=3 if strong else 2,
    )
    suffix = " (diverged)" if result.status == "diverged" else ""
    return curve[-1].score, f"{result.scheme.title}{suffix}", colour


def _seconds(point: Evaluation, clock: Clock) -> float:
    return point.simulated_time_s if clock == "training" else point.everything_charged_s


def _score_limits(curves: Sequence[Sequence[Evaluation]], labels: list[Label]) -> tuple[float, float]:
    """Choose a range that shows where the schemes differ: it may cut off the steep start, but never the ends or the best."""
    ends = [end for end, _, _ in labels]
    high = max([*ends, *(point.score for curve in curves for point in curve)])
    early = min([*ends, *(curve[len(curve) // 20].score for curve in curves)])
    low = min([*ends, max(early, high - 5 * max(high - min(ends), 0.01))])
    margin = 0.04 * max(high - low, 1e-3)
    return low - margin, high + margin


def _label_ends(axes: Axes, labels: list[Label], low: float, high: float) -> None:
    """Label every line at its right end, with labels moved apart just enough not to overlap."""
    spacing = 0.06 * (high - low)
    ordered = sorted(labels)
    ends = [score for score, _, _ in ordered]
    heights = ends.copy()
    for i in range(1, len(heights)):
        heights[i] = max(heights[i], heights[i - 1] + spacing)
    shift = sum(height - end for height, end in zip(heights, ends, strict=True)) / max(len(ends), 1)
    for height, (end, text, colour) in zip(heights, ordered, strict=True):
        axes.annotate(
            text,
            xy=(1.0, end),
            xycoords=("axes fraction", "data"),
            xytext=(1.04, height - shift),
            textcoords=("axes fraction", "data"),
            va="center",
            color=colour,
            fontsize=9.5,
            annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.7, "alpha": 0.6, "shrinkB": 0},
        )
