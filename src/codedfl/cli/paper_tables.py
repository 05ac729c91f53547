"""Terminal tables of the paper's figures, quirks and verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from codedfl.cli.tables import new_table
from codedfl.paper import FIGURES, QUIRKS, Reproduction

STYLES = {"confirmed": "green", "partly": "yellow", "not confirmed": "red"}


def figures_table() -> Table:
    """Return a table of what can be reproduced."""
    table = new_table("figures and tables")
    for name in ("name", "in the paper", "what it shows"):
        table.add_column(name)
    for figure in FIGURES.values():
        table.add_row(figure.name, figure.place, figure.title)
    return table


def quirks_table() -> Table:
    """Return a table of alternative readings of the paper."""
    table = new_table("quirks: alternative readings of the paper")
    for name in ("name", "what it does"):
        table.add_column(name)
    for name, text in QUIRKS.items():
        table.add_row(name, text)
    return table


def verdicts_table(done: Sequence[Reproduction]) -> Table:
    """Return a table of the verdicts on all claims, by figure."""
    table = new_table(
        "claims of the paper", "h/f/o: comparisons that hold, fail or are open, by their 95% interval over seeds"
    )
    table.add_column("verdict", no_wrap=True)
    table.add_column("h/f/o", no_wrap=True)
    table.add_column("panel", no_wrap=True)
    table.add_column("claim")
    for each in done:
        table.add_row(Text(each.figure.name, style="bold"), "", "", Text(each.figure.place, style="bold"))
        for judgement in each.judgements:
            verdict = Text(judgement.verdict, style=STYLES[judgement.verdict])
            table.add_row(verdict, judgement.findings, judgement.panel, Text(judgement.claim))
    return table
