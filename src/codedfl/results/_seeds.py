"""What the runs of one comparison under several seeds have in common."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from codedfl._version import __version__
from codedfl.config import Config
from codedfl.files import write_atomically
from codedfl.results._columns import UNBOUNDED, Bounds, ResultTable, columns_of, keeping
from codedfl.results._evidence import Evidence, half_width
from codedfl.results._verdict import Verdict, verdict

if TYPE_CHECKING:
    from codedfl.plotting import Clock


def over_seeds(values: Sequence[float | None], bounds: Bounds = UNBOUNDED) -> dict[str, Any]:
    r"""Return the mean of one number per seed with its 95% t-interval; no mean if a seed lacks the number.

    The interval is :math:`\bar x \pm h` with :math:`h = t_{0.975, n-1} s / \sqrt n`, cut to the range of the quantity: an
    accuracy is between 0 and 1, and a time not negative. Since the expected value lies in that range, the part that is cut off
    never covers it, and the confidence stays what it is.

    Args:
        values: one number per seed.
        bounds: the least and the greatest value that the number can have.

    Returns:
        ``mean``; ``low`` and ``high``, the ends of the interval within the bounds; ``half_width``, h, which nothing cuts; and
        ``values``.

    Example:
        >>> found = over_seeds([0.99, 1.0, 0.9], (0.0, 1.0))
        >>> round(found["mean"], 3), round(found["low"], 3), found["high"], round(found["half_width"], 3)
        (0.963, 0.827, 1.0, 0.137)
        >>> over_seeds([1.0, None])["mean"] is None
        True
    """
    known = np.array([value for value in values if value is not None and math.isfinite(value)])
    complete = len(known) == len(values) > 0
    mean, half = (float(known.mean()), half_width(known)) if complete else (None, math.inf)
    if mean is None or not math.isfinite(half):
        return {"mean": mean, "low": None, "high": None, "half_width": None, "values": list(values)}
    least, most = bounds
    low, high = max(mean - half, least), min(mean + half, most)
    return {"mean": mean, "low": low, "high": high, "half_width": half, "values": list(values)}


@dataclass(frozen=True, eq=False)
class SeedRuns:
    """A comparison under several seeds.

    Args:
        config: the configuration, with the first of the seeds.
        evidence: what a verdict needs of each run.
        summaries: the summary of each run.
        planned: number of seeds that were asked for.
    """

    config: Config
    evidence: tuple[Evidence, ...]
    summaries: tuple[dict[str, Any], ...]
    planned: int

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped the runs early."""
        return len(self.evidence) < self.planned or any(each.interrupted for each in self.evidence)

    @property
    def verdict(self) -> Verdict:
        """The verdict over all seeds."""
        return verdict(self.evidence)

    def summary(self) -> dict[str, Any]:
        """Return means with intervals, the verdict, and the summary of every run, as JSON can hold them."""
        first = self.summaries[0]
        metric = first["metric"]
        columns = columns_of("means over seeds", metric)
        return {
            "version": __version__,
            "seeds": [summary["seed"] for summary in self.summaries],
            **{name: first[name] for name in ("dataset", "task", "metric", "epsilon", "delta")},
            "centralised": {
                metric: over_seeds(
                    [(each["centralised"] or {}).get(metric) for each in self.summaries], columns[0].bounds
                )
            },
            "schemes": [
                {
                    "scheme": scheme["scheme"],
                    "title": scheme["title"],
                    "status": [each["status"] for each in self._of(scheme["scheme"])],
                    "covers": scheme["privacy"]["covers"],
                    **{
                        column.keys[0]: over_seeds(
                            [column.of(each) for each in self._of(scheme["scheme"])], column.bounds
                        )
                        for column in columns
                    },
                }
                for scheme in first["schemes"]
            ],
            "verdict": list(self.verdict.sentences),
            "runs": list(self.summaries),
        }

    def _of(self, name: str) -> list[dict[str, Any]]:
        return [scheme for summary in self.summaries for scheme in summary["schemes"] if scheme["scheme"] == name]

    def write(self, path: Path | str) -> None:
        """Write ``summary.json`` and the pictures of all seeds to the folder that holds the runs."""
        path = Path(path)
        write_atomically(path / "summary.json", json.dumps(self.summary(), indent=2))
        if self.evidence[0].schemes:
            write_atomically(path / "curves.png", self._picture("training"))
            write_atomically(path / "curves-charged.png", self._picture("everything"))

    def _picture(self, clock: Clock) -> bytes:
        from codedfl.plotting import SeedCurves, draw_seed_curves  # matplotlib is slow to import and needed only here

        seeds = [each.seed for each in self.evidence]
        curves = [
            SeedCurves(
                scheme.name,
                scheme.title,
                [s.curve for each in self.evidence for s in each.schemes if s.name == scheme.name],
            )
            for scheme in self.evidence[0].schemes
        ]
        known = [each.centralised for each in self.evidence if each.centralised is not None]
        return draw_seed_curves(
            curves,
            title=f"{self.config.data.dataset}: mean and range over {len(seeds)} seeds ({seeds[0]} to {seeds[-1]})",
            metric="accuracy" if self.evidence[0].task == "classification" else "r2",
            centralised=float(np.mean(known)) if known else None,
            clock=clock,
        )


def table_over_seeds(summary: Mapping[str, Any]) -> ResultTable:
    """Return the means of `SeedRuns.summary` as a table; a scheme keeps an epsilon if it does so under every seed."""
    metric = summary["metric"]
    runs = [scheme for run in summary["runs"] for scheme in run["schemes"]]
    reference = summary["centralised"][metric]["mean"]
    return ResultTable(summary["schemes"], metric, reference, keeping(runs, summary["epsilon"]))
