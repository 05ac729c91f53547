"""The committed results of the full reproduction: every verdict follows from a CSV file, and the page says what they say."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from codedfl.paper import FIGURES, Judgement, Reproduction
from codedfl.paper._report import summary_markdown, verdicts_markdown
from codedfl.paper._reproduce import judge
from codedfl.paper._tables import read_csv, to_csv

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "reproduction"

everything = pytest.mark.parametrize("name", FIGURES)


def committed(name: str) -> dict[str, pd.DataFrame]:
    return {path.stem: read_csv(path.read_text()) for path in (RESULTS / name).glob("*.csv")}


@functools.cache
def reproduced(name: str) -> Reproduction:
    return judge(FIGURES[name], committed(name))


def judgements(name: str) -> tuple[Judgement, ...]:
    return tuple(reproduced(name).judgements)


def verdicts(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RESULTS / name / "verdicts.json").read_text())
    return found


@everything
def test_every_verdict_follows_from_the_committed_numbers(name: str) -> None:
    judged = [judgement.as_dict() for judgement in judgements(name)]
    for found, kept in zip(judged, verdicts(name), strict=True):
        assert {**found, "evidence": None} == {**kept, "evidence": None}
        for one, other in zip(found["evidence"], kept["evidence"], strict=True):
            assert (one["what"], one["finding"]) == (other["what"], other["finding"])
            # Accuracies are written to six digits, and an interval is at most 4.3 times as wide as what it is made of.
            assert all(one[key] == pytest.approx(other[key], abs=1e-5) for key in ("difference", "low", "high"))


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*/*.csv")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_committed_numbers_are_read_and_written_byte_for_byte(path: Path) -> None:
    text = path.read_text()
    assert text
    assert to_csv(read_csv(text)) == text


@everything
def test_the_page_has_every_verdict_and_picture(name: str) -> None:
    page = (DOCS / "reproduction.md").read_text()
    assert f"codedfl paper {name}\n" in page
    if FIGURES[name].draw:
        assert f"(reproduction/{name}/figure.png)" in page
        assert (RESULTS / name / "figure.svg").exists()
    for line in verdicts_markdown(judgements(name)).splitlines():
        assert line in page


def test_the_page_opens_with_the_summary() -> None:
    page = (DOCS / "reproduction.md").read_text()
    summary = summary_markdown([reproduced(name) for name in FIGURES])
    assert f"-->\n\n{summary}\n\n<!-- end of summary -->" in page.split("\n## ")[0], "put this there: " + summary
    assert '"Not below" has a margin of 0.2 percentage points' in summary


def test_it_was_a_full_reproduction_with_three_seeds() -> None:
    kept = json.loads((RESULTS / "verdicts.json").read_text())
    assert kept["about"]["seeds"] == [0, 1, 2]
    assert not kept["about"]["quick"]
    assert kept["verdicts"] == {name: verdicts(name) for name in FIGURES}
    for name in FIGURES:
        points = committed(name)["points"]
        assert "seed" not in points or set(points["seed"]) == {0, 1, 2}
