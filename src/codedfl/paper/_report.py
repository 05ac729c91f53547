"""The report of a reproduction in Markdown: a summary, commands, pictures, and the verdict on every claim."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.paper._claims import Evidence
from codedfl.paper._reproduce import Judgement, Reproduction
from codedfl.paper._summary import summary_markdown

MOST_SHOWN = 4
"""Claims with more comparisons show only the least and the greatest difference."""

QUICK_ONLY = (
    "Reduced runs on the embedded digits show that everything works. They say nothing about the paper, so there are no verdicts: "
    "for those, run the same command without `--quick`."
)
"""What must be known about results of the quick version."""


def report(done: Sequence[Reproduction], options: str = "", *, quick: bool = False) -> str:
    """Return a page with one section per figure and table, which opens with a summary.

    Args:
        done: the reproduced figures.
        options: command-line options that reproduce them again.
        quick: whether runs were reduced; the page then gives no verdicts.
    """
    parts = (
        ["# The paper, in quick versions", QUICK_ONLY] if quick else ["# The paper, reproduced", summary_markdown(done)]
    )
    for each in done:
        figure = each.figure
        parts.append(f"## {figure.place}: {figure.title}")
        parts.append(f"    codedfl paper {figure.name}{options}")
        if figure.draw:
            parts.append(f"![{figure.title}]({figure.name}/figure.png)")
        parts.append(verdicts_markdown(each.judgements, quick=quick))
    return "\n\n".join(parts) + "\n"


def verdicts_markdown(judgements: Sequence[Judgement], *, quick: bool = False) -> str:
    """Return a table of claims, measurements and verdicts; differences of accuracy are in percentage points.

    Args:
        judgements: what the table is about.
        quick: whether runs were reduced; there is then no column of verdicts.
    """
    header = ["the paper says", "where", "measured", "verdict"]
    rows = [header, ["---"] * len(header)]
    rows += [[each.claim, each.panel, _measured(each.evidence), f"**{each.verdict}**"] for each in judgements]
    return "\n".join(f"| {' | '.join(row[:-1] if quick else row)} |" for row in rows)


def _measured(evidence: Sequence[Evidence]) -> str:
    if len(evidence) <= MOST_SHOWN:
        return "; ".join(_text(item) for item in evidence)
    found = [item.finding for item in evidence]
    counts = f"of {len(found)} comparisons {found.count('holds')} hold, {found.count('fails')} fail, {found.count('open')} open"
    if evidence[0].exact:
        failing = [item.what for item in evidence if item.finding != "holds"]
        return "; ".join([counts, *(f"not so: {what}" for what in failing)])
    ordered = sorted(evidence, key=lambda item: item.difference)
    return f"{counts}; from {_text(ordered[0])} to {_text(ordered[-1])}"


def _text(item: Evidence) -> str:
    """Return a comparison in words, with the mean difference and its interval in percentage points."""
    if item.exact:
        return f"{item.what}: {'yes' if item.finding == 'holds' else 'no'}"
    mean, low, high = (100 * value for value in (item.difference, item.low, item.high))
    return f"{item.what}: {mean:+.2f} [{low:+.2f}, {high:+.2f}] {item.finding}"
