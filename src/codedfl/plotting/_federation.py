"""The picture of a federation: the score over time, and who arrived in which round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from codedfl.plotting._canvas import DARK, cut, new_figure, to_png
from codedfl.typing import BoolArray, FloatArray

BLUE, ORANGE, PALE = "#0072B2", "#E69F00", "#EEEEEE"
MOST_DEVICES = 40


def draw_federation(
    rounds: Sequence[int],
    scores: Sequence[float | None],
    metric: str,
    names: Sequence[str],
    asked: BoolArray,
    arrived: BoolArray,
) -> bytes:
    """Draw the learning curve above a map of arrivals, on one axis of rounds.

    Args:
        rounds: rounds completed at each evaluation.
        scores: score at each evaluation; None where there is no test data.
        metric: what the score is.
        names: names of the devices.
        asked: who was reachable and asked in each round, (K, N).
        arrived: whose update arrived in time, (K, N).

    Returns:
        A PNG file.
    """
    return to_png(federation_figure(rounds, scores, metric, names, asked, arrived))


def federation_figure(
    rounds: Sequence[int],
    scores: Sequence[float | None],
    metric: str,
    names: Sequence[str],
    asked: BoolArray,
    arrived: BoolArray,
) -> Figure:
    """Return the figure that `draw_federation` writes."""
    shown = min(len(names), MOST_DEVICES)
    figure = new_figure(9, 3.4 + 0.26 * shown)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 0.45 + 0.26 * shown))
    measured = [(number, score) for number, score in zip(rounds, scores, strict=True) if score is not None]
    # The zero model before the first round would squeeze the rest of the curve into a corner.
    known = [point for point in measured if point[0] > 0] or measured
    if known:
        above.plot(*zip(*known, strict=True), color=BLUE, linewidth=1.8, marker="o", markersize=3)
    else:
        above.text(0.5, 0.5, "the server has no test data", ha="center", transform=above.transAxes, color=DARK)
    above.set_ylabel(metric)
    above.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    end = f", {known[-1][1]:.3f} in the end" if known else ""
    above.set_title(f"{metric} on the server's test data after each round{end}", loc="left", fontsize=11)
    state: FloatArray = np.where(arrived, 2.0, np.where(asked, 1.0, 0.0))[:, :shown].T
    if len(arrived):
        colours = ListedColormap([PALE, ORANGE, BLUE])
        edges = np.arange(len(arrived) + 1) + 0.5, np.arange(shown + 1) - 0.5
        thin = 1.0 if len(arrived) <= 100 else 0.0
        below.pcolormesh(*edges, state, cmap=colours, vmin=0, vmax=2, edgecolors="white", linewidth=thin)
        below.invert_yaxis()
    below.set_yticks(range(shown), [cut(name) for name in names[:shown]], parse_math=False)
    below.set_xlabel("round")
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    keys = ((BLUE, "arrived"), (ORANGE, "asked, but late"), (PALE, "not asked"))
    patches = [Patch(color=colour, label=label) for colour, label in keys]
    figure.legend(handles=patches, fontsize=8, frameon=False, ncols=3, loc="outside lower center")
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure
