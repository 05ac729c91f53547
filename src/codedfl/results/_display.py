"""A comparison to look at: in one line, as a picture, and as HTML for a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from codedfl.results._rows import table_of
from codedfl.training import RunResult

if TYPE_CHECKING:
    from codedfl.plotting import Clock
    from codedfl.results._comparison import Comparison

CELL = "padding:2px 10px;text-align:"


def in_one_line(comparison: Comparison) -> str:
    """Return data, schemes and scores in one line."""
    federation, evaluator = comparison.setting.federation, comparison.evaluator
    scores = ", ".join(f"{result.scheme.name} {_score(result)}" for result in comparison.results)
    reference = f"; centralised {evaluator.reference.score:.4f}" if evaluator.reference else ""
    data = f"{comparison.config.data.dataset!r} on {federation.devices} device(s)"
    return f"Comparison({data}, {evaluator.metric}: {scores or 'no results'}{reference})"


def curves_png(comparison: Comparison, clock: Clock) -> bytes:
    """Draw the learning curves of a comparison on one of the clocks, as a PNG file."""
    from codedfl.plotting import draw_curves  # matplotlib is slow to import and needed only here

    setting, evaluator = comparison.setting, comparison.evaluator
    late = f"{setting.timing().straggler_ratio(1):.0%} of them late in a round"
    if setting.privacy is not None:
        seen = "sums only" if setting.privacy.sums_only else "each message"
        late = f"epsilon = {setting.privacy.epsilon:g} against a server that sees {seen}"
    return draw_curves(
        comparison.results,
        title=f"{comparison.config.data.dataset}: {setting.federation.devices} devices, {late}",
        metric=evaluator.metric,
        reference=evaluator.reference,
        clock=clock,
    )


def in_html(comparison: Comparison) -> str:
    """Return a table of the results above the learning curves, as HTML that needs no other file."""
    reference = comparison.evaluator.reference
    title = f"{comparison.config.data.dataset}: {comparison.setting.federation.total_samples} samples on "
    title += f"{comparison.setting.federation.devices} devices"
    if reference:
        title += f"; the centralised optimum has {comparison.evaluator.metric} {reference.score:.4f}"
    table = table_of(comparison)
    columns = table.columns("notebook")
    best = table.best(next(column for column in columns if column.is_score))
    rows = []
    for row in table.rows:
        weight = "bold" if row["scheme"] in best else "normal"
        status = "" if row["status"] == "completed" else f" ({row['status']})"
        cells = [table.text(columns[0], row) + status, *(table.text(column, row) for column in columns[1:])]
        rows.append(_row("td", cells, f' style="font-weight:{weight}"'))
    head = _row("th", [column.title for column in columns])
    shown = f"<table><caption>{escape(title)}</caption>{head}{''.join(rows)}</table>"
    return f'<div class="codedfl">{shown}{_picture(comparison)}</div>'


def _picture(comparison: Comparison) -> str:
    if not comparison.results:
        return "<p>no scheme has results yet</p>"
    image = b64encode(curves_png(comparison, "everything")).decode("ascii")
    return f'<img alt="learning curves" style="max-width:100%;width:720px" src="data:image/png;base64,{image}">'


def _row(kind: str, cells: Sequence[str], attributes: str = "") -> str:
    shown = [
        f'<{kind} style="{CELL}{"left" if place == 0 else "right"}">{escape(cell)}</{kind}>'
        for place, cell in enumerate(cells)
    ]
    return f"<tr{attributes}>{''.join(shown)}</tr>"


def _score(result: RunResult) -> str:
    return "diverged" if result.status == "diverged" else f"{result.final.score:.4f}"
