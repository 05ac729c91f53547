"""Figures drawn to PNG bytes, without a display."""

from __future__ import annotations

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

DARK, GREY = "#333333", "#999999"


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure of the given size in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def to_png(figure: Figure) -> bytes:
    """Return a figure as PNG bytes, reproducibly."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": "codedfl"})
    return buffer.getvalue()
