"""``codedfl theory``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal, cast

import typer
from rich.console import Console
from rich.text import Text

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

METHODS = ("auto", "exact", "cheap")


def theory(
    config: ConfigFile = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check every formula by Monte Carlo instead; no configuration is used.")
    ] = False,
    draws: Annotated[int, typer.Option(help="Monte Carlo draws of each experiment, with --check.")] = 4000,
    dataset: DatasetName = None,
    target: Targets = None,
    devices: Devices = None,
    rounds: Annotated[int | None, typer.Option(help="Rounds (instead of a total time).")] = None,
    tau: Annotated[int | None, typer.Option(help="Local steps in a round.", show_default="5")] = None,
    coded_samples: CodedSamples = None,
    noise_variance: NoiseVariance = None,
    radius: Annotated[
        float | None,
        typer.Option(help="phi of Assumption 1.", show_default="twice the largest model of the run and the optimum"),
    ] = None,
    constants: Annotated[
        str, typer.Option(help="Constants of Assumption 1: exact, cheap (still valid, looser), or auto by size.")
    ] = "auto",
    seed: Seed = None,
    data_dir: DataDir = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.", show_default="a new one in runs/")] = None,
    set_: Settings = None,
    json_: Json = False,
) -> None:
    """Train SCFL and set the theory beside it: bounds by terms, exact variance, where training ends, what privacy costs."""
    from codedfl.cli.progress import ProgressDisplay
    from codedfl.cli.runs import results_folder
    from codedfl.cli.theory_tables import bound_table, limit_lines, variance_table
    from codedfl.errors import InputError
    from codedfl.experiment import load_config
    from codedfl.experiment._theory import run_theory
    from codedfl.experiment._theory_files import write_theory
    from codedfl.training import StopOnInterrupt

    if check:
        _check(seed or 0, draws, json_)
        return
    if constants not in METHODS:
        raise InputError(f"--constants = {constants} must be one of {', '.join(METHODS)}.")
    if radius is not None and not radius > 0:
        raise InputError(f"--radius = {radius} must be positive.")
    settled = load_config(
        config,
        collect_overrides(
            {
                "data.dataset": dataset,
                "data.target": target,
                "data.devices": devices,
                "training.rounds": rounds,
                "training.local_steps": tau,
                "coding.coded_samples": coded_samples,
                "coding.noise_variance": noise_variance,
                "seed": seed,
                "data.data_dir": data_dir,
            },
            set_,
        ),
    )
    folder = results_folder(out, f"{Path(settled.data.dataset).stem}-theory")
    stop = StopOnInterrupt()
    with stop.listening(), ProgressDisplay(Console(stderr=True), verbose=not json_) as display:
        report = run_theory(
            settled,
            radius=radius,
            constants=cast(Literal["auto", "exact", "cheap"], constants),
            progress=display,
            callbacks=(stop,),
        )
    write_theory(report, folder)
    if json_:
        print(json.dumps(report.as_dict()))
        return
    console = Console()
    console.print(bound_table(report))
    console.print(variance_table(report))
    for line in limit_lines(report):
        console.print(line)
    verdict = "stays below" if report.holds else "exceeds"
    console.print(Text(f"the measured gap {verdict} the corrected bound at every evaluation"))
    console.print(Text(f"picture: {folder / 'theory.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def _check(seed: int, draws: int, json_: bool) -> None:
    from codedfl.cli.theory_tables import checks_table
    from codedfl.theory import verify

    checks = verify(seed, draws)
    if json_:
        flags = ("printed_holds", "corrected_holds")
        print(json.dumps([asdict(item) | {name: getattr(item, name) for name in flags} for item in checks]))
    else:
        Console().print(checks_table(checks))
    if not all(item.corrected_holds for item in checks):
        raise typer.Exit(1)
