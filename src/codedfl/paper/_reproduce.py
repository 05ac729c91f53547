"""Reproducing figures and tables: runs, then tables, verdicts and pictures, then files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast, get_args

from matplotlib.figure import Figure

from codedfl.files import write_atomically
from codedfl.paper._claims import Evidence, Finding, Verdict, verdict_of
from codedfl.paper._executor import Means
from codedfl.paper._figure import Item
from codedfl.paper._jobs import Kind
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Tables
from codedfl.plotting._canvas import to_png


@dataclass(frozen=True)
class Judgement:
    """A claim on one panel, decided.

    Args:
        claim: in words.
        panel: where.
        verdict: the decision.
        evidence: what it rests on.
    """

    claim: str
    panel: str
    verdict: Verdict
    evidence: Sequence[Evidence]

    @property
    def findings(self) -> str:
        """How many comparisons hold, fail and are open, as in ``4/1/0``."""
        found = [item.finding for item in self.evidence]
        return "/".join(str(found.count(finding)) for finding in get_args(Finding))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        evidence = [{**asdict(item), "finding": item.finding} for item in self.evidence]
        return {"claim": self.claim, "panel": self.panel, "verdict": self.verdict, "evidence": evidence}


@dataclass(frozen=True)
class Reproduction:
    """A figure or table, reproduced.

    Args:
        item: which.
        tables: its numbers.
        judgements: its claims, decided.
    """

    item: Item
    tables: Tables
    judgements: Sequence[Judgement]

    def figure(self) -> Figure | None:
        """Draw the picture, if there is one."""
        return self.item.draw(self.tables) if self.item.draw else None

    def write(self, folder: Path) -> None:
        """Write CSV, PNG, SVG and verdicts, each file whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            write_atomically(folder / f"{name}.csv", table.to_csv())
        for name, to_file in (("figure.png", to_png), ("figure.svg", to_svg)):
            figure = self.figure()  # a new one each time: the layout of a figure moves a little whenever it is drawn
            if figure is not None:
                write_atomically(folder / name, to_file(figure))
        verdicts = [judgement.as_dict() for judgement in self.judgements]
        write_atomically(folder / "verdicts.json", json.dumps(verdicts, indent=1) + "\n")


def reproduce(items: Sequence[Item], scope: Scope, means: Means) -> list[Reproduction]:
    """Carry out what figures and tables need, shared runs once, and judge their claims.

    Args:
        items: which figures and tables.
        scope: how much of them.
        means: with what.

    Returns:
        One reproduction for each.

    Raises:
        InputError: if the data is not there, or the cache cannot be used.

    Example:
        >>> import tempfile
        >>> from codedfl.paper import ITEMS, Cache
        >>> (done,) = reproduce([ITEMS["table-lambda"]], Scope(quick=True), Means(Cache(Path(tempfile.mkdtemp()))))
        >>> done.judgements[0].claim, done.judgements[0].verdict
        ('these values of lambda lead to these noise variances', 'confirmed')
    """
    runs = {item.name: item.runs(scope) for item in items}
    everything = [run for own in runs.values() for run in own]
    measured = {cast(Kind, item.name): configs for item in items if (configs := item.measured(scope))}
    means.watcher.on_outlook(means.outlook(everything, measured, scope))
    outcomes = means.carry_out(everything, scope)
    done = []
    for item in items:
        own = outcomes.of(runs[item.name])
        kind = cast(Kind, item.name)
        if kind in measured:
            own = replace(own, measured=means.measure(kind, measured[kind], scope))
        done.append(judge(item, item.tables(scope, own)))
    return done


def judge(item: Item, tables: Tables) -> Reproduction:
    """Decide all claims about a figure or table from its tables."""
    judgements = []
    for claim in item.claims:
        for panel in map(str, tables["points"].distinct("panel")):
            evidence = claim.judge(tables, panel) if not claim.panels or panel in claim.panels else ()
            if evidence:
                judgements.append(Judgement(claim.text, panel, verdict_of(evidence), evidence))
    return Reproduction(item, tables, judgements)


def all_verdicts(done: Sequence[Reproduction], about: Mapping[str, Any]) -> str:
    """Return one JSON document with the verdicts of all figures and tables, and what they rest on."""
    verdicts = {each.item.name: [judgement.as_dict() for judgement in each.judgements] for each in done}
    return json.dumps({"about": dict(about), "verdicts": verdicts}, indent=1) + "\n"


def to_svg(figure: Figure) -> bytes:
    """Return a figure as an SVG file, the same for the same figure."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "codedfl", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "codedfl"})
    return buffer.getvalue()
