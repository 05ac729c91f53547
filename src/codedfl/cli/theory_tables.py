"""Terminal tables of the theory."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from codedfl.audits import TheoryReport
from codedfl.cli.tables import new_table
from codedfl.theory import Check


def bound_table(report: TheoryReport) -> Table:
    """Return a table of Theorem 1 after the last round, term by term, as printed and corrected."""
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
