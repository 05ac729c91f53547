"""The whole page: one file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from codedfl._version import __version__
from codedfl.errors import InputError
from codedfl.files import write_atomically
from codedfl.report._charts import attendance_section, chart_data, curves_section, spectrum_section
from codedfl.report._comparing import configuration_section, side_by_side_section, verdicts_section
from codedfl.report._devices import costs_section, devices_section, incentive_section
from codedfl.report._finding import read_runs
from codedfl.report._html import Html, folded, joined, markup, section
from codedfl.report._privacy import privacy_section
from codedfl.report._record import Record
from codedfl.report._results import Overall, badge, overall_section, read_overall, results_section, verdict_section

SCRIPTS = ("uPlot.iife.min.js", "charts.js", "page.js")
STYLES = ("uPlot.min.css", "page.css")

MOST_DETAILED = 8
"""Runs on one page up to which each is shown in detail."""


def write_report(runs: Sequence[Path | str], out: Path | str | None = None) -> Path:
    """Write the page of one run, or of several side by side.

    Args:
        runs: folders of runs, sweeps or federations.
        out: the file; None for ``report.html`` in the first folder.

    Returns:
        The file.

    Raises:
        InputError: a folder holds no run, or the file cannot be written.
    """
    page = render_page(read_runs(runs), read_overall(runs))
    path = Path(runs[0]) / "report.html" if out is None else Path(out)
    try:
        write_atomically(path, page)
    except OSError as error:
        raise InputError(f"--out = {path} cannot be written ({error.strerror}): give another path.") from error
    return path


def render_page(records: Sequence[Record], overall: Overall | None = None, *, live: bool = False) -> str:
    """Return the page as HTML.

    Args:
        records: the runs, in order.
        overall: what they have in common, if they are the same comparison under several seeds.
        live: whether the page is served and asks for news.
    """
    script = joined((Html(_asset(name)) for name in (*SCRIPTS, *(["live.js"] * live))), "\n")
    style = joined((Html(_asset(name)) for name in STYLES), "\n")
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; img-src data:; base-uri 'none'; "
        f"form-action 'none'"
    ) + ("; connect-src 'self'" if live else "")
    return markup(
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="generator" content="codedfl {version}">'
        '<link rel="icon" href="data:,"><title>{title}</title><style>{style}</style></head>\n<body>\n'
        '<header><div><p class="brand">codedfl</p><h1 id="title">{title}</h1></div><div class="tools">'
        '<span id="live" role="status"></span><button type="button" id="theme">dark mode</button></div></header>\n'
        '<main id="main">{body}</main>\n'
        '<footer>Made by codedfl {version}. Charts by <a href="https://github.com/leeoniya/uPlot">uPlot</a> (MIT).</footer>\n'
        '<script type="application/json" id="data">{data}</script>\n<script>{script}</script>\n</body></html>\n',
        policy=policy,
        version=__version__,
        title=title_of(records),
        style=style,
        body=render_body(records, overall),
        data=_embedded(chart_data(records)),
        script=script,
    )


def render_state(records: Sequence[Record], overall: Overall | None = None) -> dict[str, Any]:
    """Return what changes of a page while a run goes on."""
    going = not records or any(record.state in ("going", "waiting") for record in records)
    body = render_body(records, overall)
    return {"title": title_of(records), "body": body, "data": chart_data(records), "going": going}


def title_of(records: Sequence[Record]) -> str:
    """Return the title of a page."""
    if not records:
        return "no run yet"
    return records[0].title if len(records) == 1 else f"{len(records)} runs compared"


def render_body(records: Sequence[Record], overall: Overall | None = None) -> Html:
    """Return everything between header and footer."""
    if not records:
        return Html('<section><p class="told going">There is no run in this folder yet.</p></section>')
    if len(records) == 1:
        (record,) = records
        head = joined(
            [markup('<p class="state">{}</p>', badge(record)), verdict_section(record), results_section(record)]
        )
        sections = [head, curves_section(records), *_details(record, 0)]
    else:
        sections = [verdicts_section(records), side_by_side_section(records), curves_section(records)]
        if len(records) <= MOST_DETAILED:
            runs = [
                folded(f"run-{place}", record.name, joined(_details(record, place, f"run-{place}-")))
                for place, record in enumerate(records)
            ]
            sections.append(section("runs", "Each run in detail", *runs))
    above = overall_section(overall) if overall else Html()
    return joined([above, *sections, configuration_section(records)])


def _details(record: Record, place: int, prefix: str = "") -> list[Html]:
    return [
        results_section(record, prefix) if prefix else Html(),
        attendance_section(record, prefix),
        costs_section(record, prefix),
        privacy_section(record, prefix),
        incentive_section(record, prefix),
        spectrum_section(record, place, prefix),
        devices_section(record, prefix),
    ]


def _embedded(data: Mapping[str, Any]) -> Html:
    """Return JSON that no text in it can end the element of."""
    return Html(json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


@cache
def _asset(name: str) -> str:
    return files("codedfl.report").joinpath("assets", name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
