"""The top of the page: verdict, facts and results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from codedfl.report._html import Column, Html, joined, listed, markup, section, table
from codedfl.report._record import STATES, Curve, Record
from codedfl.report._simulation import label
from codedfl.results import NOTHING, bound, is_number, number, score, seconds, size

SHARE = 95
"""Percentage of the centralised score for which times are shown."""


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
    columns, rows = _results(record)
    notes = listed(record.notes, "notes") if record.verdict or prefix else Html()
    explained = markup('<p class="hint">{}</p>', _explanation(record))
    caption = f"Results of every scheme; the highest {label(record.metric)} and the shortest times are marked"
    return section(f"{prefix}results", "Results", table(columns, rows, caption, "cards results"), explained, notes)


def _explanation(record: Record) -> str:
    if record.kind == "federation":
        return "Seconds are those of the wall clock, from the first round on."
    return (
        f"Times to {SHARE}% are simulated seconds until {SHARE}% of the centralised score: on the training clock, and with "
        "encoding, uploads and the server's own work charged. Received is everything that the server got, coded uploads "
        "included. Epsilon is that of what is covered, with everything that devices send or their upload alone."
    )


def _results(record: Record) -> tuple[list[Column], list[list[object]]]:
    metric, curves = record.metric, {curve.scheme: curve for curve in record.curves}
    target = SHARE / 100 * record.reference if record.reference is not None and record.reference > 0 else None
    values: list[dict[str, Any]] = []
    for scheme in record.schemes:
        curve = curves.get(scheme["scheme"])
        values.append(
            {
                "score": scheme.get(metric),
                "training": _time(curve, target, "training_s"),
                "everything": _time(curve, target, "everything_s"),
            }
        )
    best = {
        "training": min((v["training"] for v in values if is_number(v["training"])), default=None),
        "everything": min((v["everything"] for v in values if is_number(v["everything"])), default=None),
    }

    best_schemes = record.best_schemes()

    def emphasised(text: str, is_best: bool) -> Html:
        return markup('<strong class="best">{}</strong>', text) if is_best and len(values) > 1 else markup("{}", text)

    def marked(which: str, found: dict[str, Any]) -> Html:
        return emphasised(seconds(found[which]), is_number(found[which]) and found[which] == best[which])

    simulated = record.kind == "run"
    chosen: list[tuple[Column, Callable[[Any, dict[str, Any]], object]]] = [
        (Column("scheme", number=False), lambda s, _: _named(s, record)),
        (
            Column(label(metric)),
            lambda s, v: emphasised(score(v["score"], metric), s["scheme"] in best_schemes),
        ),
    ]
    if simulated and target is not None:
        chosen += [
            (Column(f"to {SHARE}%, training"), lambda _, v: marked("training", v)),
            (Column(f"to {SHARE}%, everything"), lambda _, v: marked("everything", v)),
        ]
    chosen += [
        (Column("rounds"), lambda s, _: s["rounds"] if isinstance(s.get("rounds"), str) else number(s.get("rounds"))),
        (Column("seconds"), lambda s, _: seconds(s.get("everything_charged_s", s.get("simulated_time_s")))),
        (Column("arrive per round"), lambda s, _: number(s.get("mean_arrivals"))),
        (Column("received" if simulated else "uploads"), lambda s, _: size(s.get("bytes_up", s.get("bytes_up_coded")))),
    ]
    if any("privacy" in scheme for scheme in record.schemes):
        chosen.append((Column("epsilon"), lambda s, _: epsilon(s)))
    chosen.append((Column("status", number=False), lambda s, _: s.get("status", NOTHING)))
    rows = [[cell(s, v) for _, cell in chosen] for s, v in zip(record.schemes, values, strict=True)]
    return [column for column, _ in chosen], rows


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


def _time(curve: Curve | None, target: float | None, clock: str) -> float | None:
    times: Sequence[float] = getattr(curve, clock) if curve else ()
    return curve.time_to(target, times) if curve else None
