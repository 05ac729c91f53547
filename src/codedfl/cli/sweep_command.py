"""``codedfl sweep``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from codedfl.cli.options import OF_TRAINING, Json, Out, Settings, configurable

if TYPE_CHECKING:
    from codedfl.config import Config


@configurable(*OF_TRAINING)
def sweep(
    settings: Settings,
    *,
    over: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SECTION.KEY=VALUE,VALUE",
            help="A key and the values to give it; repeat it for a grid. The first key is the axis of the picture.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(help="Run every point under this many seeds, from --seed on.")] = 1,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the sweep in --out; complete points are kept.")
    ] = False,
    json_: Json = False,
) -> None:
    """Train schemes on a grid of settings; print a table, and write a CSV file, a picture and a run folder per point.

    Example: codedfl sweep --over coding.noise_variance=0.1,1,10 --over fleet.straggler_ratio=0.1,0.5 --scheme scfl
    """
    from codedfl.cli.live import live_training
    from codedfl.cli.outputs import discard_empty_runs, results_folder
    from codedfl.cli.sweep_tables import print_sweep
    from codedfl.errors import InputError
    from codedfl.experiment import SweepFolder, grid_points, parse_axes

    if resume:
        if over or not settings.empty or seeds != 1 or out is None:
            raise InputError(
                "--resume takes everything from the folder of the sweep: give --out, and nothing else but --json."
            )
        folder = SweepFolder.reopen(out)
    else:

        def load(point: Sequence[tuple[str, Any]]) -> Config:
            return Settings(settings.file, [*settings.overrides, *point]).load()

        axes = parse_axes(over or ())
        if {"training.rounds", "training.total_time_s"} <= {*axes, *(key for key, _ in settings.overrides)}:
            raise InputError("training.rounds and training.total_time_s exclude each other: give one of them.")
        points = grid_points(load, axes, seeds)
        if_full = "add --resume to continue the sweep in it, or give another --out"
        path = results_folder(out, points[0].config.data.dataset, "sweep", if_full=if_full)
        folder = SweepFolder.create(path, axes, points)
    try:
        with live_training(quiet=json_) as (display, callbacks):
            results = folder.run(progress=display, callbacks=callbacks)
    except Exception:
        if not resume:
            folder.discard_unused()
            discard_empty_runs()
        raise
    if json_:
        print(json.dumps(results.as_dict()))
    else:
        print_sweep(results, folder.path, Console())
    if results.interrupted:
        sys.exit(130)
