"""Figures drawn to PNG bytes, without a display."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DARK, GREY = "#333333", "#999999"
LONGEST_NAME = 22
"""Characters of a device's name that a picture shows."""


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


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
