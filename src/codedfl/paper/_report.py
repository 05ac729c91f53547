"""The report of a reproduction in Markdown: commands, pictures, and the verdict on every claim."""

from __future__ import annotations

from collections.abc import Sequence

from codedfl.paper._claims import Evidence
from codedfl.paper._reproduce import Judgement, Reproduction

MOST_SHOWN = 4
"""Claims with more comparisons show only the least and the greatest difference."""


def report(done: Sequence[Reproduction], options: str = "") -> str:
    """Return a page with one section per figure and table.

    Args:
        done: the reproduced figures.
        options: command-line options that reproduce them again.
    """
    parts = ["# The paper, reproduced"]
    for each in done:
        figure = each.figure
        parts.append(f"## {figure.place}: {figure.title}")
        parts.append(f"    codedfl paper {figure.name}{options}")
        if figure.draw:
            parts.append(f"![{figure.title}]({figure.name}/figure.png)")
        parts.append(verdicts_markdown(each.judgements))
    return "\n\n".join(parts) + "\n"


def verdicts_markdown(judgements: Sequence[Judgement]) -> str:
    """Return a table of claims, measurements and verdicts; differences of accuracy are in percentage points."""
    lines = ["| the paper says | where | measured | verdict |", "| --- | --- | --- | --- |"]
    for judgement in judgements:
        lines.append(
            f"| {judgement.claim} | {judgement.panel} | {_measured(judgement.evidence)} | **{judgement.verdict}** |"
        )
    return "\n".join(lines)


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
