"""Figures, tables and verdicts of the paper on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from codedfl.cli.style import new_table
from codedfl.paper import ITEMS, QUIRKS, Judgement, Reproduction

STYLES = {"confirmed": "green", "partly": "yellow", "not confirmed": "red"}


def items_table() -> Table:
    """Return what can be reproduced."""
    table = new_table("figures and tables")
    for name in ("name", "in the paper", "what it shows"):
        table.add_column(name)
    for item in ITEMS.values():
        table.add_row(item.name, item.place, item.title)
    return table


def quirks_table() -> Table:
    """Return where the paper contradicts itself."""
    table = new_table("quirks: other versions of the paper")
    for name in ("name", "what it does"):
        table.add_column(name)
    for name, text in QUIRKS.items():
        table.add_row(name, text)
    return table


def verdicts_table(done: Sequence[Reproduction]) -> Table:
    """Return the verdict on every claim."""
    table = new_table("claims of the paper", "a comparison holds if its 95% interval over seeds is on the right side")
    for name in ("figure", "claim", "panel", "verdict", "comparisons that hold"):
        table.add_column(name)
    for each in done:
        for judgement in each.judgements:
            table.add_row(
                each.item.name,
                Text(judgement.claim),
                judgement.panel,
                Text(judgement.verdict, style=STYLES[judgement.verdict]),
                _count(judgement),
            )
    return table


def _count(judgement: Judgement) -> str:
    holding = sum(item.finding == "holds" for item in judgement.evidence)
    return f"{holding} of {len(judgement.evidence)}"
