"""Tables of ``codedfl sweep``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.tables import megabytes, new_table, no_time
from codedfl.experiment import SweepResults, best_schemes, short_names
from codedfl.privacy import keeps

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
    means, names, several = results.means(), short_names(list(results.axes)), results.seeds > 1
    caption = (
        "to 95%: simulated seconds until that share of the centralised score; charged: with encoding and coded upload"
    )
    if several:
        caption = f"means over {results.seeds} seeds; ±: half of the 95% t-interval of a mean; {caption}"
    if len(means) > MOST_ROWS:
        caption = f"the first {MOST_ROWS} of {len(means)} rows; {caption}"
    references = {mean["centralised"]["mean"] for mean in means}
    (reference,) = references if len(references) == 1 else (None,)
    title = f"{results.dataset}, {results.complete} runs"
    if reference is not None:
        title += f": the centralised optimum has {results.metric} {reference:.4f}"
    table = new_table(title, caption)
    for name in names.values():
        table.add_column(Text(name.replace("_", " ")), overflow="fold")
    centralised = ("centralised",) if len(references) > 1 else ()
    table.add_column("scheme", no_wrap=True)
    for name in (results.metric, *(("±",) if several else ()), *centralised, "to 95%", "MB up", "charged"):
        table.add_column(name, justify="right", no_wrap=True)
    before: Mapping[str, Any] | None = None
    best: frozenset[str] = frozenset()
    for mean in means[:MOST_ROWS]:
        point, score = mean["values"], mean["score"]
        first = point != before
        if first:
            best = _best(results, [other for other in means if other["values"] == point])
        table.add_row(
            *(Text(_value(value)) if first else "" for value in point.values()),
            mean["title"],
            "diverged" if score["mean"] is None else f"{score['mean']:.4f}",
            *((_half_width(score),) if several else ()),
            *(_number(mean[name]) for name in centralised),
            _time(mean["time_to_95_s"], mean["centralised"]["mean"]),
            megabytes(mean["bytes_up"]["mean"]),
            f"{mean['everything_charged_s']['mean']:.0f}",
            style="bold" if mean["scheme"] in best else "",
        )
        before = point
    return table


def _best(results: SweepResults, means: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    """Return the best schemes of a point."""
    target = means[0]["target_epsilon"]
    here = [row for row in results.rows if row["values"] == means[0]["values"]]
    failing = {row["scheme"] for row in here if target and not keeps(row, target)}
    scores = {mean["scheme"]: mean["score"]["mean"] for mean in means}
    return best_schemes(scores, scores.keys() - failing if target else None)


def _number(value: Mapping[str, Any]) -> str:
    return "-" if value["mean"] is None else f"{value['mean']:.4f}"


def _half_width(score: Mapping[str, Any]) -> str:
    return "-" if score["high"] is None else f"{score['high'] - score['mean']:.4f}"


def _time(times: Mapping[str, Any], reference: float | None) -> str:
    return no_time(reference) if times["mean"] is None else f"{times['mean']:.0f}"


def _value(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
