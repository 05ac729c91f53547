"""What several runs have in common: the same comparison under several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from codedfl.report._files import read_json
from codedfl.report._html import Column, Html, listed, markup, section, table
from codedfl.report._simulation import label
from codedfl.results import NOTHING, is_number, score, seconds


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
    metric = overall.metric
    columns = [
        Column("scheme", number=False),
        Column(label(metric)),
        Column("95% interval"),
        Column("to 95%, training"),
        Column("seconds, everything charged"),
    ]
    rows = [
        [
            scheme["title"],
            score(_mean(scheme, metric), metric),
            _interval(scheme.get(metric) or {}, metric),
            seconds(_mean(scheme, "time_to_95_s")),
            seconds(_mean(scheme, "everything_charged_s")),
        ]
        for scheme in overall.schemes
    ]
    caption = f"Means over {overall.seeds} seeds; {NOTHING} where a seed has no such number"
    return section(
        "overall",
        f"Verdict over {overall.seeds} seeds",
        listed(overall.verdict, "verdict"),
        markup('<div class="below">{}</div>', table(columns, rows, caption, "cards results")),
    )


def _mean(scheme: Mapping[str, Any], key: str) -> Any:
    return (scheme.get(key) or {}).get("mean")


def _interval(found: Mapping[str, Any], metric: str) -> str:
    low, high = found.get("low"), found.get("high")
    return f"{score(low, metric)} to {score(high, metric)}" if is_number(low) and is_number(high) else NOTHING
