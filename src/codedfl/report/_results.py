"""Verdict, facts and results, of a run and of the same comparison under several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl.report._html import Heading, Html, joined, listed, markup, section, table
from codedfl.report._record import SHARE, STATES, Record, read_json
from codedfl.report._simulation import label
from codedfl.results import EPSILON, NOTHING, SCHEME, Column, ResultTable, Row, bound


def verdict_section(record: Record) -> Html:
    """Return the verdict in words, the state of the run and its facts."""
    told = markup('<p class="told {}">{}</p>', record.state, record.told) if record.told else Html()
    # Runs of earlier versions and interrupted ones may have notes alone.
    sentences = listed(record.verdict, "verdict") or listed(record.notes, "notes")
    facts = joined(markup("<div><dt>{}</dt><dd>{}</dd></div>", name, value) for name, value in record.facts.items())
    tiles = markup('<dl class="facts">{}</dl>', facts) if facts else Html()
    return section("verdict", "Verdict" if record.verdict else "Overview", told, sentences, tiles)


def badge(record: Record) -> Html:
    """Return the state of a run as a label."""
    return markup('<span class="badge {}">{}</span>', record.state, STATES[record.state])


def results_section(record: Record, prefix: str = "") -> Html:
    """Return the table of results, with the best of each column marked, and the notes."""
    if not record.schemes:
        return Html()
    notes = listed(record.notes, "notes") if record.verdict or prefix else Html()
    explained = markup('<p class="hint">{}</p>', _explanation(record))
    caption = f"Results of every scheme; the highest {label(record.metric)} and the shortest times are marked"
    caption += among([record])
    return section(f"{prefix}results", "Results", _results(record, caption), explained, notes)


def among(records: Sequence[Record]) -> str:
    """Return which schemes a mark is for, as the end of a caption; nothing if it is for all of them."""
    private = any(record.private for record in records)
    return ", with an epsilon to keep among the schemes that keep it for everything" if private else ""


def _explanation(record: Record) -> str:
    if record.kind == "federation":
        return "Seconds are those of the wall clock, from the first round on."
    return (
        f"Times to {SHARE}% are simulated seconds until {SHARE}% of the centralised score: on the training clock, and with "
        "encoding, uploads and the server's own work charged. Received is everything that the server got, coded uploads "
        "included. Epsilon is that of what is covered, with everything that devices send or their upload alone."
    )


def _results(record: Record, caption: str) -> Html:
    results = record.results
    columns = [
        column
        for column in results.columns("page" if record.kind == "run" else "page of a federation")
        if (results.has_goal or not column.needs_goal)
        and (column.name != EPSILON.name or any("privacy" in scheme for scheme in record.schemes))
    ]
    best = {column.title: results.best(column) if len(results.rows) > 1 else frozenset() for column in columns}

    def cell(column: Column, row: Row) -> Html:
        if column.name == SCHEME.name:
            return _named(row, record)
        if column.name == EPSILON.name:
            return epsilon(row)
        words = results.words(column, row)
        return markup('<strong class="best">{}</strong>' if row["scheme"] in best[column.title] else "{}", words)

    return table(
        [heading(column, record.metric) for column in columns],
        [[cell(column, row) for column in columns] for row in results.rows],
        caption,
        "cards results",
    )


def heading(column: Column, metric: str) -> Heading:
    """Return the heading of a column of results."""
    return Heading(label(metric) if column.title == metric else column.title, number=column.is_number)


def epsilon(scheme: Any) -> Html:
    """Return the epsilon of a scheme with what it covers."""
    statement = scheme.get("privacy") or {}
    if statement.get("covers") not in ("everything", "upload"):
        return markup('<span class="muted">{}</span>', bound(None))
    what = "all" if statement["covers"] == "everything" else "upload"
    return markup('{} <span class="muted">({})</span>', bound(statement.get("epsilon")), what)


def _named(scheme: Any, record: Record) -> Html:
    names = [each["scheme"] for each in record.schemes]
    return markup(
        '<span class="scheme"><span class="swatch fill{}"></span>{}</span>',
        names.index(scheme["scheme"]) % 10,
        scheme["title"],
    )


@dataclass(frozen=True)
class Overall:
    """Means over seeds, and the verdict on all of them.

    Args:
        seeds: how many there are.
        metric: ``accuracy`` or ``r2``.
        verdict: sentences about the outcome.
        schemes: means with intervals of every scheme.
    """

    seeds: int
    metric: str
    verdict: Sequence[str]
    schemes: Sequence[Mapping[str, Any]]


def read_overall(paths: Sequence[Path | str]) -> Overall | None:
    """Return what the folder of several seeds says about all of them; None for anything else.

    Raises:
        InputError: its summary is damaged.
    """
    if len(paths) != 1:
        return None
    summary = read_json(Path(paths[0]) / "summary.json")
    if not isinstance(summary.get("seeds"), list) or "metric" not in summary:
        return None
    return Overall(
        len(summary["seeds"]),
        str(summary["metric"]),
        [str(sentence) for sentence in summary.get("verdict", ())],
        summary.get("schemes", ()),
    )


def overall_section(overall: Overall) -> Html:
    """Return the verdict over all seeds, and the means with their intervals."""
    results = ResultTable(overall.schemes, overall.metric, None)
    columns = results.columns("page over seeds")
    rows = [[results.words(column, row) for column in columns] for row in results.rows]
    caption = f"Means over {overall.seeds} seeds; {NOTHING} where a seed has no such number"
    means = table([heading(column, overall.metric) for column in columns], rows, caption, "cards results")
    return section(
        "overall",
        f"Verdict over {overall.seeds} seeds",
        listed(overall.verdict, "verdict"),
        markup('<div class="below">{}</div>', means),
    )
