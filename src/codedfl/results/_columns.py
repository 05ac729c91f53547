"""The columns of a result, each declared once: every table, notebook, page and CSV file picks from them.

Rows are dictionaries of one shape: what `summarise_result` returns for a scheme, or its means over seeds, where a quantity is the
dictionary of `over_seeds`. `VIEWS` lists the columns of every surface, so that a new column is a change of this file alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from codedfl._messages import number as plain_number
from codedfl.privacy import keeps
from codedfl.results._formats import NOTHING, bound, in_megabytes, is_number, number, score, seconds, short, size

Row = Mapping[str, Any]

Bounds = tuple[float, float]

UNBOUNDED: Bounds = (-math.inf, math.inf)
NOT_NEGATIVE: Bounds = (0.0, math.inf)

SHARES = (90, 95)
"""Percentages of the centralised score for which times are reported."""


@dataclass(frozen=True)
class Column:
    """One quantity of a result.

    Args:
        keys: where a row has it, with dots between the keys of nested dictionaries; the first that is there counts, and the last
            is its name in tables of many runs (``sweep.csv``).
        title: its heading, with the unit of ``text``.
        text: how a value is written in the narrow tables of a terminal or a notebook.
        words: the same with its unit, or what stands for None, as pages have it.
        absent: what stands in a narrow table for a value that is not there.
        counts_absent: of seeds that do not all have the value, whether those are counted that lack it, or those that have it.
        needs_goal: whether it is a time to a share of the centralised score, which without one above zero is no goal.
        best: which value is the best.
        bounds: the least and the greatest value that it can have; see `over_seeds`.
        statistic: what is taken of a mean over seeds.
        is_number: whether its cells line up on the right.
        is_score: whether it is a score, whose name, range and words are those of a metric; ``{metric}`` in keys and title stands
            for its name.
    """

    keys: tuple[str, ...]
    title: str
    text: Callable[[Any], str] = str
    words: Callable[[Any], str] = str
    absent: str = "-"
    counts_absent: bool = False
    needs_goal: bool = False
    best: Literal["highest", "lowest"] | None = None
    bounds: Bounds = UNBOUNDED
    statistic: Literal["mean", "half-width", "lowest", "interval"] = "mean"
    is_number: bool = True
    is_score: bool = False

    @property
    def name(self) -> str:
        """Its name in tables of many runs."""
        return self.keys[-1]

    def of(self, row: Row) -> Any:
        """Return the value in a row, over seeds the dictionary of its mean; None if there is none."""
        for key in self.keys:
            *path, last = key.split(".")
            place: Any = row
            for part in path:
                place = place.get(part) if isinstance(place, Mapping) else None
            if isinstance(place, Mapping) and last in place:
                return place[last]
        return None

    def value(self, row: Row) -> Any:
        """Return the value in a row, over seeds its mean or what else is taken of it."""
        found = self.of(row)
        if not isinstance(found, Mapping):
            return found
        match self.statistic:
            case "mean":
                return found["mean"]
            case "half-width":
                return found["half_width"]
            case "lowest":
                return None if found["mean"] is None else min(found["values"])
            case "interval":
                return None if found["low"] is None or found["high"] is None else (found["low"], found["high"])

    def by_metric(self, metric: str) -> Column:
        """Return the column for one metric, ``accuracy`` or ``r2``; it is the same unless it is a score."""
        if not self.is_score:
            return self
        return replace(
            self,
            keys=tuple(dict.fromkeys(key.format(metric=metric or "score") for key in self.keys)),
            title=self.title.format(metric=metric or "score"),
            words=lambda value: score(value, metric),
            bounds=(0.0 if metric == "accuracy" else -math.inf, 1.0),
        )


def _whole(value: float) -> str:
    return f"{value:.0f}"


def _four_decimals(value: float) -> str:
    return f"{value:.4f}"


def _bits(value: float) -> str:
    return f"{value:.2f}" if math.isfinite(value) else plain_number(value)


def _rounds(value: Any) -> str:
    """Return a number of rounds; of a run that goes on, as words such as "3 of 20"."""
    return value if isinstance(value, str) else number(value)


SCHEME = Column(("title",), "scheme", is_number=False)

SCORE = Column(
    ("{metric}", "score"),
    "{metric}",
    _four_decimals,
    absent="diverged",
    counts_absent=True,
    best="highest",
    is_score=True,
)
"""The score of the model that a scheme returned."""

HALF_WIDTH = replace(SCORE, title="±", absent="-", statistic="half-width", best=None)
INTERVAL = replace(SCORE, title="95% interval", statistic="interval", best=None)
LOWEST = replace(SCORE, title="lowest", absent="-", statistic="lowest", best=None)
CENTRALISED = replace(SCORE, keys=("centralised",), title="centralised", absent="-", counts_absent=False, best=None)

TO_90, TO_95 = (
    Column(
        (f"time_to_{share}_s",),
        f"to {share}%",
        _whole,
        seconds,
        absent="never",
        needs_goal=True,
        best="lowest",
        bounds=NOT_NEGATIVE,
    )
    for share in SHARES
)
TO_95_CHARGED = replace(TO_95, keys=("time_to_95_charged_s",), title="to 95%, everything")
"""In rows of pages, which read it off the curves."""

SIMULATED = Column(("simulated_time_s",), "simulated s", _whole, seconds, bounds=NOT_NEGATIVE)
CHARGED = Column(("everything_charged_s",), "charged", _whole, seconds, bounds=NOT_NEGATIVE)
SECONDS = replace(CHARGED, keys=("everything_charged_s", "simulated_time_s"), title="seconds")
"""On pages, where a federation has one clock, and a run that goes on may have no other."""
ROUNDS = Column(("rounds",), "rounds", words=_rounds)
ARRIVALS = Column(("mean_arrivals",), "arrive", "{:.1f}".format, number)
BYTES_UP = Column(("bytes_up",), "MB up", in_megabytes, size, bounds=NOT_NEGATIVE)
RECEIVED = replace(BYTES_UP, keys=("bytes_up", "bytes_up_coded"), title="received")
BYTES_UP_CODED = replace(BYTES_UP, keys=("bytes_up_coded",), title="coded MB up")
LOSS = Column(("loss",), "loss", plain_number, number)
EPSILON = Column(("privacy.epsilon", "epsilon"), "epsilon", plain_number, bound, absent="no bound")
COVERS = Column(("privacy.covers", "covers"), "covers")
MI_DP = Column(("mi_dp_bits",), "MI-DP", _bits, number)
STEP_SIZE = Column(("step_size_scale",), "step size, 1 / L", plain_number, number)
WALL = Column(("wall_time_s",), "wall s", short, seconds)
STATUS = Column(("status",), "status", words=lambda value: NOTHING if value is None else str(value), is_number=False)

# A terminal of 80 columns has no room for an epsilon beside times to a share of what is reached without noise.
VIEWS: dict[str, tuple[Column, ...]] = {
    "terminal": (SCHEME, SCORE, TO_90, TO_95, ARRIVALS, BYTES_UP, CHARGED, MI_DP, WALL),
    "terminal, private": (SCHEME, SCORE, BYTES_UP, CHARGED, EPSILON, COVERS, WALL),
    "notebook": (SCHEME, SCORE, ROUNDS, SIMULATED, replace(CHARGED, title="everything charged s"), BYTES_UP),
    "notebook, private": (
        *(SCHEME, SCORE, ROUNDS, SIMULATED, replace(CHARGED, title="everything charged s"), BYTES_UP),
        *(EPSILON, COVERS),
    ),
    "page": (
        *(SCHEME, SCORE, replace(TO_95, title="to 95%, training"), TO_95_CHARGED, ROUNDS),
        *(SECONDS, replace(ARRIVALS, title="arrive per round"), RECEIVED, EPSILON, STATUS),
    ),
    "page of a federation": (
        *(SCHEME, SCORE, ROUNDS, SECONDS, replace(ARRIVALS, title="arrive per round")),
        *(replace(RECEIVED, title="uploads"), EPSILON, STATUS),
    ),
    "page over seeds": (
        *(SCHEME, SCORE, INTERVAL, replace(TO_95, title="to 95%, training")),
        replace(CHARGED, title="seconds, everything charged"),
    ),
    "terminal over seeds": (SCHEME, SCORE, HALF_WIDTH, LOWEST, TO_90, TO_95, BYTES_UP, CHARGED),
    "terminal of a sweep": (SCHEME, SCORE, CENTRALISED, TO_95, BYTES_UP, CHARGED),
    "terminal of a sweep over seeds": (SCHEME, SCORE, HALF_WIDTH, CENTRALISED, TO_95, BYTES_UP, CHARGED),
    "sweep.csv": (
        *(SCORE, CENTRALISED, EPSILON, COVERS, TO_90, TO_95, SIMULATED, CHARGED, ROUNDS, BYTES_UP, BYTES_UP_CODED),
        *(LOSS, MI_DP, STEP_SIZE),
    ),
    "means over seeds": (SCORE, TO_90, TO_95, SIMULATED, CHARGED, BYTES_UP),
    "means of a sweep": (SCORE, CENTRALISED, TO_90, TO_95, CHARGED, BYTES_UP),
}
"""The columns of every surface, from left to right."""


def columns_of(view: str, metric: str, *, private: bool = False) -> tuple[Column, ...]:
    """Return the columns of a surface.

    Args:
        view: a key of `VIEWS`.
        metric: ``accuracy`` or ``r2``; empty if it is not known yet.
        private: whether there is an epsilon to keep, which has columns of its own on some surfaces.
    """
    key = f"{view}, private"
    return tuple(column.by_metric(metric) for column in VIEWS[key if private and key in VIEWS else view])


def best_schemes(scores: Mapping[str, float | None], private: Collection[str] | None = None) -> frozenset[str]:
    """Return the schemes with the highest score, all of them if some are equal.

    Args:
        scores: the score of each scheme; None or NaN without a usable model.
        private: those that keep the epsilon of the run for everything that devices send, if there is one to keep: no other
            scheme counts then.

    Example:
        >>> sorted(best_schemes({"fedavg": 0.9, "scfl": 0.9, "dp-cfl": None}))
        ['fedavg', 'scfl']
        >>> sorted(best_schemes({"scfl": 0.9, "dp-gd": 0.8}, {"dp-gd"}))
        ['dp-gd']
    """
    counting = {
        name: score
        for name, score in scores.items()
        if score is not None and math.isfinite(score) and (private is None or name in private)
    }
    highest = max(counting.values(), default=math.nan)
    return frozenset(name for name, score in counting.items() if score == highest)


def keeping(rows: Iterable[Row], epsilon: float | None) -> frozenset[str] | None:
    """Return the schemes that keep an epsilon for everything that devices send, in every row; None if there is none to keep.

    Args:
        rows: one per scheme and run, with the statement of the run under ``privacy``, or with its ``epsilon`` and ``covers``.
        epsilon: the epsilon to keep; None or 0 for none.
    """
    if not epsilon:
        return None
    rows = list(rows)
    failing = {row["scheme"] for row in rows if not keeps(row.get("privacy") or row, epsilon)}
    return frozenset(row["scheme"] for row in rows) - failing


@dataclass(frozen=True, eq=False)
class ResultTable:
    """The results of schemes that were compared.

    Args:
        rows: one per scheme: `summarise_result`, or means over seeds.
        metric: ``accuracy`` or ``r2``.
        reference: the score of the centralised optimum, over seeds its mean; None if it is unknown.
        kept: the schemes that keep the epsilon of the run; None if there is none to keep.
    """

    rows: Sequence[Row]
    metric: str
    reference: float | None
    kept: Collection[str] | None = None

    def columns(self, view: str) -> tuple[Column, ...]:
        """Return the columns of a surface; see `VIEWS`."""
        return columns_of(view, self.metric, private=self.kept is not None)

    @property
    def has_goal(self) -> bool:
        """Whether there is a score to reach a share of; a share of nothing, or of less, is no goal."""
        return self.reference is not None and self.reference > 0

    def best(self, column: Column) -> frozenset[str]:
        """Return the schemes to mark in a column: the one rule for all tables, notebooks and pages.

        Those with the best value among the schemes with a usable model and, with an epsilon to keep, among those that keep it
        for everything that devices send.
        """
        if column.best is None:
            return frozenset()
        column = column.by_metric(self.metric)
        sign = 1 if column.best == "highest" else -1
        usable = SCORE.by_metric(self.metric)
        values = {
            row["scheme"]: sign * value
            if is_number(value := column.value(row)) and is_number(usable.value(row))
            else None
            for row in self.rows
        }
        return best_schemes(values, self.kept)

    def text(self, column: Column, row: Row) -> str:
        """Return a cell of a narrow table; of a mean that is unknown, under how many seeds there was a value."""
        found, value = column.of(row), column.value(row)
        if value is not None:
            return column.text(value)
        absent = "-" if column.needs_goal and not self.has_goal else column.absent
        if not isinstance(found, Mapping) or column.statistic != "mean" or len(found["values"]) == 1:
            return absent
        seeds, missing = len(found["values"]), found["values"].count(None)
        if column.counts_absent:
            return f"{missing} of {seeds} {absent}"
        return absent if missing == seeds else f"{seeds - missing} of {seeds}"

    def words(self, column: Column, row: Row) -> str:
        """Return a cell of a page, with its unit."""
        value = column.value(row)
        if column.statistic == "interval":
            return NOTHING if value is None else f"{column.words(value[0])} to {column.words(value[1])}"
        return column.words(value)
