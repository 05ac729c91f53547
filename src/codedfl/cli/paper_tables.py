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


def claims_table(done: Sequence[Reproduction], *, quick: bool = False) -> Table:
    """Return a table of the verdicts on all claims, by figure.

    Args:
        done: the reproduced figures.
        quick: whether runs were reduced; the table then counts comparisons and has no verdicts.
    """
    table = new_table(
        "comparisons in the quick version" if quick else "claims of the paper",
        "h/f/o: comparisons that hold, fail or are open, by their 95% interval over seeds",
    )
    columns = ("verdict", "h/f/o", "panel")[1 if quick else 0 :]
    for column in columns:
        table.add_column(column, no_wrap=True)
    table.add_column("compared" if quick else "claim")
    for each in done:
        name, place = (Text(text, style="bold") for text in (each.figure.name, each.figure.place))
        table.add_row(name, *("" for _ in columns[1:]), place)
        for judgement in each.judgements:
            verdict = [] if quick else [Text(judgement.verdict, style=STYLES[judgement.verdict])]
            table.add_row(*verdict, judgement.findings, judgement.panel, Text(judgement.claim))
    return table
