from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from codedfl.paper import FIGURES, QUIRKS
from codedfl.paper._fig_stragglers import CODED_SAMPLES, TRAINING_TIME_S
from codedfl.paper._setups import DIGITS, Setup
from tests.support import Cli, folder_contents

TINY: dict[str, Any] = {
    "data__devices": 6,
    "features__dimension": 30,
    "training__evaluations": 5,
    "learning_rate__grid": (0.25, 0.5),
}
FIGURE = ("paper", "fig-coded-samples", "--quick", "--seeds", "2", "--processes", "1")


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reduce the quick version of Fig. 7 to six runs of five rounds."""
    monkeypatch.setattr("codedfl.paper._setups.DIGITS", Setup("digits", "digits", DIGITS.changed(**TINY)))
    monkeypatch.setitem(CODED_SAMPLES, "digits", (20, 60))
    monkeypatch.setitem(TRAINING_TIME_S, "digits", 5.0)


def results(folder: str) -> dict[str, bytes]:
    """Return all files but for what says how long it took."""
    return {name: content for name, content in folder_contents(Path(folder)).items() if name != "outcomes.json"}


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_figure_from_runs_to_files(cli: Cli) -> None:
    result = cli(*FIGURE, "--out", "here")
    assert result.code == 0, result.err
    assert set(results("here")) == {
        *(f"fig-coded-samples/{name}" for name in ("points.csv", "summary.csv", "step-sizes.csv", "outcomes.json")),
        *("fig-coded-samples/figure.png", "fig-coded-samples/figure.svg", "report.md"),
    }
    for words in ("picture: here/fig-coded-samples/figure.png", "results: here", "Fig. 7", "more coded data gives"):
        assert words in " ".join(result.out.split())
    assert max(len(line) for line in result.out.splitlines()) <= 80
    assert "choosing step sizes: 6 of 6 runs to do" in result.err
    assert "training: 12 of 12 runs to do" in result.err
    assert "100%" in result.err
    report = Path("here/report.md").read_text()
    assert "codedfl paper fig-coded-samples --quick --seeds 2" in report
    about = json.loads(Path("here/outcomes.json").read_text())
    assert about["about"]["seeds"] == [0, 1]
    assert about["about"]["quick"] is True
    assert about["outcomes"]["fig-coded-samples"] == json.loads(
        Path("here/fig-coded-samples/outcomes.json").read_text()
    )

    again = cli(*FIGURE, "--out", "cached")
    assert "training: 0 of 12 runs to do" in again.err
    assert results("cached") == results("here")

    assert cli(*FIGURE, "--out", "new", "--cache", "elsewhere").code == 0
    assert results("new") == results("here")
    assert {path.name for path in Path("elsewhere").iterdir()} == {
        path.name for path in Path("runs/paper-cache").iterdir()
    }


@pytest.mark.usefixtures("tiny")
def test_ctrl_c_keeps_what_is_finished(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from codedfl.paper._jobs import Computation, execute

    def interrupted(task: Computation[Any], *rest: Any) -> Any:
        if task.name == "train":
            raise KeyboardInterrupt
        return execute(task, *rest)

    monkeypatch.setattr("codedfl.paper._executor.execute", interrupted)
    result = cli(*FIGURE, "--out", "here")
    assert result.code == 130
    assert "continues from the finished runs" in result.err
    assert "Traceback" not in result.err
    assert len(list(Path("runs/paper-cache").iterdir())) == 6


def test_json_is_one_document_and_nothing_else(cli: Cli) -> None:
    result = cli("paper", "table-lambda", "table-schemes", "--json", "--out", "here")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert list(document["verdicts"]) == ["table-lambda", "table-schemes"]
    assert document == json.loads(Path("here/verdicts.json").read_text())
    assert result.err == ""


def test_the_quick_version_gives_no_verdicts_and_says_why(cli: Cli) -> None:
    result = cli("paper", "table-schemes", "--quick")
    assert result.code == 0
    assert "10/0/0" in result.out
    assert "They say nothing about the paper, so there are no verdicts" in " ".join(result.out.split())
    assert not any(verdict in result.out for verdict in ("confirmed", "partly"))
    assert "confirmed" not in cli("paper", "table-schemes", "--quick", "--json").out


def test_the_full_version_prints_verdicts(cli: Cli) -> None:
    result = cli("paper", "table-schemes", "--processes", "1")
    assert "confirmed" in result.out
    assert "no verdicts" not in result.out


def test_results_go_to_a_new_folder(cli: Cli) -> None:
    assert cli("paper", "table-schemes", "--quick").code == 0
    (folder,) = Path("runs").glob("*-paper-quick")
    assert (folder / "table-schemes" / "points.csv").exists()


def test_a_name_given_twice_is_one(cli: Cli) -> None:
    result = cli("paper", "table-schemes", "table-schemes", "--json")
    assert list(json.loads(result.out)["verdicts"]) == ["table-schemes"]


def test_the_list_has_every_name_and_quirk(cli: Cli) -> None:
    result = cli("paper", "list")
    assert result.code == 0
    for name, figure in FIGURES.items():
        assert name in result.out
        assert figure.place.split()[-1] in result.out
    for name in QUIRKS:
        assert name in result.out
    assert max(len(line) for line in result.out.splitlines()) <= 80
    listed = json.loads(cli("paper", "list", "--json").out)
    assert [item["name"] for item in listed["figures"]] == list(FIGURES)
    assert listed["quirks"] == dict(QUIRKS)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("fig-convergance",), ("'fig-convergance'", "Did you mean 'fig-convergence'?", "table-lambda")),
        (("table-schemes", "all"), ("'all'", "alone")),
        (("list", "table-schemes"), ("'list'",)),
        (("table-schemes", "--seeds", "0"), ("--seeds = 0",)),
        (("table-schemes", "--seeds", "1001"), ("--seeds = 1001",)),
        (("table-schemes", "--quirk", "model-server"), ("'model-server'", "Did you mean 'model-server-batch'?")),
        (("table-schemes", "--processes", "-1"), ("--processes = -1",)),
        (("overhead", "--data-dir", "nowhere"), ("mnist is not in nowhere/mnist", "the quick version")),
    ],
)
def test_bad_input_is_refused_in_one_sentence(cli: Cli, arguments: tuple[str, ...], words: tuple[str, ...]) -> None:
    cli("paper", *arguments).assert_refused(*words)
    assert not Path("runs").exists()


def test_results_are_not_overwritten(cli: Cli) -> None:
    Path("here").mkdir()
    Path("here/notes.txt").write_text("mine")
    cli("paper", "table-schemes", "--out", "here").assert_refused("here", "not empty")
    assert list(folder_contents(Path("here"))) == ["notes.txt"]


@pytest.mark.slow
@pytest.mark.usefixtures("tiny")
def test_a_spoilt_file_of_the_cache_is_computed_again_with_a_note(cli: Cli) -> None:
    assert cli(*FIGURE, "--cache", "kept", "--out", "first").code == 0
    spoilt = sorted(Path("kept").iterdir())[0]
    spoilt.write_bytes(spoilt.read_bytes()[:20])
    again = cli(*FIGURE, "--cache", "kept", "--out", "here")
    assert again.code == 0
    assert f"{spoilt} is not JSON: computing it again." in again.err
    assert json.loads(spoilt.read_text())["key"] == spoilt.stem
    assert results("here") == results("first")
