"""Figures drawn to PNG bytes, without a display, and what all of them look alike in."""

from __future__ import annotations

import io
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.legend import Legend

DARK, GREY, PALE = "#333333", "#999999", "#EEEEEE"
RED, BLUE, ORANGE, GREEN, PINK = "#D55E00", "#0072B2", "#E69F00", "#009E73", "#CC79A7"
"""Colours that stay apart for colour-blind readers (Okabe and Ito)."""

LONGEST_NAME = 22
"""Characters of a device's name that a picture shows."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def tidy(axes: Axes, grid: Literal["x", "y"] = "y") -> None:
    """Draw light lines across one axis and no frame above and on the right."""
    axes.grid(axis=grid, color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)


def without_maths(legend: Legend) -> Legend:
    """Let names in a legend have dollar signs, which would start maths."""
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def cut(name: str) -> str:
    """Return a name, or the beginning of a long one.

    Example:
        >>> cut("north"), cut("the hospital at the northern end")
        ('north', 'the hospital at the n…')
    """
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes, reproducibly."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "codedfl"})
    return buffer.getvalue()
