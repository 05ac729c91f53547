"""Several runs on one page: what differs, and their results side by side."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.report._configuration import differing, value_of
from codedfl.report._html import Column, Html, folded, joined, listed, markup, section, table
from codedfl.report._overview import badge
from codedfl.report._record import Record
from codedfl.report._simulation import label
from codedfl.results import NOTHING, score

MOST_COLUMNS = 4
"""Runs up to which each has a column of its own."""

MOST_DIFFERENCES = 20
"""Keys that are listed next to the results; the configuration at the end has all of them."""

MOST_KEYS = 6
"""Keys of the configuration in a row of results."""


def verdicts_section(records: Sequence[Record]) -> Html:
    """Return the verdict on every run, and what distinguishes them."""
    different = differing(records)
    shown = ", ".join(different[:MOST_KEYS]) + (
        f" and {len(different) - MOST_KEYS} more" if len(different) > MOST_KEYS else ""
    )
    intro = f"{len(records)} runs. " + (
        f"They differ in {shown}." if different else "Their configurations are the same."
    )
    few = len(records) <= 3 and different != ["seed"]
    runs = [
        folded(f"verdict-{place}", markup("{} {}", record.name, badge(record)), _verdict(record), opened=few)
        for place, record in enumerate(records)
    ]
    return section("verdict", "Verdicts", markup('<p class="lead">{}</p>', intro), joined(runs))


def _verdict(record: Record) -> Html:
    told = markup('<p class="told {}">{}</p>', record.state, record.told) if record.told else Html()
    return joined([told, listed(record.verdict, "verdict"), listed(record.notes, "notes")])


def side_by_side_section(records: Sequence[Record]) -> Html:
    """Return the scores of all schemes in all runs, with what differs in the configuration.

    Few runs have a column each; many have a row each, as those of a sweep.
    """
    content = _in_columns(records) if len(records) <= MOST_COLUMNS else _in_rows(records)
    explained = markup('<p class="hint">{} means that a scheme was not part of a run, or has no result.</p>', NOTHING)
    return section("results", "Results side by side", content, explained)


def _in_columns(records: Sequence[Record]) -> Html:
    keys, titles = [key for key in differing(records) if key != "schemes"], _titles(records)
    columns = [Column(record.name) for record in records]
    different = [[key, *(markup("<mark>{}</mark>", value_of(record, key)) for record in records)] for key in keys]
    scores = [[title, *(_cell(record, name) for record in records)] for name, title in titles.items()]
    metric = records[0].metric
    scores.append(["centralised", *(score(record.reference, metric) for record in records)])
    return joined(
        [
            table([Column("scheme", number=False), *columns], scores, _caption(records), "cards results"),
            table(
                [Column("key", number=False), *columns], different, "What differs in the configuration", "cards config"
            )
            if 0 < len(different) <= MOST_DIFFERENCES
            else Html(),
        ]
    )


def _in_rows(records: Sequence[Record]) -> Html:
    keys, titles = [key for key in differing(records) if key != "schemes"], _titles(records)
    keys = keys if len(keys) <= MOST_KEYS else []
    columns = [
        Column("run", number=False),
        *(Column(key, number=False) for key in keys),
        *(Column(title) for title in titles.values()),
        Column("centralised"),
    ]
    rows = [
        [
            markup("{} {}", record.name, badge(record)),
            *(markup("<mark>{}</mark>", value_of(record, key)) for key in keys),
            *(_cell(record, name) for name in titles),
            score(record.reference, record.metric),
        ]
        for record in records
    ]
    return table(columns, rows, _caption(records), "cards results")


def _caption(records: Sequence[Record]) -> str:
    private = any(record.private for record in records)
    among = ", with an epsilon to keep among the schemes that keep it for everything" if private else ""
    return f"{label(records[0].metric).capitalize()} of every scheme in every run; the highest of each run is marked{among}"


def _titles(records: Sequence[Record]) -> dict[str, str]:
    return {str(scheme["scheme"]): str(scheme["title"]) for record in records for scheme in record.schemes}


def _cell(record: Record, scheme: str) -> object:
    scores = {str(each["scheme"]): each.get(record.metric) for each in record.schemes}
    shown = score(scores.get(scheme), record.metric)
    best = len(scores) > 1 and scheme in record.best_schemes()
    return markup('<strong class="best">{}</strong>', shown) if best else shown
