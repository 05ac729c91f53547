from __future__ import annotations

import pytest

from codedfl.paper import FIGURES, Evidence, Judgement, Scope
from codedfl.paper._claims import verdict_of
from codedfl.paper._report import Standing, standing_of, summary_markdown
from tests.paper.made_up import made_up

HOLDS, FAILS, OPEN = (Evidence("yes", 0.02, 0.01, 0.03), Evidence("no", -0.02, -0.03, -0.01), Evidence("?", 0, -1, 1))


def judged(*panels: tuple[Evidence, ...]) -> list[Judgement]:
    return [Judgement("a claim", f"panel {place}", verdict_of(own), own) for place, own in enumerate(panels)]


@pytest.mark.parametrize(
    ("panels", "standing"),
    [
        (((HOLDS, HOLDS), (HOLDS,)), "hold"),
        (((HOLDS,), (FAILS, FAILS)), "depend"),
        (((HOLDS, OPEN),), "depend"),
        (((FAILS,), (FAILS, OPEN)), "do not hold"),
        (((OPEN,), (FAILS,)), "do not hold"),
        (((OPEN,), (OPEN, OPEN)), "undecided"),
    ],
)
def test_a_claim_stands_by_all_of_its_panels(panels: tuple[tuple[Evidence, ...], ...], standing: Standing) -> None:
    assert standing_of(judged(*panels)) == standing


def test_every_claim_is_named_once_under_its_figure() -> None:
    done = [made_up(FIGURES[name], Scope(quick=True)) for name in ("table-lambda", "table-schemes")]
    text = summary_markdown(done)
    assert text.startswith(
        "Of 4 claims 3 hold, 1 hold only in part or in some settings, 0 do not hold, and 0 are undecided."
    )
    for claim in {judgement.claim for each in done for judgement in each.judgements}:
        assert text.count(claim) == 1
    (partly,) = (line for line in text.splitlines() if line.startswith("- **Hold only in part"))
    assert "*Table III (appendix):* these values of lambda lead to these total rewards." in partly
    assert "Do not hold" not in text
