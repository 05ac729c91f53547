"""Tables of numbers behind the figures: what goes to CSV, and what claims and pictures are made from."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from codedfl.typing import FloatArray

if TYPE_CHECKING:
    from codedfl.paper._executor import Outcomes

Value = str | int | float | bool
Row = Mapping[str, Value]


@dataclass(frozen=True)
class Table:
    """Rows with the same columns.

    Args:
        rows: the rows, in order.

    Example:
        >>> table = Table([{"x": 1, "y": 0.25}, {"x": 2, "y": 1 / 3}])
        >>> print(table.to_csv().strip())
        x,y
        1,0.25
        2,0.333333
        >>> [float(y) for y in table.column("y", x=1)]
        [0.25]
    """

    rows: Sequence[Row]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def where(self, **values: Value) -> Table:
        """Return the rows that have these values."""
        return Table([row for row in self.rows if all(row[name] == value for name, value in values.items())])

    def column(self, name: str, **values: Value) -> FloatArray:
        """Return one column of the rows that have these values."""
        found = [row[name] for row in self.where(**values)]
        if not found:
            raise KeyError(f"no row has {values}")
        return np.array(found, float)

    def distinct(self, name: str) -> list[Value]:
        """Return the values of a column, each once, in the order of their first appearance."""
        return list(dict.fromkeys(row[name] for row in self.rows))

    def to_csv(self) -> str:
        """Write the rows as CSV, floating-point numbers to six digits."""
        if not self.rows:
            return ""
        out = io.StringIO()
        writer = csv.DictWriter(out, list(self.rows[0]), lineterminator="\n")
        writer.writeheader()
        for row in self.rows:
            writer.writerow({key: f"{v:.6g}" if isinstance(v, float) else v for key, v in row.items()})
        return out.getvalue()

    @classmethod
    def from_csv(cls, text: str) -> Table:
        r"""Read what `to_csv` wrote.

        Example:
            >>> Table.from_csv("series,x,chosen\nSCFL,0.5,True\n").rows
            [{'series': 'SCFL', 'x': 0.5, 'chosen': True}]
        """
        return cls([{name: _value(word) for name, word in row.items()} for row in csv.DictReader(io.StringIO(text))])


def _value(word: str) -> Value:
    if word in ("True", "False"):
        return word == "True"
    for number in (int, float):
        with suppress(ValueError):
            return number(word)
    return word


Tables = Mapping[str, Table]


def points_table(outcomes: Outcomes) -> Table:
    """Return one row for each run and seed, with its accuracy at the time that counts."""
    rows: list[Row] = []
    for run, records in outcomes.records.items():
        for seed, record in zip(outcomes.seeds, records, strict=True):
            point = record.at(run.read_at_s)
            rows.append(
                {
                    "panel": run.panel,
                    "series": run.series,
                    "x": run.x,
                    "seed": seed,
                    "accuracy": record.accuracy(run.read_at_s),
                    "last_accuracy": point.last_accuracy,
                    "loss_gap": point.gap,
                    "time_s": point.time_s,
                    "stragglers": record.stragglers,
                    "step_size": record.scale,
                    "status": record.status,
                }
            )
    return Table(rows)


def steps_table(outcomes: Outcomes) -> Table:
    """Return how the step size of each run was chosen: one row for each candidate."""
    return Table(
        [
            {
                "panel": run.panel,
                "series": run.series,
                "x": run.x,
                "step_size": trial.scale,
                "validation_accuracy": trial.score,
                "chosen": trial.scale == choice.scale,
            }
            for run, choice in outcomes.choices.items()
            for trial in choice.trials
        ]
    )


def summary_table(points: Table, value: str = "accuracy", by: Iterable[str] = ("panel", "series", "x")) -> Table:
    """Return the mean over seeds with its 95% interval."""
    from codedfl.paper._claims import interval

    names = list(by)
    groups: dict[tuple[Value, ...], list[float]] = {}
    for row in points:
        groups.setdefault(tuple(row[name] for name in names), []).append(float(row[value]))
    rows = []
    for key, values in groups.items():
        mean, low, high = interval(np.array(values))
        rows.append(
            {**dict(zip(names, key, strict=True)), "mean": mean, "low": low, "high": high, "seeds": len(values)}
        )
    return Table(rows)
