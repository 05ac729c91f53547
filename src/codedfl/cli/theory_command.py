"""``codedfl theory``: bounds, exact variance and limit of training, as tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from codedfl.cli.options import Json, Out, Settings, configurable

if TYPE_CHECKING:
    from codedfl.audits import TheoryReport
    from codedfl.theory import Check

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


def bound_table(report: TheoryReport) -> Table:
    """Return a table of Theorem 1 after the last round, term by term, as printed and corrected."""
    from codedfl.cli.tables import new_table

    rounds, m = report.result.final.round, report.samples
    printed, corrected = (report.bounds[reading].after(rounds) for reading in ("printed", "corrected"))
    total = sum(corrected.values())
    table = new_table(
        f"{report.comparison.config.data.dataset}: bound on the optimality gap after {rounds} rounds",
        "all gaps are per sample; share: of the corrected bound",
    )
    table.add_column("term", no_wrap=True)
    for name in ("printed", "corrected", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, value in sorted(corrected.items(), key=lambda item: -item[1]):
        table.add_row(_words(name), _number(printed.get(name, 0.0) / m), _number(value / m), f"{value / total:.1%}")
    table.add_section()
    table.add_row("bound", _number(sum(printed.values()) / m), _number(total / m), "", style="bold")
    table.add_row("measured", "", _number(report.result.final.gap), "", style="bold")
    return table


def variance_table(report: TheoryReport) -> Table:
    """Return a table of the exact variance of an update with one local step, term by term."""
    from codedfl.cli.tables import new_table

    table = new_table(
        "exact variance of an update with one local step",
        "best weight: the share of the devices in the update that minimises the variance",
    )
    table.add_column("term", no_wrap=True)
    states = (report.at_start, report.at_optimum)
    for name in ("first model", "share", "optimum", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    terms = [state.terms() for state in states]
    totals = [state.total() for state in states]
    for name in terms[0]:
        cells = [
            (_number(of[name]), f"{of[name] / total:.1%}" if total else "")
            for of, total in zip(terms, totals, strict=True)
        ]
        table.add_row(_words(name), *cells[0], *cells[1])
    table.add_section()
    table.add_row("total", _number(totals[0]), "", _number(totals[1]), "", style="bold")
    weights = [f"{state.best_weight:.3f}" for state in states]
    table.add_row(f"best weight (here {report.round.device_weight:g})", weights[0], "", weights[1], "")
    return table


def limit_lines(report: TheoryReport) -> list[Text]:
    """Describe the limit of training in words."""
    lines = []
    drawn, m = report.drawn_limit, report.samples
    if drawn is None:
        lines.append("the Hessian that this run sees is singular: the coded data has no single limit point")
    elif drawn.stable:
        lines.append(f"the coded data of this run leaves a gap of {_number(drawn.gap / m)} (limit point, small steps)")
    else:
        lines.append(
            f"the Hessian that this run sees is indefinite (least eigenvalue {drawn.least_eigenvalue:.3g}): SCFL runs away in "
            "the end; lower coding.noise_variance, raise coding.coded_samples or set training.model_norm_bound"
        )
    if report.limit is None:
        lines.append("X^T X is singular, so no gap can be predicted without drawing coded data")
    else:
        terms = ", ".join(f"{_words(name)} {_number(value / m)}" for name, value in report.limit.terms().items())
        lines.append(f"predicted before drawing any: {_number(report.limit.total() / m)} ({terms})")
        lines.append(
            f"weight of least remaining gap with this step size: {report.limit.best_weight:.3f} for the devices "
            f"(here {report.round.device_weight:g})"
        )
    return [Text(line) for line in lines]


def checks_table(checks: Sequence[Check]) -> Table:
    """Return a table of Monte Carlo values next to the formulas, as printed and corrected."""
    from codedfl.cli.tables import new_table

    table = new_table(
        "the theory by Monte Carlo",
        "error: one standard error; * marks a formula that is off by more than four of them",
    )
    table.add_column("claim")
    for name in ("value", "error", "", "printed", "corrected"):
        table.add_column(name, justify="right", no_wrap=True)
    for check in checks:
        table.add_row(
            Text(check.name),
            f"{check.value:.4g}",
            f"{check.error:.1g}",
            check.relation,
            "-" if check.printed is None else f"{check.printed:.4g}" + ("" if check.printed_holds else "*"),
            f"{check.corrected:.4g}" + ("" if check.corrected_holds else "*"),
            style="" if check.printed_holds and check.corrected_holds else "bold",
        )
    return table


def _words(name: str) -> str:
    return name.replace("_", " ")


def _number(value: float) -> str:
    return f"{value:.4g}"
