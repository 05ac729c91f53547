"""``codedfl run``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from codedfl.cli.options import OF_TRAINING, Json, Out, Settings, configurable

if TYPE_CHECKING:
    from codedfl.experiment import Comparison, RunFolder
    from codedfl.planning import Outcome, Promise
    from codedfl.tracking import Tracker


@configurable(*OF_TRAINING)
def run(
    settings: Settings,
    *,
    seeds: Annotated[
        int,
        typer.Option(help="Repeat everything under this many seeds, from --seed on; the table then has intervals."),
    ] = 1,
    out: Out = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in --out, or the latest run in runs/.")
    ] = False,
    record_trace: Annotated[
        Path | None, typer.Option(help="Write the arrivals to this file, to replay with --trace.", show_default=False)
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            help="Run a plan that `codedfl plan --out` wrote, and hold it against the outcome.", show_default=False
        ),
    ] = None,
    track: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND:WHERE",
            help="Record the run elsewhere as well, as mlflow:URI or tensorboard:FOLDER; may be repeated.",
        ),
    ] = None,
    json_: Json = False,
) -> None:
    """Train schemes in the same setting; print a table and a verdict, and write a run folder with a picture.

    Example: codedfl run --scheme fedavg --scheme ccfl --set fleet.straggler_ratio=0.5
    """
    from codedfl.cli.outputs import discard_empty_runs, latest_run, require_writable, results_folder
    from codedfl.cli.tables import print_comparison
    from codedfl.errors import InputError
    from codedfl.experiment import RunFolder, create_seed_folders, reopen_seed_folders, seed_configs, summarise

    promise = None
    if plan is not None:
        from codedfl.planning import read_promise

        if settings.file is not None or resume:
            raise InputError("--plan takes the place of a configuration file and of --resume: give only one of them.")
        promise = read_promise(plan)
        settings = Settings(plan, settings.overrides)
    if {"training.rounds", "training.total_time_s"} <= {key for key, _ in settings.overrides}:
        raise InputError("--rounds and --total-time exclude each other: give one of them.")
    if record_trace is not None:
        require_writable("--record-trace", record_trace)
    if seeds != 1 and (plan is not None or record_trace is not None):
        raise InputError("--plan and --record-trace are about a single run: leave out --seeds.")
    trackers = _trackers(track or ())
    if resume:
        if not settings.empty or seeds != 1:
            raise InputError(
                "--resume takes configuration and seeds from the run folder: give only --out, --record-trace, --track and --json"
                " with it."
            )
        path = out or latest_run()
        several = reopen_seed_folders(path)
        if not several:
            folder = RunFolder.reopen(path)
        elif record_trace is not None:
            raise InputError(f"--record-trace is about a single run, but {path} holds several: leave it out.")
    else:
        config = settings.load()
        seed_configs(config, seeds)
        if_full = "add --resume to continue the run in it, or give another --out"
        path = results_folder(out, config.data.dataset, if_full=if_full)
        several = create_seed_folders(path, config, seeds) if seeds > 1 else []
        if not several:
            folder = RunFolder.create(path, config)
    if several:
        from codedfl.cli.seed_runs import run_several

        run_several(path, several, settings, trackers, new=not resume, json_=json_)
        return
    try:
        comparison = _train(folder, settings, trackers, quiet=json_)
    except Exception:
        discard_empty_runs()
        raise
    if record_trace is not None:
        from codedfl.experiment import record_trace as write_trace

        write_trace(comparison, record_trace)
    outcome = _outcome(promise, comparison)
    if json_:
        held_against = {} if outcome is None else {"plan": asdict(outcome) | {"in_interval": outcome.in_interval}}
        print(json.dumps(summarise(comparison) | held_against))
    else:
        print_comparison(comparison, folder.path, Console())
        if outcome is not None:
            from codedfl.cli.plan_command import outcome_lines

            for line in outcome_lines(outcome):
                Console().print(line, highlight=False, markup=False)
    if comparison.interrupted:
        sys.exit(130)


def _outcome(promise: Promise | None, comparison: Comparison) -> Outcome | None:
    """Return what became of a plan's prediction; None without a plan, or if its scheme did not run."""
    if promise is None or promise.scheme not in {result.scheme.name for result in comparison.results}:
        return None
    from codedfl.planning import outcome_of

    return outcome_of(promise, comparison[promise.scheme], comparison.evaluator)


def _train(folder: RunFolder, settings: Settings, trackers: Sequence[Tracker], *, quiet: bool) -> Comparison:
    from codedfl.cli.live import live_training
    from codedfl.experiment import run as run_comparison

    with live_training(trackers, quiet=quiet) as (display, callbacks):
        settings.tell_preset(display)
        return run_comparison(folder.config, folder=folder, progress=display, callbacks=callbacks)


def _trackers(destinations: Sequence[str]) -> list[Tracker]:
    if not destinations:
        return []
    from codedfl.tracking import tracker_from

    return [tracker_from(text) for text in destinations]
