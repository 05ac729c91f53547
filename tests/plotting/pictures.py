"""What holds for every picture: one can read it."""

from __future__ import annotations

from itertools import combinations

from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

SLACK = 1.0
"""Pixels by which boxes around letters may overlap: they are rounded up."""


def assert_readable(figure: Figure) -> None:
    """Check that no text is cut off or overlaps another, and that legends lie beside the curves."""
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_visible() and text.get_text()]
    hidden = outside_limits(figure)
    drawn = [text for text in texts if text not in hidden]
    boxes = [(text.get_text(), text.get_window_extent()) for text in drawn]
    assert boxes
    page = figure.bbox
    for words, box in boxes:
        assert box.x0 >= page.x0 - SLACK, words
        assert box.y0 >= page.y0 - SLACK, words
        assert box.x1 <= page.x1 + SLACK, words
        assert box.y1 <= page.y1 + SLACK, words
    # A box has upright sides, so that those of slanted names overlap where the names do not.
    upright = [(text.get_text(), text.get_window_extent()) for text in drawn if text.get_rotation() % 90 == 0]
    for (one, first), (other, second) in combinations(upright, 2):
        assert not overlap(first, second), (one, other)
    legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()))]
    for legend in legends:
        for axes in figure.axes:
            assert not overlap(legend.get_window_extent(), axes.get_window_extent())


def outside_limits(figure: Figure) -> set[Text]:
    """Return the labels of ticks outside the limits of their axis, which exist and are not drawn."""
    found: set[Text] = set()
    for axes in figure.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not min(limits) <= tick.get_loc() <= max(limits):
                    found |= {tick.label1, tick.label2}
    return found


def overlap(one: Bbox, other: Bbox) -> bool:
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return bool(wide > SLACK and high > SLACK)
