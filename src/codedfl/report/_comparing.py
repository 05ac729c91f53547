"""Several runs on one page: what differs, their results side by side, and all configurations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from codedfl.report._html import Heading, Html, breakable, folded, joined, listed, markup, section, table, text
from codedfl.report._record import Record
from codedfl.report._results import among, badge
from codedfl.report._simulation import label
from codedfl.results import NOTHING, SCORE, score

MOST_COLUMNS = 4
"""Runs up to which each has a column of its own."""

MOST_DIFFERENCES = 20
"""Keys that are listed next to the results; the configuration at the end has all of them."""

MOST_BESIDE = 9
"""Keys and schemes that have room beside each other; with more, keys are listed below the name of a run."""

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
    columns = [Heading(record.name) for record in records]
    different = [[key, *(markup("<mark>{}</mark>", value_of(record, key)) for record in records)] for key in keys]
    scores = [[title, *(_cell(record, name) for record in records)] for name, title in titles.items()]
    metric = records[0].metric
    scores.append(["centralised", *(score(record.reference, metric) for record in records)])
    return joined(
        [
            table([Heading("scheme", number=False), *columns], scores, _caption(records), "cards results"),
            table(
                [Heading("key", number=False), *columns], different, "What differs in the configuration", "cards config"
            )
            if 0 < len(different) <= MOST_DIFFERENCES
            else Html(),
        ]
    )


def _in_rows(records: Sequence[Record]) -> Html:
    keys, titles = [key for key in differing(records) if key != "schemes"], _titles(records)
    keys = keys if len(keys) <= MOST_KEYS else []
    beside = keys if len(keys) + len(titles) <= MOST_BESIDE else []
    columns = [
        Heading("run", number=False),
        *(Heading(key, number=False) for key in beside),
        *(Heading(title) for title in titles.values()),
        Heading("centralised"),
    ]
    rows = [
        [
            markup("{} {}{}", record.name, badge(record), Html() if beside else _listed_values(record, keys)),
            *(markup("<mark>{}</mark>", value_of(record, key)) for key in beside),
            *(_cell(record, name) for name in titles),
            score(record.reference, record.metric),
        ]
        for record in records
    ]
    return table(columns, rows, _caption(records), "cards results")


def _listed_values(record: Record, keys: Sequence[str]) -> Html:
    """Return what a run has for some keys, one below the other."""
    return joined(
        markup('<span class="setting">{} <mark>{}</mark></span>', breakable(key), value_of(record, key)) for key in keys
    )


def _caption(records: Sequence[Record]) -> str:
    what = label(records[0].metric).capitalize()
    return f"{what} of every scheme in every run; the highest of each run is marked{among(records)}"


def _titles(records: Sequence[Record]) -> dict[str, str]:
    return {str(scheme["scheme"]): str(scheme["title"]) for record in records for scheme in record.schemes}


def _cell(record: Record, scheme: str) -> object:
    column, rows = SCORE.by_metric(record.metric), {str(row["scheme"]): row for row in record.results.rows}
    shown = record.results.words(column, rows.get(scheme, {}))
    best = len(rows) > 1 and scheme in record.best_schemes()
    return markup('<strong class="best">{}</strong>', shown) if best else shown


LONGEST_VALUE = 300
"""Characters of a value that are shown."""


def differing(records: Sequence[Record]) -> list[str]:
    """Return the keys of the configuration that are not the same in all runs."""
    keys = dict.fromkeys(key for record in records for key in record.config)
    return [key for key in keys if len({value_of(record, key) for record in records}) > 1]


def value_of(record: Record, key: str) -> str:
    """Return a value of the configuration as TOML would write it."""
    if key not in record.config:
        return "–"  # noqa: RUF001 (an en dash, as tables have it)
    value: Any = record.config[key]
    shown = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return shown if len(shown) <= LONGEST_VALUE else f"{shown[: LONGEST_VALUE - 1]}…"


def configuration_section(records: Sequence[Record]) -> Html:
    """Return the configuration of every run, folded, with differences marked, and the environment."""
    keys = dict.fromkeys(key for record in records for key in record.config)
    different = set(differing(records))
    rows = [
        (_key(key, key in different), [markup("<code>{}</code>", value_of(record, key)) for record in records])
        for key in keys
    ]
    marked = "; what differs is marked" if different else ""
    return section(
        "configuration",
        "Configuration and environment",
        folded(
            "config-table",
            f"Configuration ({len(keys)} keys{', ' + str(len(different)) + ' differ' if different else ''})",
            _values("key", rows, records, f"Configuration{marked}"),
        )
        if keys
        else Html(),
        _environment(records),
    )


def _environment(records: Sequence[Record]) -> Html:
    names = dict.fromkeys(name for record in records for name in record.environment)
    rows: list[tuple[object, list[Html]]] = [("folder", [text(record.path) for record in records])]
    rows += [(name, [text(record.environment.get(name, "")) for record in records]) for name in names]
    return folded("environment", "Environment", _values("", rows, records, "Where the runs were made"))


def _values(head: str, rows: Sequence[tuple[object, list[Html]]], records: Sequence[Record], caption: str) -> Html:
    """Return one row per key: few runs have a column each, of many there is one with the values that occur."""
    if len(records) <= MOST_COLUMNS:
        columns = [Heading(record.name, number=False) for record in records]
        cells: list[list[object]] = [[name, *values] for name, values in rows]
    else:
        columns = [Heading(f"values in {len(records)} runs", number=False)]
        cells = [[name, markup("<span>{}</span>", joined(dict.fromkeys(values), ", "))] for name, values in rows]
    return table([Heading(head, number=False), *columns], cells, caption, "cards config")


def _key(key: str, different: bool) -> Html:
    return markup("<mark>{}</mark>" if different else "{}", key)
