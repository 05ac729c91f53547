"""``codedfl theory``."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.text import Text

from codedfl.cli.options import Json, Out, Settings, configurable

MOST_DRAWS = 10_000_000


@configurable(
    *("dataset", "target", "device_column", "drop", "task", "devices"),
    *("rounds", "tau", "coded_samples", "noise_variance", "seed", "data_dir"),
)
def theory(
    settings: Settings,
    *,
    check: Annotated[
        bool, typer.Option("--check", help="Check every formula by Monte Carlo instead; only --seed and --draws apply.")
    ] = False,
    draws: Annotated[int, typer.Option(help="Monte Carlo draws per experiment, with --check.")] = 4000,
    radius: Annotated[
        float | None,
        typer.Option(help="phi of Assumption 1.", show_default="twice the largest model of the run and the optimum"),
    ] = None,
    constants: Annotated[
        Literal["auto", "exact", "cheap"],
        typer.Option(help="Constants of Assumption 1: exact, cheap (valid but looser), or auto by size."),
    ] = "auto",
    out: Out = None,
    json_: Json = False,
) -> None:
    """Train SCFL and compare it with the theory: bounds by term, exact variance, limit of training, cost of privacy.

    Example: codedfl theory --noise-variance 0.5 --rounds 200
    """
    from codedfl._validation import require_positive
    from codedfl.audits import run_theory, write_theory
    from codedfl.cli.live import live_training
    from codedfl.cli.outputs import results_folder
    from codedfl.cli.theory_tables import bound_table, limit_lines, variance_table

    if check:
        _check(settings.load().seed, draws, json_)
        return
    if radius is not None:
        require_positive("--radius", radius)
    config = settings.load()
    folder = results_folder(out, config.data.dataset, "theory")
    with live_training(quiet=json_) as (display, callbacks):
        settings.tell_preset(display)
        report = run_theory(
            config,
            radius=radius,
            constants=constants,
            progress=display,
            callbacks=callbacks,
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
    verdict = "stays below the corrected bound at every" if report.holds else "exceeds the corrected bound at some"
    console.print(Text(f"the measured gap {verdict} evaluation"))
    console.print(Text(f"picture: {folder / 'theory.png'}"), soft_wrap=True)
    console.print(Text(f"results: {folder}"), soft_wrap=True)


def _check(seed: int, draws: int, json_: bool) -> None:
    from codedfl.cli.theory_tables import checks_table
    from codedfl.errors import InputError
    from codedfl.theory import verify

    if not 2 <= draws <= MOST_DRAWS:
        raise InputError(f"--draws = {draws} must be between 2 and {MOST_DRAWS}.")
    checks = verify(seed, draws)
    if json_:
        flags = ("printed_holds", "corrected_holds")
        print(json.dumps([asdict(item) | {name: getattr(item, name) for name in flags} for item in checks]))
    else:
        Console().print(checks_table(checks))
    if not all(item.corrected_holds for item in checks):
        raise typer.Exit(1)
