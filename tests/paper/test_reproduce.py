from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from codedfl.paper import (
    FIGURES,
    QUICK_ONLY,
    Cache,
    Claim,
    Evidence,
    Executor,
    Figure,
    Judgement,
    Reproduction,
    Scope,
    all_outcomes,
    report,
    reproduce,
)
from codedfl.paper._claims import rising
from codedfl.paper._drawing import Axis, line_figure
from codedfl.paper._report import summary_markdown, verdicts_markdown
from codedfl.paper._runs import FigureRun
from codedfl.paper._tables import Tables, column
from tests.paper.made_up import TWO_SEEDS, made_up, small_run
from tests.support import folder_contents

FILES = {"points.csv", "summary.csv", "step-sizes.csv", "figure.png", "figure.svg", "outcomes.json"}


def two_runs(_: Scope) -> list[FigureRun]:
    return [small_run("SCFL", x, coding__noise_variance=noise) for x, noise in ((1.0, 50.0), (2.0, 0.1))]


SMALL = Figure(
    name="fig-small",
    title="Two points",
    place="nowhere",
    runs=two_runs,
    draw=line_figure(Axis("budget")),
    claims=(Claim("less noise is better", rising("SCFL")), Claim("not here", rising("SCFL"), panels=("mnist",))),
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Cache:
    return Cache(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def done(cache: Cache) -> Reproduction:
    (found,) = reproduce([SMALL], TWO_SEEDS, Executor(cache, processes=1))
    return found


def test_numbers_picture_and_outcomes_are_written(done: Reproduction, tmp_path: Path) -> None:
    done.write(tmp_path / "deep" / "fig-small")
    files = folder_contents(tmp_path / "deep" / "fig-small")
    assert set(files) == FILES
    assert files["figure.png"].startswith(b"\x89PNG")
    assert b"<svg" in files["figure.svg"]
    points = list(csv.DictReader(files["points.csv"].decode().splitlines()))
    assert [(row["panel"], row["series"], row["x"], row["seed"]) for row in points] == [
        ("digits", "SCFL", x, seed) for x in "12" for seed in "01"
    ]
    summary = list(csv.DictReader(files["summary.csv"].decode().splitlines()))
    for place, row in enumerate(summary):
        own = [float(point["accuracy"]) for point in points[2 * place : 2 * place + 2]]
        assert float(row["mean"]) == pytest.approx(sum(own) / 2, abs=2e-6)
    (outcome,) = json.loads(files["outcomes.json"])
    assert (outcome["claim"], outcome["panel"]) == ("less noise is better", "digits")
    (evidence,) = outcome["evidence"]
    assert evidence["difference"] == pytest.approx(float(summary[1]["mean"]) - float(summary[0]["mean"]), abs=2e-6)
    assert evidence["difference"] > 0


@pytest.mark.slow
def test_a_new_cache_and_an_old_one_give_the_same_files(done: Reproduction, cache: Cache, tmp_path: Path) -> None:
    done.write(tmp_path / "first")
    for name, own in (("new", Cache(tmp_path / "cache")), ("old", cache)):
        (again,) = reproduce([SMALL], TWO_SEEDS, Executor(own, processes=1))
        again.write(tmp_path / name)
        assert folder_contents(tmp_path / name) == folder_contents(tmp_path / "first"), name
    assert set(folder_contents(tmp_path / "cache")) == set(folder_contents(cache.folder))


def test_several_figures_get_their_own_runs_alone(cache: Cache) -> None:
    other = replace(SMALL, name="fig-other", runs=lambda scope: two_runs(scope)[1:], claims=())
    small, alone = reproduce([SMALL, other], TWO_SEEDS, Executor(cache, processes=1))
    assert len(small.tables["points"]) == 4
    assert alone.tables["points"].to_dict("records") == small.tables["points"].to_dict("records")[2:]
    assert (small.figure, alone.figure) == (SMALL, other)


def test_a_claim_is_judged_on_its_panels_and_where_there_is_evidence() -> None:
    def silent(_: Tables, __: str) -> list[Evidence]:
        return []

    figure = replace(
        FIGURES["fig-tradeoff"],
        claims=(
            Claim("everywhere", rising("SCFL")),
            Claim("on one task", rising("SCFL"), panels=("cifar10",)),
            Claim("nowhere", silent),
        ),
    )
    judged = [(each.claim, each.panel) for each in made_up(figure, Scope()).judgements]
    assert judged == [("everywhere", "mnist"), ("everywhere", "cifar10"), ("on one task", "cifar10")]


def test_a_table_has_no_picture(tmp_path: Path) -> None:
    done = made_up(FIGURES["table-schemes"], Scope(quick=True))
    assert done.draw() is None
    done.write(tmp_path)
    assert set(folder_contents(tmp_path)) == {"points.csv", "schemes.csv", "outcomes.json"}


def test_only_the_full_version_writes_verdicts(tmp_path: Path) -> None:
    for quick, name in ((True, "outcomes.json"), (False, "verdicts.json")):
        done = made_up(FIGURES["table-lambda"], Scope(quick=quick))
        done.write(tmp_path)
        written = json.loads((tmp_path / name).read_text())
        assert written == done.outcomes()
        assert [each.get("verdict") for each in written] == [
            None if quick else judged.verdict for judged in done.judgements
        ]


def test_what_is_measured_reaches_the_tables() -> None:
    tables = made_up(FIGURES["attack"], Scope(quick=True, seeds=(0, 1))).tables
    assert len(tables["points"]) == 2 * 2 * 5
    assert column(tables["summary"], "mean", attack="oracle", series="with noise", x=0.5) == pytest.approx([0.7005])


def judgement(*evidence: Evidence, claim: str = "a claim") -> Judgement:
    return Judgement(claim, "digits", "partly", evidence)


HOLDS, FAILS, OPEN = (Evidence("yes", 0.02, 0.01, 0.03), Evidence("no", -0.02, -0.03, -0.01), Evidence("?", 0, -1, 1))


def test_findings_are_counted() -> None:
    assert judgement(HOLDS, FAILS, HOLDS, OPEN, HOLDS).findings == "3/1/1"
    assert judgement(OPEN).findings == "0/0/1"


def test_all_verdicts_are_one_document() -> None:
    done = [made_up(FIGURES[name], Scope()) for name in ("table-schemes", "table-lambda")]
    document = json.loads(all_outcomes(done, {"seeds": [0]}))
    assert document["about"] == {"seeds": [0]}
    assert list(document["verdicts"]) == ["table-schemes", "table-lambda"]
    assert document["verdicts"]["table-lambda"] == [each.as_dict() for each in done[1].judgements]
    assert document["verdicts"]["table-schemes"][0]["evidence"][0]["finding"] == "holds"


def test_the_document_of_a_quick_version_names_no_verdict() -> None:
    document = json.loads(
        all_outcomes([made_up(FIGURES["table-schemes"], Scope(quick=True))], {"quick": True}, quick=True)
    )
    assert list(document) == ["about", "outcomes"]
    assert set(document["outcomes"]["table-schemes"][0]) == {"claim", "panel", "evidence"}


def test_the_report_has_a_section_with_command_picture_and_verdicts_for_each() -> None:
    done = [made_up(FIGURES[name], Scope(quick=True)) for name in ("fig-tau", "table-schemes")]
    text = report(done, " --seeds 2")
    assert text.count("\n## ") == 2
    assert "    codedfl paper fig-tau --seeds 2\n" in text
    assert text.count("figure.png") == 1
    assert summary_markdown(done) in text.split("\n## ")[0]
    for each in done:
        for own in each.judgements:
            assert f"| {own.claim} | {own.panel} |" in text
            assert f"| **{own.verdict}** |" in text


def test_the_report_of_a_quick_version_gives_no_verdicts() -> None:
    text = report([made_up(FIGURES["table-lambda"], Scope(quick=True))], " --quick", quick=True)
    assert QUICK_ONLY in text
    assert "    codedfl paper table-lambda --quick\n" in text
    assert "| a smaller lambda pays more | contract | total reward falls as lambda grows: yes |" in text
    assert not any(verdict in text for verdict in ("confirmed", "partly"))


def test_the_report_shows_few_comparisons_and_counts_many() -> None:
    few, many = verdicts_markdown([judgement(HOLDS, FAILS)]), verdicts_markdown([judgement(*[HOLDS] * 4, FAILS, OPEN)])
    assert "yes: +2.00 [+1.00, +3.00] holds; no: -2.00 [-3.00, -1.00] fails" in few
    assert "of 6 comparisons 4 hold, 1 fail, 1 open; from no: -2.00" in many
    assert "**partly**" in few
