"""Tables of ``codedfl sweep``."""

from __future__ import annotations

from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.tables import add_columns, best_scores, new_table
from codedfl.experiment import short_names
from codedfl.results import CENTRALISED, SweepResults, columns_of

MOST_ROWS = 200
"""Rows that the terminal shows; the files hold all."""


def print_sweep(results: SweepResults, folder: Path, console: Console) -> None:
    """Print the table of a sweep, and where its files are."""
    if results.rows:
        console.print(sweep_table(results))
    if results.interrupted:
        resume = f"codedfl sweep --resume --out {quote(str(folder))}"
        console.print(
            Text(f"stopped after {results.complete} of {results.planned} runs; continue with: {resume}"), soft_wrap=True
        )
    if (folder / "sweep.png").is_file():
        console.print(Text(f"picture: {folder / 'sweep.png'}"), soft_wrap=True)
    elif results.rows:
        console.print(Text("no picture: it has room for up to three keys and sixteen panels"), soft_wrap=True)
    console.print(Text(f"table: {folder / 'sweep.csv'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}, one run folder per point in it"), soft_wrap=True)


def sweep_table(results: SweepResults) -> Table:
    """Return one row per point and scheme, with the best scheme of each point in bold."""
    points, names, several = results.tables(), short_names(list(results.axes)), results.seeds > 1
    caption = (
        "to 95%: simulated seconds until that share of the centralised score; charged: with encoding and coded upload"
    )
    if several:
        caption = f"means over {results.seeds} seeds; ±: half of the 95% t-interval of a mean; {caption}"
    count = sum(len(means.rows) for _, means in points)
    if count > MOST_ROWS:
        caption = f"the first {MOST_ROWS} of {count} rows; {caption}"
    references = {means.reference for _, means in points}
    (reference,) = references if len(references) == 1 else (None,)
    title = f"{results.dataset}, {results.complete} runs"
    if reference is not None:
        title += f": the centralised optimum has {results.metric} {reference:.4f}"
    table = new_table(title, caption)
    for name in names.values():
        table.add_column(Text(name.replace("_", " ")), overflow="fold")
    view = "terminal of a sweep over seeds" if several else "terminal of a sweep"
    columns = [
        column for column in columns_of(view, results.metric) if column.name != CENTRALISED.name or len(references) > 1
    ]
    add_columns(table, columns)
    for values, means in points:
        best = best_scores(means, columns)
        for place, row in enumerate(means.rows[: MOST_ROWS - table.row_count]):
            table.add_row(
                *("" if place else Text(_value(value)) for value in values.values()),
                *(means.text(column, row) for column in columns),
                style="bold" if row["scheme"] in best else "",
            )
    return table


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
