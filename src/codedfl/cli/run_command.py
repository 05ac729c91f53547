"""``codedfl run``."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import Json, Out, Settings, configurable


@configurable(
    *("scheme", "dataset", "target", "devices", "rounds", "total_time", "tau"),
    *("coded_samples", "noise_variance", "seed", "data_dir"),
)
def run(
    settings: Settings,
    *,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, or the latest one in runs/.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train schemes side by side in one setting; print a table and write a run folder with a picture."""
    from codedfl.cli.runs import latest_run, new_run_path, print_comparison, run_with_progress
    from codedfl.errors import InputError
    from codedfl.experiment import RunFolder, summarise

    if {"training.rounds", "training.total_time_s"} <= {key for key, _ in settings.overrides}:
        raise InputError("--rounds and --total-time exclude each other: give one of them.")
    if resume:
        if not settings.empty:
            raise InputError(
                "--resume takes the configuration from the run folder: give no other option than --out and --json."
            )
        folder = RunFolder.reopen(out or latest_run())
    else:
        config = settings.load()
        folder = RunFolder.create(out or new_run_path(config.data.dataset), config)
    try:
        comparison = run_with_progress(folder, quiet=json_)
    except (InputError, MemoryError):
        if not resume:
            folder.discard_unused()
        raise
    if json_:
        print(json.dumps(summarise(comparison)))
    else:
        print_comparison(comparison, folder, Console())
    if comparison.interrupted:
        sys.exit(130)
