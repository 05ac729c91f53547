"""``codedfl run --seeds``."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from shlex import quote
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.live import live_training
from codedfl.cli.options import Settings
from codedfl.cli.outputs import discard_empty_runs
from codedfl.cli.tables import megabytes, new_table, no_time, print_verdict
from codedfl.experiment import SHARES, RunFolder, SeedRuns, best_schemes, run_seeds
from codedfl.privacy import keeps
from codedfl.tracking import Tracker


def run_several(
    folder: Path,
    folders: Sequence[RunFolder],
    settings: Settings,
    trackers: Sequence[Tracker] = (),
    *,
    new: bool,
    json_: bool,
) -> None:
    """Run all seeds, write what they have in common to the folder above them, and print it.

    Args:
        folder: the folder that holds those of the seeds.
        folders: one run folder per seed.
        settings: the configuration as it was given.
        trackers: where else to record the runs.
        new: whether the folders were made for this, and go if nothing comes of it.
        json_: print JSON instead of a table.
    """
    try:
        with live_training(trackers, quiet=json_) as (display, callbacks):
            if new:
                settings.tell_preset(display)
            runs = run_seeds(folders, progress=display, callbacks=callbacks)
    except Exception:
        if new:
            for each in folders:
                each.discard_unused()
            with suppress(OSError):  # it stays if results are in it
                folder.rmdir()
            discard_empty_runs()
        raise
    runs.write(folder)
    if json_:
        print(json.dumps(runs.summary()))
    else:
        _print_runs(runs, folder, Console())
    if runs.interrupted:
        sys.exit(130)


def _print_runs(runs: SeedRuns, folder: Path, console: Console) -> None:
    summary = runs.summary()
    if summary["schemes"]:
        console.print(seeds_table(summary))
    if runs.interrupted:
        resume = f"codedfl run --resume --out {quote(str(folder))}"
        console.print(Text(f"stopped early; continue with: {resume}"), soft_wrap=True)
    else:
        print_verdict(runs.verdict, console)
        console.print(Text(f"picture: {folder / 'curves.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}, one run folder per seed in it"), soft_wrap=True)


def seeds_table(summary: Mapping[str, Any]) -> Table:
    """Return the table of results over seeds; it fits a terminal of 80 columns."""
    metric, seeds = summary["metric"], summary["seeds"]
    reference = summary["centralised"][metric]["mean"]
    title = f"{summary['dataset']}, {len(seeds)} seeds ({seeds[0]} to {seeds[-1]}): "
    title += (
        "no centralised reference" if reference is None else f"the centralised optimum has {metric} {reference:.4f}"
    )
    table = new_table(
        title,
        "means over seeds; ±: half of the 95% t-interval of a mean; to 90%/95%: simulated seconds until that share of the"
        " centralised score; charged: simulated seconds with encoding and coded upload",
    )
    table.add_column("scheme", no_wrap=True)
    for name in (metric, "±", "lowest", "to 90%", "to 95%", "MB up", "charged"):
        table.add_column(name, justify="right", no_wrap=True)
    best = best_schemes(
        {scheme["scheme"]: scheme[metric]["mean"] for scheme in summary["schemes"]},
        {scheme["scheme"] for scheme in summary["schemes"] if _keeps(summary, scheme["scheme"])}
        if summary["epsilon"]
        else None,
    )
    for scheme in summary["schemes"]:
        score = scheme[metric]
        known = score["mean"] is not None
        table.add_row(
            scheme["title"],
            f"{score['mean']:.4f}" if known else f"{score['values'].count(None)} of {len(score['values'])} diverged",
            f"{score['high'] - score['mean']:.4f}" if known and score["high"] is not None else "-",
            f"{min(score['values']):.4f}" if known else "-",
            *(_time(scheme[f"time_to_{share}_s"], reference) for share in SHARES),
            megabytes(scheme["bytes_up"]["mean"]),
            f"{scheme['everything_charged_s']['mean']:.0f}",
            style="bold" if scheme["scheme"] in best else "",
        )
    return table


def _keeps(summary: Mapping[str, Any], name: str) -> bool:
    """Return whether a scheme keeps the epsilon of the runs under every seed."""
    results = (scheme for run in summary["runs"] for scheme in run["schemes"] if scheme["scheme"] == name)
    return all(keeps(scheme["privacy"], summary["epsilon"]) for scheme in results)


def _time(times: Mapping[str, Any], reference: float | None) -> str:
    """Return the mean time, or under how many seeds there was one."""
    reached = [value for value in times["values"] if value is not None]
    if times["mean"] is not None:
        return f"{times['mean']:.0f}"
    return f"{len(reached)} of {len(times['values'])}" if reached else no_time(reference)
