"""The report of a reproduction in Markdown: a summary, commands, pictures, and the verdict on every claim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from codedfl.paper._claims import NOISE, Evidence
from codedfl.paper._reproduce import Judgement, Reproduction

MOST_SHOWN = 4
"""Claims with more comparisons show only the least and the greatest difference."""

QUICK_ONLY = (
    "Reduced runs on the embedded digits show that everything works. They say nothing about the paper, so there are no verdicts: "
    "for those, run the same command without `--quick`."
)
"""What must be known about results of the quick version."""

Standing = Literal["hold", "depend", "do not hold", "undecided"]

IN_WORDS: dict[Standing, str] = {
    "hold": "Hold wherever they were tried",
    "depend": "Hold only in part, or depend on data, channel, noise or reward",
    "do not hold": "Do not hold",
    "undecided": "Undecided by these seeds",
}


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


def standing_of(judgements: Sequence[Judgement]) -> Standing:
    """Return how a claim stands over all panels.

    Args:
        judgements: the verdicts on the claim, one per panel.

    Returns:
        ``hold`` if all panels confirm it; ``undecided`` if all of its comparisons are open; ``do not hold`` if no comparison
        holds and some fail; else ``depend``.

    Example:
        >>> from codedfl.paper import Evidence
        >>> no, unclear = Evidence("a over b", -0.02, -0.03, -0.01), Evidence("a over b", 0.0, -0.01, 0.01)
        >>> standing_of([Judgement("a is best", "mnist", "not confirmed", [no, unclear])])
        'do not hold'
        >>> standing_of([Judgement("a is best", "mnist", "not confirmed", [unclear])])
        'undecided'
    """
    if all(judgement.verdict == "confirmed" for judgement in judgements):
        return "hold"
    found = {item.finding for judgement in judgements for item in judgement.evidence}
    if "holds" in found:
        return "depend"
    return "do not hold" if "fails" in found else "undecided"


def summary_markdown(done: Sequence[Reproduction]) -> str:
    """Return one screen of Markdown: every claim under how it stands, and what "not below" means."""
    claims: dict[Standing, dict[str, list[str]]] = {standing: {} for standing in get_args(Standing)}
    for each in done:
        for claim in dict.fromkeys(judgement.claim for judgement in each.judgements):
            own = [judgement for judgement in each.judgements if judgement.claim == claim]
            claims[standing_of(own)].setdefault(each.figure.place, []).append(claim)
    counts = {standing: sum(map(len, places.values())) for standing, places in claims.items()}
    lists = "\n".join(
        f"- **{IN_WORDS[standing]} ({counts[standing]}).** {' '.join(_line(*item) for item in places.items())}"
        for standing, places in claims.items()
        if places
    )
    return f"""Of {sum(counts.values())} claims {counts["hold"]} hold, {counts["depend"]} hold only in part or in some settings, \
{counts["do not hold"]} do not hold, and {counts["undecided"]} are undecided.

{lists}

"Not below" has a margin of {100 * NOISE:g} percentage points: a series that should rise may fall by less than that from one \
point to the next."""


def _line(place: str, claims: Sequence[str]) -> str:
    return f"*{place}:* {'; '.join(claims)}."
