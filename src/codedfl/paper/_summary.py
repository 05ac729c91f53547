"""The summary of a reproduction: which claims hold, which depend on where one looks, and which do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from codedfl.paper._claims import NOISE
from codedfl.paper._reproduce import Judgement, Reproduction

Standing = Literal["hold", "depend", "do not hold", "undecided"]

IN_WORDS: dict[Standing, str] = {
    "hold": "Hold wherever they were tried",
    "depend": "Hold only in part, or depend on data, channel, noise or reward",
    "do not hold": "Do not hold",
    "undecided": "Undecided by these seeds",
}


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
