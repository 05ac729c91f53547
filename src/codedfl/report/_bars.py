"""Stacked bars as plain SVG: they need no script, and follow the colours of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from codedfl.report._html import Html, joined, markup


def stacked_bars(
    parts: Sequence[tuple[str, str]],
    rows: Sequence[tuple[str, Sequence[float]]],
    shown: Callable[[float], str],
    caption: str,
) -> Html:
    """Return one bar per row, each the sum of its parts.

    Args:
        parts: the class of each part, which gives its colour, and its name.
        rows: the label of each row with one value per part.
        shown: how to write a value.
        caption: what the bars show.
    """
    used = [place for place in range(len(parts)) if any(values[place] > 0 for _, values in rows)]
    longest = max((sum(values) for _, values in rows), default=0.0)
    if not used or longest <= 0:
        return Html()
    legend = joined(markup('<li><span class="swatch {}"></span>{}</li>', *parts[place]) for place in used)
    lines = joined(_row(label, values, parts, used, longest, shown) for label, values in rows)
    return markup(
        '<figure class="bars"><figcaption>{}</figcaption><ul class="legend">{}</ul><div class="rows">{}</div></figure>\n',
        caption,
        legend,
        lines,
    )


def _row(
    label: str,
    values: Sequence[float],
    parts: Sequence[tuple[str, str]],
    used: Sequence[int],
    longest: float,
    shown: Callable[[float], str],
) -> Html:
    start, pieces = 0.0, []
    for place in used:
        width = 100 * values[place] / longest
        if width > 0:
            pieces.append(
                markup(
                    '<rect class="{}" x="{}" width="{}" height="1"><title>{}</title></rect>',
                    parts[place][0],
                    f"{start:.3f}",
                    f"{width:.3f}",
                    f"{label}, {parts[place][1]}: {shown(values[place])}",
                )
            )
        start += width
    words = ", ".join(f"{parts[place][1]} {shown(values[place])}" for place in used if values[place] > 0) or shown(0)
    return markup(
        '<span class="name" title="{0}">{0}</span>'
        '<svg viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{0}: {1}">{2}</svg>'
        '<span class="value">{3}</span>',
        label,
        words,
        joined(pieces),
        shown(sum(values)),
    )
