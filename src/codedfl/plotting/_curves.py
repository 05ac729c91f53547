"""The picture of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from codedfl.plotting._canvas import DARK, new_figure, to_png
from codedfl.plotting._lines import Line, lines_of
from codedfl.training import Evaluation, Reference, RunResult

Clock = Literal["training", "everything"]

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
    metric: Literal["accuracy", "r2"],
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
        axes.set_ylim(*_score_limits([curve for _, curve in curves if curve], [end for end, _ in lines]))
        # The order of the ends, so that the eye finds a line by its height; names of plug-ins may have a dollar sign.
        ordered = [line for _, line in sorted(lines, key=lambda item: -item[0])]
        legend = figure.legend(
            handles=ordered, loc="outside right upper", fontsize=9, frameon=False, title="in the end"
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
    if metric == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlim(0, 1.01 * latest)  # the dots at the ends are not cut
    axes.set_xlabel(AXIS_TITLES[clock])
    axes.set_ylabel("test accuracy" if metric == "accuracy" else "test R²")
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    # A dollar sign in a file name must not start maths.
    axes.set_title(title, loc="left", fontsize=11, parse_math=False)
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
    metric: Literal["accuracy", "r2"],
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


def _in_words(score: float, metric: Literal["accuracy", "r2"]) -> str:
    return f"{score:.1%}" if metric == "accuracy" else f"{score:.3f}"


def _seconds(point: Evaluation, clock: Clock) -> float:
    return point.simulated_time_s if clock == "training" else point.everything_charged_s


def _score_limits(curves: Sequence[Sequence[Evaluation]], ends: Sequence[float]) -> tuple[float, float]:
    """Choose a range that shows where the schemes differ: it may cut off the steep start, but never the ends or the best."""
    high = max([*ends, *(point.score for curve in curves for point in curve)])
    early = min([*ends, *(curve[len(curve) // 20].score for curve in curves)])
    low = min([*ends, max(early, high - 5 * max(high - min(ends), 0.01))])
    margin = 0.04 * max(high - low, 1e-3)
    return low - margin, high + margin
