"""Charts: learning curves and spectra, for which the page has a script, and bars and maps of arrivals as plain SVG."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from codedfl.report._comparing import differing
from codedfl.report._html import Html, folded, joined, markup, section
from codedfl.report._record import Curve, Record
from codedfl.report._simulation import label
from codedfl.results import number, share

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


def stacked_bars(
    parts: Sequence[tuple[str, str]],
    rows: Sequence[tuple[str, Sequence[float]]],
    shown: Callable[[float], str],
    caption: str,
) -> Html:
    """Return one bar per row, each the sum of its parts.

    Args:
        parts: the class of each part, which gives its colour, and its name.
        rows: the label of each row with one value per part.
        shown: how to write a value.
        caption: what the bars show.
    """
    used = [place for place in range(len(parts)) if any(values[place] > 0 for _, values in rows)]
    longest = max((sum(values) for _, values in rows), default=0.0)
    if not used or longest <= 0:
        return Html()
    legend = joined(markup('<li><span class="swatch {}"></span>{}</li>', *parts[place]) for place in used)
    lines = joined(_bar(label, values, parts, used, longest, shown) for label, values in rows)
    return markup(
        '<figure class="bars"><figcaption>{}</figcaption><ul class="legend">{}</ul><div class="rows">{}</div></figure>\n',
        caption,
        legend,
        lines,
    )


def _bar(
    label: str,
    values: Sequence[float],
    parts: Sequence[tuple[str, str]],
    used: Sequence[int],
    longest: float,
    shown: Callable[[float], str],
) -> Html:
    start, pieces = 0.0, []
    for place in used:
        width = 100 * values[place] / longest
        if width > 0:
            pieces.append(
                markup(
                    '<rect class="{}" x="{}" width="{}" height="1"><title>{}</title></rect>',
                    parts[place][0],
                    f"{start:.3f}",
                    f"{width:.3f}",
                    f"{label}, {parts[place][1]}: {shown(values[place])}",
                )
            )
        start += width
    words = ", ".join(f"{parts[place][1]} {shown(values[place])}" for place in used if values[place] > 0) or shown(0)
    return markup(
        '<span class="name" title="{0}">{0}</span>'
        '<svg viewBox="0 0 100 1" preserveAspectRatio="none" role="img" aria-label="{0}: {1}">{2}</svg>'
        '<span class="value">{3}</span>',
        label,
        words,
        joined(pieces),
        shown(sum(values)),
    )


def attendance_section(record: Record, prefix: str = "") -> Html:
    """Return a map of every group of schemes with the same arrivals; the first is shown, the others are folded."""
    titles = {str(scheme["scheme"]): str(scheme["title"]) for scheme in record.schemes}
    done = {curve.scheme: int(curve.round[-1]) for curve in record.curves if curve.round}
    maps: list[Html] = []
    for place, group in enumerate(record.details.get("arrivals", ())):
        # The arrivals of a simulation are known before it: those of rounds to come are not shown.
        rounds = max((done.get(name, 0) for name in group["schemes"]), default=0)
        if not rounds:
            continue
        names = ", ".join(titles.get(name, name) for name in group["schemes"])
        drawn = _map(record.names, group, min(rounds, group["rounds"]), f"Arrivals of {names}")
        maps.append(folded(f"{prefix}arrivals-{place}", names, drawn, opened=not maps))
    explained = markup(
        '<p class="hint">{}</p>', "A filled cell is an update that arrived before the deadline of its round."
    )
    return section(f"{prefix}arrivals", "Who arrived when", explained, *maps) if maps else Html()


def _map(names: Sequence[str], group: Mapping[str, Any], rounds: int, caption: str) -> Html:
    every_round, every_device = int(group["every_round"]), int(group["every_device"])
    cells = -(-rounds // every_round)
    rows = joined(
        _row(
            names[place * every_device] if place * every_device < len(names) else str(place), seen[:cells], every_round
        )
        for place, seen in enumerate(group["attendance"])
    )
    thinned = [f"every {number(every_round)}th round"] * (every_round > 1)
    thinned += [f"every {number(every_device)}th device"] * (every_device > 1)
    remark = markup('<p class="hint">{} is shown.</p>', " and ".join(thinned).capitalize()) if thinned else Html()
    ticks = joined(markup("<span>{}</span>", number(1 + round(part * (rounds - 1) / 4))) for part in range(5))
    return markup(
        '<figure class="heat" aria-label="{}">{}<div class="rows">{}'
        '<span class="name">round</span><span class="ticks">{}</span><span></span></div></figure>\n',
        caption,
        remark,
        rows,
        ticks,
    )


def _row(name: str, seen: str, every_round: int) -> Html:
    asked, arrived = len(seen) - seen.count("-"), seen.count("1")
    words = f"{name}: arrived in {arrived} of {asked} rounds" + (" shown" if every_round > 1 else "")
    runs = "".join(f"M{run.start()} .5h{run.end() - run.start()}" for run in re.finditer("1+", seen))
    idle = "".join(f"M{run.start()} .5h{run.end() - run.start()}" for run in re.finditer("-+", seen))
    return markup(
        '<span class="name" title="{name}">{name}</span><svg viewBox="0 0 {width} 1" preserveAspectRatio="none" role="img" '
        'aria-label="{words}" data-seen="{seen}" data-every="{every}"><path class="arrived" d="{runs}"/>'
        '<path class="idle" d="{idle}"/></svg><span class="value">{share}</span>',
        name=name,
        width=max(len(seen), 1),
        words=words,
        seen=seen,
        every=every_round,
        runs=runs,
        idle=idle,
        share=share(arrived / asked) if asked else "not asked",
    )
