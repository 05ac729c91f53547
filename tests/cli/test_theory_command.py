from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import Cli

SMALL = (
    *("theory", "--devices", "6", "--coded-samples", "60", "--rounds", "12", "--set", "features.dimension=30"),
    *("--set", "learning_rate.scale=0.5"),
)


@pytest.mark.slow
def test_tables_picture_and_files(cli: Cli) -> None:
    result = cli(*SMALL, "--out", "here")
    for words in ("bound on the optimality gap after 12 rounds", "exact variance", "best weight", "stays below"):
        assert words in " ".join(result.out.split())
    assert max(len(line) for line in result.out.splitlines()) <= 80
    assert Path("here/theory.png").stat().st_size > 10_000
    assert json.loads(Path("here/theory.json").read_text())["corrected_bound_holds"] is True


def test_json(cli: Cli) -> None:
    report = json.loads(cli(*SMALL, "--json").out)
    corrected = report["bound"]["corrected"]
    assert corrected["total"] == pytest.approx(sum(corrected["terms"].values()))
    assert report["measured_gap"] < corrected["total"]
    assert report["constants"]["strong_convexity"] <= report["constants"]["smoothness"]


@pytest.mark.slow
def test_a_given_radius_and_cheap_constants_loosen_the_bound(cli: Cli) -> None:
    exact = json.loads(cli(*SMALL, "--radius", "100", "--constants", "exact", "--json").out)
    cheap = json.loads(cli(*SMALL, "--radius", "100", "--constants", "cheap", "--json").out)
    assert exact["constants"]["radius"] == cheap["constants"]["radius"] == 100
    assert cheap["bound"]["corrected"]["total"] > exact["bound"]["corrected"]["total"]


@pytest.mark.slow
def test_noise_that_makes_training_run_away_is_announced(cli: Cli) -> None:
    result = cli(*SMALL, "--noise-variance", "50", "--set", "learning_rate.scale=0.01", "--out", "here")
    assert "indefinite" in result.out


@pytest.mark.slow
def test_checks(cli: Cli) -> None:
    result = cli("theory", "--check", "--draws", "500")
    assert "the theory by Monte Carlo" in result.out
    assert "*" in result.out
    checks = json.loads(cli("theory", "--check", "--draws", "500", "--json").out)
    assert all(check["corrected_holds"] for check in checks)
    assert not all(check["printed_holds"] for check in checks)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--constants", "odd"), "'--constants'"),
        (("--radius", "-1"), "--radius = -1"),
        (("--set", "learning_rate.scale=1"), "learning_rate.scale = 1"),
        (("--set", "coding.clip_norm=1"), "coding.clip_norm"),
        (("--check", "--draws", "1"), "--draws = 1"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(cli: Cli, arguments: tuple[str, ...], words: str) -> None:
    cli(*SMALL, *arguments).assert_refused(words)


def test_results_are_not_overwritten(cli: Cli) -> None:
    Path("here").mkdir()
    Path("here/notes.txt").write_text("mine")
    cli(*SMALL, "--out", "here").assert_refused("not empty")
