"""``codedfl run``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from codedfl.cli.options import (
    CodedSamples,
    ConfigFile,
    DataDir,
    DatasetName,
    Devices,
    Json,
    NoiseVariance,
    Seed,
    Settings,
    Targets,
    collect_overrides,
)


def run(
    config: ConfigFile = None,
    scheme: Annotated[
        list[str] | None, typer.Option(help="Scheme to train; repeat for several.", show_default="all")
    ] = None,
    dataset: DatasetName = None,
    target: Targets = None,
    devices: Devices = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds of every scheme (instead of a total time).")] = None,
    total_time: Annotated[
        float | None, typer.Option(help="Simulated training time in seconds.", show_default="400")
    ] = None,
    tau: Annotated[int | None, typer.Option(help="Local steps in a round.", show_default="5")] = None,
    coded_samples: CodedSamples = None,
    noise_variance: NoiseVariance = None,
    seed: Seed = None,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Run folder.", show_default="a new one in runs/")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, or with the latest in runs/.")
    ] = False,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Train schemes side by side in one setting; print a table and write a run folder with a picture."""
    from codedfl.cli.runs import latest_run, new_run_path, print_comparison, run_with_progress
    from codedfl.errors import InputError
    from codedfl.experiment import RunFolder, load_config, summarise

    overrides = collect_overrides(
        {
            "schemes": scheme,
            "data.dataset": dataset,
            "data.target": target,
            "data.devices": devices,
            "training.rounds": rounds,
            "training.total_time_s": total_time,
            "training.local_steps": tau,
            "coding.coded_samples": coded_samples,
            "coding.noise_variance": noise_variance,
            "seed": seed,
            "data.data_dir": data_dir,
        },
        set_,
    )
    if rounds is not None and total_time is not None:
        raise InputError("--rounds and --total-time exclude each other: give one of them.")
    if resume:
        if config or overrides:
            raise InputError(
                "--resume takes the configuration from the run folder: give no other option than --out and --json."
            )
        folder = RunFolder.reopen(out or latest_run())
    else:
        settled = load_config(config, overrides)
        folder = RunFolder.create(out or new_run_path(settled.data.dataset), settled)
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
