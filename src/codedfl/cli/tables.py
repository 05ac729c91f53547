"""Tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from shlex import quote

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from codedfl.cli.plugin_command import broken_schemes, usable_schemes
from codedfl.data import DatasetStatus, DeviceSummary
from codedfl.results import Column, Comparison, ResultTable, Verdict, notes_on, table_of, verdict
from codedfl.schemes import COLUMNS, SCHEMES, describe, make_scheme

MOST_DEVICES = 40
"""Maximum number of devices listed."""

FLEET_COLUMNS = {"transmit_power_dbm": "power dBm", "mean_s": "mean s", "p95_s": "95% s"}
"""What a table of devices shows of a fleet, and how it calls it."""


def new_table(title: str | None = None, caption: str | None = None, *, header: bool = True) -> Table:
    """Return an empty table in the common style; brackets in its title are not markup."""
    return Table(
        title=None if title is None else Text(title, style="table.title"),
        title_justify="left",
        caption=caption,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        show_edge=False,
        show_header=header,
        pad_edge=False,
        collapse_padding=True,
    )


def print_comparison(comparison: Comparison, folder: Path, console: Console) -> None:
    """Print the devices and their data, the results, the notes, and the verdict."""
    console.print(devices_table(comparison))
    if comparison.results:
        console.print(results_table(comparison))
    for note in notes_on(comparison):
        console.print(Text("note: ", style="yellow").append(note, style="default"))
    if comparison.results and not comparison.interrupted:
        print_verdict(verdict(comparison), console)
    if comparison.interrupted:
        resume = f"codedfl run --resume --out {quote(str(folder))}"
        console.print(Text(f"stopped early; continue with: {resume}"), soft_wrap=True)
    if comparison.results:
        console.print(Text(f"picture: {folder / 'curves.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def print_verdict(found: Verdict, console: Console) -> None:
    """Print a verdict, one sentence below the other."""
    console.print(Text("verdict", style="bold"))
    sentences = Table.grid(padding=(0, 1, 0, 0))
    for sentence in found.sentences:
        sentences.add_row("-", Text(sentence))
    console.print(sentences)


def results_table(comparison: Comparison) -> Table:
    """Return the table of results; it fits a terminal of 80 columns."""
    reference, metric = comparison.evaluator.reference, comparison.evaluator.metric
    title = f"{comparison.config.data.dataset}: " + (
        f"the centralised optimum has {metric} {reference.score:.4f}" if reference else "no centralised reference"
    )
    charged = "charged: simulated seconds with encoding and coded upload"
    found = new_table(
        title,
        f"epsilon: of what is covered, everything that devices send or the upload alone; {charged}"
        if comparison.setting.privacy is not None
        else f"to 90%/95%: simulated seconds until that share of the centralised score; {charged};"
        " MI-DP: bits per entry of the coded features, valid for all data",
    )
    results = table_of(comparison)
    fill_table(found, results, results.columns("terminal"))
    return found


def fill_table(table: Table, results: ResultTable, columns: Sequence[Column]) -> None:
    """Add the columns, and a row for each scheme, with those of the best score in bold."""
    add_columns(table, columns)
    best = best_scores(results, columns)
    for row in results.rows:
        table.add_row(*(results.text(column, row) for column in columns), style="bold" if row["scheme"] in best else "")


def add_columns(table: Table, columns: Iterable[Column]) -> None:
    """Add the headings of the columns of a result."""
    for column in columns:
        table.add_column(column.title, justify="right" if column.is_number else "left", no_wrap=True)


def best_scores(results: ResultTable, columns: Iterable[Column]) -> frozenset[str]:
    """Return the schemes with the best score."""
    return frozenset().union(*(results.best(column) for column in columns if column.is_score))


def devices_table(comparison: Comparison) -> Table:
    """Return a table of each device's data and its arrival probability with the smallest batch."""
    setting = comparison.setting
    probability = setting.timing().arrival_probability(1)
    summaries = setting.federation.describe()
    radio = f"{setting.channel.bandwidth_hz / 1e3:.1f} kHz each"
    title = radio if setting.fleet.radio else f"rounds of {setting.deadline_s:g} s"
    described = {name: values for name, values in setting.fleet.columns().items() if name in FLEET_COLUMNS}
    table = new_table(f"devices ({title})")
    table.add_column("device")
    table.add_column("samples", justify="right")
    table.add_column("classes: samples" if setting.federation.task == "classification" else "")
    for name in described:
        table.add_column(FLEET_COLUMNS[name], justify="right")
    table.add_column("arrives", justify="right")
    for i, device in enumerate(summaries[:MOST_DEVICES]):
        table.add_row(
            Text(device.name),
            str(device.samples),
            Text(_classes(device)),
            *(f"{values[i]:.1f}" for values in described.values()),
            f"{probability[i]:.2f}",
        )
    if len(summaries) > MOST_DEVICES:
        table.add_row(f"and {len(summaries) - MOST_DEVICES} more")
    return table


def _classes(device: DeviceSummary) -> str:
    shown = [f"{name}: {count}" for name, count in list(device.classes.items())[:6]]
    return ", ".join(shown) + (", ..." if len(device.classes) > 6 else "")


def datasets_table(found: Iterable[DatasetStatus]) -> Table:
    """Return a table of the named datasets and their locations."""
    table = Table()
    for name in ("dataset", "available", "where", "what"):
        table.add_column(name, overflow="fold")
    for status in found:
        available = Text("yes", style="green") if status.available else Text("no", style="red")
        where = status.location if status.available else f"{status.location}: {status.hint}"
        what = f"{status.description} (from {status.package})" if status.package else status.description
        table.add_row(status.name, available, Text(where), Text(what))
    return table


def schemes_json() -> list[dict[str, str]]:
    """Return Table I of the paper as plain text, one dictionary per scheme, with the package of those that plug-ins offer."""
    keys = [name.replace(", ", "_").replace(" ", "_") for name in COLUMNS]
    packages = dict.fromkeys(SCHEMES, "") | usable_schemes()
    return [
        {
            "title": make_scheme(name).title,
            **dict(zip(keys, (cell.strip("`") for cell in describe(make_scheme(name))), strict=True)),
            "package": package,
        }
        for name, package in packages.items()
    ]


def schemes_table() -> Table:
    """Return Table I of the paper, generated from the code, and what plug-ins add to it."""
    from_plugins = usable_schemes()
    rows = [[cell.strip("`") for cell in describe(make_scheme(name))] for name in (*SCHEMES, *from_plugins)]
    remarks = [f"{name} comes from {package}" for name, package in from_plugins.items()] + broken_schemes()
    table = new_table(caption=escape("; ".join(remarks)) or None)
    table.padding = 0  # seven columns of words leave no room for more than a space between them
    for name, cells in zip(COLUMNS, zip(*rows, strict=True), strict=True):
        longest_word = max(len(word) for cell in (name, *cells) for word in cell.split())
        table.add_column(name, width=None if "each round" in name else longest_word)
    for row in rows:
        table.add_row(*row)
    return table
