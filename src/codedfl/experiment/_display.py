"""A comparison to look at: in one line, as a picture, and as HTML for a notebook."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from codedfl._messages import number
from codedfl.training import RunResult

if TYPE_CHECKING:
    from codedfl.experiment._comparison import Comparison
    from codedfl.plotting import Clock

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
    private, reference = comparison.setting.privacy is not None, comparison.evaluator.reference
    title = f"{comparison.config.data.dataset}: {comparison.setting.federation.total_samples} samples on "
    title += f"{comparison.setting.federation.devices} devices"
    if reference:
        title += f"; the centralised optimum has {comparison.evaluator.metric} {reference.score:.4f}"
    columns = ["scheme", comparison.evaluator.metric, "rounds", "simulated s", "everything charged s", "MB up"]
    columns += ["epsilon", "covers"] if private else []
    best = max((result.final.score for result in comparison.results if result.status != "diverged"), default=None)
    rows = []
    for result in comparison.results:
        weight = "bold" if result.final.score == best and result.status != "diverged" else "normal"
        rows.append(_row("td", _cells(comparison, result, private), f' style="font-weight:{weight}"'))
    table = f"<table><caption>{escape(title)}</caption>{_row('th', columns)}{''.join(rows)}</table>"
    return f'<div class="codedfl">{table}{_picture(comparison)}</div>'


def _picture(comparison: Comparison) -> str:
    if not comparison.results:
        return "<p>no scheme has results yet</p>"
    image = b64encode(curves_png(comparison, "everything")).decode("ascii")
    return f'<img alt="learning curves" style="max-width:100%;width:720px" src="data:image/png;base64,{image}">'


def _cells(comparison: Comparison, result: RunResult, private: bool) -> Iterator[str]:
    final = result.final
    yield result.scheme.title if result.status == "completed" else f"{result.scheme.title} ({result.status})"
    yield _score(result)
    yield str(final.round)
    yield f"{final.simulated_time_s:.0f}"
    yield f"{final.everything_charged_s:.0f}"
    yield f"{final.bytes_up / 1e6:.1f}"
    if private:
        guarantee = comparison.guarantee(result.scheme.name)
        yield number(guarantee.epsilon)
        yield guarantee.covers


def _row(kind: str, cells: list[str] | Iterator[str], attributes: str = "") -> str:
    shown = [
        f'<{kind} style="{CELL}{"left" if place == 0 else "right"}">{escape(cell)}</{kind}>'
        for place, cell in enumerate(cells)
    ]
    return f"<tr{attributes}>{''.join(shown)}</tr>"


def _score(result: RunResult) -> str:
    return "diverged" if result.status == "diverged" else f"{result.final.score:.4f}"
