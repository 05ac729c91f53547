"""Configuration and environment, with what differs between runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from codedfl.report._html import Column, Html, folded, markup, section, table
from codedfl.report._record import Record

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
    """Return the whole configuration of every run side by side, folded, with differences marked, and the environment."""
    keys = dict.fromkeys(key for record in records for key in record.config)
    different = set(differing(records))
    columns = [Column("key", number=False), *(Column(record.name, number=False) for record in records)]
    rows = [
        [_key(key, key in different), *(markup("<code>{}</code>", value_of(r, key)) for r in records)] for key in keys
    ]
    marked = "; what differs is marked" if different else ""
    content = table(columns, rows, f"Configuration{marked}", "cards config")
    return section(
        "configuration",
        "Configuration and environment",
        folded(
            "config-table",
            f"Configuration ({len(keys)} keys{', ' + str(len(different)) + ' differ' if different else ''})",
            content,
        )
        if keys
        else Html(),
        _environment(records),
    )


def _environment(records: Sequence[Record]) -> Html:
    names = dict.fromkeys(name for record in records for name in record.environment)
    columns = [Column("", number=False), *(Column(record.name, number=False) for record in records)]
    rows: list[list[object]] = [["folder", *(str(record.path) for record in records)]]
    rows += [[name, *(str(record.environment.get(name, "")) for record in records)] for name in names]
    return folded("environment", "Environment", table(columns, rows, "Where the runs were made", "cards config"))


def _key(key: str, different: bool) -> Html:
    return markup("<mark>{}</mark>" if different else "{}", key)
