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
from codedfl.cli.tables import fill_table, new_table, print_verdict
from codedfl.experiment import RunFolder, run_seeds
from codedfl.results import SeedRuns, table_over_seeds
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
    results = table_over_seeds(summary)
    fill_table(table, results, results.columns("terminal over seeds"))
    return table
