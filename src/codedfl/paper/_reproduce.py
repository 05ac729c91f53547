"""Reproduction of figures and tables: runs, then tables, verdicts and pictures, then files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, get_args

from matplotlib.figure import Figure as MplFigure

from codedfl.files import write_atomically
from codedfl.paper._claims import Evidence, Finding, Verdict, verdict_of
from codedfl.paper._executor import PROGRESS_TASK, Executor
from codedfl.paper._figure import Figure
from codedfl.paper._setups import Scope
from codedfl.paper._tables import Tables, to_csv
from codedfl.plotting import to_png


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim in one panel.

    Args:
        claim: the claim in words.
        panel: the panel of the figure.
        verdict: the decision.
        evidence: the comparisons behind it.
    """

    claim: str
    panel: str
    verdict: Verdict
    evidence: Sequence[Evidence]

    @property
    def findings(self) -> str:
        """Number of comparisons that hold, fail and are open, as in ``4/1/0``."""
        found = [item.finding for item in self.evidence]
        return "/".join(str(found.count(finding)) for finding in get_args(Finding))

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        evidence = [{**asdict(item), "finding": item.finding} for item in self.evidence]
        return {"claim": self.claim, "panel": self.panel, "verdict": self.verdict, "evidence": evidence}


@dataclass(frozen=True)
class Reproduction:
    """A reproduced figure or table.

    Args:
        figure: the figure or table of the paper.
        tables: its numbers.
        judgements: the verdicts on its claims.
        quick: whether its runs were reduced; they then say nothing about the paper, and no verdict is written or shown.
    """

    figure: Figure
    tables: Tables
    judgements: Sequence[Judgement]
    quick: bool = False

    def outcomes(self) -> list[dict[str, Any]]:
        """Return what became of every claim as plain values, for JSON; without verdicts if the runs were reduced."""
        left_out = {"verdict"} if self.quick else set()
        return [
            {key: value for key, value in judgement.as_dict().items() if key not in left_out}
            for judgement in self.judgements
        ]

    def draw(self) -> MplFigure | None:
        """Draw the picture, if there is one."""
        return self.figure.draw(self.tables) if self.figure.draw else None

    def write(self, folder: str | Path) -> None:
        """Write CSV, PNG, SVG, and ``verdicts.json`` (``outcomes.json`` if quick), each file whole or not at all."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in self.tables.items():
            write_atomically(folder / f"{name}.csv", to_csv(table))
        for name, to_file in (("figure.png", to_png), ("figure.svg", to_svg)):
            picture = self.draw()  # drawn anew for each file: rendering moves the layout a little
            if picture is not None:
                write_atomically(folder / name, to_file(picture))
        write_atomically(folder / f"{outcomes_name(self.quick)}.json", json.dumps(self.outcomes(), indent=1) + "\n")


def reproduce(figures: Sequence[Figure], scope: Scope, executor: Executor) -> list[Reproduction]:
    """Execute the runs of figures and tables, shared runs once, and judge the paper's claims.

    Args:
        figures: which figures and tables.
        scope: the tasks, seeds and quirks.
        executor: executes the runs.

    Returns:
        One reproduction per figure.

    Raises:
        InputError: if a dataset is missing or the cache cannot be used.

    Example:
        >>> import tempfile
        >>> from codedfl.paper import FIGURES, Cache
        >>> (done,) = reproduce([FIGURES["table-lambda"]], Scope(), Executor(Cache(tempfile.mkdtemp())))
        >>> done.judgements[0].claim, done.judgements[0].verdict
        ('these values of lambda lead to these noise variances', 'confirmed')
    """
    runs = [figure.runs(scope) for figure in figures]
    everything = [run for own in runs for run in own]
    measured = {figure.name: (figure.measurement, figure.measured(scope)) for figure in figures if figure.measurement}
    executor.expect(everything, measured.values(), scope)
    outcomes = executor.run(everything, scope)
    done = []
    for figure, own_runs in zip(figures, runs, strict=True):
        own = outcomes.of(own_runs)
        if figure.name in measured:
            own = replace(own, measured=executor.measure(*measured[figure.name], scope))
        done.append(judge(figure, figure.tables(scope, own), quick=scope.quick))
    executor.progress.close(PROGRESS_TASK, "100% done")
    return done


def judge(figure: Figure, tables: Tables, *, quick: bool = False) -> Reproduction:
    """Decide all claims about a figure or table from its tables."""
    judgements = []
    for claim in figure.claims:
        for panel in tables["points"]["panel"].unique():
            evidence = claim.judge(tables, panel) if not claim.panels or panel in claim.panels else ()
            if evidence:
                judgements.append(Judgement(claim.text, panel, verdict_of(evidence), evidence))
    return Reproduction(figure, tables, judgements, quick)


def outcomes_name(quick: bool) -> str:
    """Return what the decisions on claims are called, in JSON and as a file: only the full version gives verdicts."""
    return "outcomes" if quick else "verdicts"


def all_outcomes(done: Sequence[Reproduction], about: Mapping[str, Any], *, quick: bool = False) -> str:
    """Return one JSON document with the verdicts on all figures and tables, and how they were obtained.

    Args:
        done: the reproduced figures.
        about: how they were obtained.
        quick: whether runs were reduced; there are then ``outcomes`` without a verdict.
    """
    outcomes = {each.figure.name: each.outcomes() for each in done}
    return json.dumps({"about": dict(about), outcomes_name(quick): outcomes}, indent=1) + "\n"


def to_svg(figure: MplFigure) -> bytes:
    """Render a figure as SVG, reproducibly."""
    import matplotlib as mpl

    buffer = io.BytesIO()
    with mpl.rc_context({"svg.hashsalt": "codedfl", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": "codedfl"})
    return buffer.getvalue()
