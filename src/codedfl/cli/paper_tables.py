"""Figures, tables and verdicts of the paper on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from codedfl.cli.tables import new_table
from codedfl.paper import ITEMS, QUIRKS, Reproduction

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
    """Return the verdict on every claim, figure by figure."""
    table = new_table(
        "claims of the paper", "h/f/o: comparisons that hold, fail or are open, by their 95% interval over seeds"
    )
    table.add_column("verdict", no_wrap=True)
    table.add_column("h/f/o", no_wrap=True)
    table.add_column("panel", no_wrap=True)
    table.add_column("claim")
    for each in done:
        table.add_row(Text(each.item.name, style="bold"), "", "", Text(each.item.place, style="bold"))
        for judgement in each.judgements:
            verdict = Text(judgement.verdict, style=STYLES[judgement.verdict])
            table.add_row(verdict, judgement.findings, judgement.panel, Text(judgement.claim))
    return table
