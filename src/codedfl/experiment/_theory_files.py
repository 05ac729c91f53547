"""The files of a theory report."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from codedfl.config import to_toml
from codedfl.experiment._theory import TheoryReport
from codedfl.experiment._theory_points import READINGS, Point
from codedfl.files import csv_text, write_atomically


def write_theory(report: TheoryReport, folder: Path | str) -> None:
    """Write ``theory.json``, ``theory.png``, the tables behind them as CSV, and the configuration to a folder."""
    from codedfl.plotting import draw_theory  # matplotlib is slow to import and needed only here

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / "config.toml", to_toml(report.comparison.config))
    write_atomically(folder / "theory.json", json.dumps(report.as_dict(), indent=2))
    write_atomically(folder / "bound.csv", bound_to_csv(report))
    sweeps = [(knob, points) for knob, points in report.sensitivity.items()]
    write_atomically(folder / "sensitivity.csv", points_to_csv("parameter", sweeps))
    write_atomically(folder / "tradeoff.csv", points_to_csv("parameter", [("mi_dp_bits", report.tradeoff)]))
    write_atomically(folder / "theory.png", draw_theory(report))


def bound_to_csv(report: TheoryReport) -> str:
    """Return the measured gap and both bounds with their terms as CSV, one row per evaluation and reading, per sample."""
    names = list(report.bounds["corrected"].terms)
    rows = []
    for rounds, gap in report.measured:
        for reading in READINGS:
            terms = report.bounds[reading].after(rounds)
            shares = [terms.get(name, 0.0) / report.samples for name in names]
            rows.append([rounds, reading, gap, sum(shares), *shares])
    return csv_text(["rounds", "reading", "measured_gap", "bound", *names], rows)


def points_to_csv(first: str, sweeps: Iterable[tuple[str, Sequence[Point]]]) -> str:
    """Return the theory against parameters as CSV, one row per value."""
    sweeps = list(sweeps)
    names = list(sweeps[0][1][0].corrected)
    rows = [
        [
            knob,
            point.value,
            point.printed,
            sum(point.corrected.values()),
            point.floor,
            point.variance,
            *point.corrected.values(),
        ]
        for knob, points in sweeps
        for point in points
    ]
    return csv_text(
        [first, "value", "printed_bound", "corrected_bound", "predicted_floor", "exact_variance_one_step", *names], rows
    )
