"""Running a comparison from the command line."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from shlex import quote

from rich.console import Console
from rich.text import Text

from codedfl.cli.progress import ProgressDisplay
from codedfl.cli.tables import devices_table, results_table, warnings_of
from codedfl.errors import InputError
from codedfl.experiment import Comparison, RunFolder
from codedfl.experiment import run as run_comparison
from codedfl.training import StopOnInterrupt

RUNS = Path("runs")


def new_run_path(dataset: str) -> Path:
    """Return a folder in ``runs/`` that does not exist yet, named by time and dataset."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    path = RUNS / f"{stamp}-{Path(dataset).stem}"
    count = 2
    while path.exists():
        path = RUNS / f"{stamp}-{Path(dataset).stem}-{count}"
        count += 1
    return path


def results_folder(out: Path | None, name: str) -> Path:
    """Return the folder that results go to: as given, or a new one in ``runs/``.

    Raises:
        InputError: if it holds anything already, so that nothing is overwritten, or cannot be made.
    """
    folder = out or new_run_path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"{folder} exists and is not empty: give another --out.")
    parent = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise InputError(
            f"{folder} cannot be made, as {parent} is not a folder that can be written: give another --out."
        )
    return folder


def latest_run() -> Path:
    """Return the newest run folder in ``runs/``."""
    found = sorted(RUNS.glob("*/config.toml"), key=lambda file: file.stat().st_mtime)
    if not found:
        raise InputError("--resume: there is no run in runs/ to go on with, give its folder with --out.")
    return found[-1].parent


def run_with_progress(folder: RunFolder, *, quiet: bool) -> Comparison:
    """Run with a live display on standard error; Ctrl-C ends it after the current round."""
    stop = StopOnInterrupt()
    console = Console(stderr=True)
    with stop.listening(), ProgressDisplay(console, verbose=not quiet) as display:
        return run_comparison(folder.config, folder=folder, progress=display, callbacks=(stop,))


def print_comparison(comparison: Comparison, folder: RunFolder, console: Console) -> None:
    """Print who holds which data, the results, and what deserves attention."""
    console.print(devices_table(comparison))
    if comparison.results:
        console.print(results_table(comparison))
    for warning in warnings_of(comparison):
        console.print(Text("note: ", style="yellow").append(warning, style="default"))
    if comparison.interrupted:
        console.print(
            Text(f"stopped early; go on with: codedfl run --resume --out {quote(str(folder.path))}"), soft_wrap=True
        )
    if comparison.results:
        console.print(Text(f"picture: {folder.path / 'curves.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder.path}"), soft_wrap=True)
