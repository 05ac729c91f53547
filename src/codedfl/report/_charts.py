"""Interactive charts: where they go on the page, and their data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from codedfl.report._configuration import differing
from codedfl.report._html import Html, joined, markup, section
from codedfl.report._record import Curve, Record
from codedfl.report._simulation import label

MOST_POINTS = 300
"""Points of a curve in the page; longer ones are thinned, first and last point kept."""

MOST_CURVES = 120
"""Curves in one chart; with more, nobody could tell them apart."""

COLOURS = 10


def curves_section(records: Sequence[Record]) -> Html:
    """Return the charts of score against both clocks, with switches for schemes and runs."""
    curves = [curve for record in records for curve in record.curves]
    if not curves:
        return Html()
    real = all(record.kind == "federation" for record in records)
    clocks = [("training", "real time" if real else "training clock")]
    clocks += [] if real else [("everything", "everything charged")]
    figures = joined(
        markup(
            '<figure class="chart" data-clock="{0}"><figcaption>{1} against time, {2}</figcaption>'
            '<div class="plot" tabindex="0" role="img" aria-label="{1} against time, {2}. The arrow keys move along the time '
            'axis; the table of results has the numbers."></div></figure>',
            clock,
            label(records[0].metric).capitalize(),
            words,
        )
        for clock, words in clocks
    )
    thin = any(len(curve.round) > MOST_POINTS for curve in curves)
    remarks = [f"Curves of more than {MOST_POINTS} points are thinned."] * thin
    remarks += [f"Only the first {MOST_CURVES} of {len(curves)} curves are drawn."] * (len(curves) > MOST_CURVES)
    return section(
        "curves",
        "Learning curves",
        Html('<noscript><p class="told">The charts need JavaScript; all tables below work without it.</p></noscript>'),
        Html(
            '<div class="controls" id="curve-controls"><div id="scheme-switches" role="group" aria-label="Schemes"></div>'
            '<div id="run-switches" role="group" aria-label="Runs"></div>'
            '<label><input type="checkbox" id="log-time"> logarithmic time</label>'
            '<label><input type="checkbox" id="whole-range"> whole range</label></div>'
        ),
        markup('<div class="pair charts">{}</div>', figures),
        markup(
            '<p class="hint">Move over a chart for values, drag to zoom in, double-click for the whole range. {}</p>',
            " ".join(remarks),
        ),
    )


def spectrum_section(record: Record, place: int, prefix: str = "") -> Html:
    """Return the chart of eigenvalues; nothing if the run has none."""
    if not record.details.get("spectrum"):
        return Html()
    return section(
        f"{prefix}spectrum",
        "Spectrum of the coded Hessian",
        markup(
            '<p class="hint">{}</p><figure class="chart spectrum" data-run="{}"><figcaption>Eigenvalues of the Hessian, exact '
            'and as the server sees them</figcaption><div class="plot" tabindex="0" role="img" aria-label="Eigenvalues of the '
            'exact Hessian and of the coded one, by rank"></div></figure>',
            "The curvature that the server sees through the uploads, next to the exact one. Eigenvalues below the noise (dashed) "
            "are lost in it; those of a sketch end where its rank does.",
            place,
        ),
    )


def chart_data(records: Sequence[Record]) -> dict[str, Any]:
    """Return the data of all charts as plain values."""
    schemes = list(dict.fromkeys(curve.scheme for record in records for curve in record.curves))
    # Colour tells apart what there is more of, the dash the other; seeds are all alike.
    by_run = len(records) > len(schemes) and differing(records) != ["seed"]
    titles = {curve.scheme: curve.title for record in records for curve in record.curves}
    references = {record.reference for record in records}
    curves = [
        {
            "run": run,
            "scheme": schemes.index(curve.scheme),
            "colour": (run if by_run else schemes.index(curve.scheme)) % COLOURS,
            "dash": schemes.index(curve.scheme) if by_run else run,
            **_points(curve),
        }
        for run, record in enumerate(records)
        for curve in record.curves
    ]
    return {
        "metric": label(records[0].metric) if records else "",
        "percent": bool(records) and records[0].metric == "accuracy",
        "runs": [record.name for record in records],
        "schemes": [titles[scheme] for scheme in schemes],
        "colourByRun": by_run,
        "reference": references.pop() if len(references) == 1 else None,
        "curves": curves[:MOST_CURVES],
        "spectra": {
            str(place): _spectrum(record.details["spectrum"], titles)
            for place, record in enumerate(records)
            if record.details.get("spectrum")
        },
    }


def _points(curve: Curve) -> dict[str, list[float | None]]:
    last = len(curve.round) - 1
    step = max(1, -(-last // (MOST_POINTS - 1)))
    chosen = sorted({*range(0, last + 1, step), last})
    return {
        "round": [curve.round[i] for i in chosen],
        "training": [_short(curve.training_s[i]) for i in chosen],
        "everything": [_short(curve.everything_s[i]) for i in chosen],
        "score": [_short(curve.score[i]) for i in chosen],
    }


def _spectrum(found: Mapping[str, Any], titles: Mapping[str, str]) -> dict[str, Any]:
    lines = [{"name": "exact", "rank": found["exact"]["rank"], "value": list(map(_short, found["exact"]["value"]))}]
    for coded in found["coded"]:
        names = ", ".join(titles.get(name, name) for name in coded["schemes"])
        lines.append(
            {
                "name": f"{names} ({coded['kind']})",
                "rank": coded["rank"],
                "value": list(map(_short, coded["value"])),
                "noise": _short(coded["noise_variance"]),
            }
        )
    return {"lines": lines}


def _short(value: float | None) -> float | None:
    """Return a number with six digits: more of them would be half of the page."""
    return None if value is None else float(f"{value:.6g}")
