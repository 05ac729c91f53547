"""The results of a sweep: one row per point, seed and scheme, and their means over seeds."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl._version import __version__
from codedfl.files import csv_text, write_atomically
from codedfl.results._columns import ResultTable, columns_of, keeping
from codedfl.results._seeds import over_seeds

Axes = Mapping[str, Sequence[Any]]
"""Values by key, the first key being the axis of a picture."""


@dataclass(frozen=True, eq=False)
class SweepResults:
    """The results of the points that are complete.

    Args:
        axes: values by key.
        dataset: the data of the first point; empty as long as there are no results.
        metric: ``accuracy`` or ``r2``; likewise.
        rows: one per point, seed and scheme: ``values`` by key, ``seed``, ``scheme``, ``title``, ``status``, ``folder``,
            ``target_epsilon``, and the columns of ``sweep.csv`` by name, such as ``score``.
        complete: number of runs whose results these are.
        planned: number of runs in all.
    """

    axes: Axes
    dataset: str
    metric: str
    rows: tuple[dict[str, Any], ...]
    complete: int
    planned: int

    @classmethod
    def of(
        cls, axes: Axes, summaries: Sequence[tuple[str, Mapping[str, Any], Mapping[str, Any]]], planned: int
    ) -> SweepResults:
        """Collect the rows of all summaries, each given with its folder and the values of its point."""
        rows = tuple(row for folder, values, summary in summaries for row in _rows(folder, values, summary))
        dataset, metric = (str(summaries[0][2][name]) if summaries else "" for name in ("dataset", "metric"))
        return cls(axes, dataset, metric, rows, len(summaries), planned)

    @property
    def interrupted(self) -> bool:
        """Whether some points are still to be run."""
        return self.complete < self.planned

    @property
    def seeds(self) -> int:
        """The number of seeds of a point."""
        return len({row["seed"] for row in self.rows}) if "seed" not in self.axes else 1

    def means(self) -> list[dict[str, Any]]:
        """Return one row per point and scheme: means over seeds, with intervals and the values behind them."""
        groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for row in self.rows:
            groups.setdefault((json.dumps(row["values"], default=str), row["scheme"]), []).append(row)
        return [
            {
                **{name: group[0][name] for name in ("values", "scheme", "title", "target_epsilon", "covers")},
                **{
                    column.name: over_seeds([row[column.name] for row in group], column.bounds)
                    for column in columns_of("means of a sweep", self.metric)
                },
            }
            for group in groups.values()
        ]

    def tables(self) -> list[tuple[Mapping[str, Any], ResultTable]]:
        """Return the means of every point as a table, with the values of the point."""
        points: dict[str, list[dict[str, Any]]] = {}
        for mean in self.means():
            points.setdefault(json.dumps(mean["values"], default=str), []).append(mean)
        return [
            (
                means[0]["values"],
                ResultTable(
                    means,
                    self.metric,
                    means[0]["centralised"]["mean"],
                    keeping(
                        (row for row in self.rows if row["values"] == means[0]["values"]), means[0]["target_epsilon"]
                    ),
                ),
            )
            for means in points.values()
        ]

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return {
            "version": __version__,
            "over": dict(self.axes),
            "dataset": self.dataset,
            "metric": self.metric,
            "runs": {"complete": self.complete, "planned": self.planned},
            "means": self.means(),
            "rows": list(self.rows),
        }

    def to_csv(self) -> str:
        """Return one line per point, seed and scheme; the score is called by the name of the metric."""
        columns = columns_of("sweep.csv", self.metric)
        fields = ("seed", "scheme", "title", "status", *(column.name for column in columns), "folder")
        header = [*self.axes, *(self.metric or field if field == "score" else field for field in fields)]
        lines = (
            [*(_cell(value) for value in row["values"].values()), *(_cell(row[field]) for field in fields)]
            for row in self.rows
        )
        # A sweep over seeds has a column for them already.
        kept = [place for place, name in enumerate(header) if header.index(name) == place]
        return csv_text([header[place] for place in kept], ([line[place] for place in kept] for line in lines))

    def write(self, path: Path | str) -> None:
        """Write ``sweep.json``, ``sweep.csv`` and, if the grid can be drawn, ``sweep.png``."""
        from codedfl.plotting import can_draw_sweep, draw_sweep  # matplotlib is slow to import and needed only here

        path = Path(path)
        write_atomically(path / "sweep.json", json.dumps(self.as_dict(), indent=2))
        write_atomically(path / "sweep.csv", self.to_csv())
        if self.rows and can_draw_sweep(self.axes):
            title = "" if "data.dataset" in self.axes else self.dataset
            picture = draw_sweep(self.axes, self.means(), self.metric, self.seeds, title)
            write_atomically(path / "sweep.png", picture)


def _rows(folder: str, values: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterable[dict[str, Any]]:
    metric = summary["metric"]
    shared = {"centralised": (summary["centralised"] or {}).get(metric)}
    for scheme in summary["schemes"]:
        yield {
            "values": dict(values),
            "seed": summary["seed"],
            **{name: scheme[name] for name in ("scheme", "title", "status")},
            # Both come before the target, and everything else after it.
            **dict.fromkeys(("score", "centralised")),
            "target_epsilon": summary.get("epsilon"),
            **{column.name: column.of(scheme | shared) for column in columns_of("sweep.csv", metric)},
            "folder": folder,
        }


def _cell(value: Any) -> object:
    """Return a value as a cell of a CSV file: lists as JSON, what is unknown as nothing."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return json.dumps(value) if isinstance(value, list | dict | bool) else value
