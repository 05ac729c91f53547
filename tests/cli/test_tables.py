from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from rich.table import Table

from codedfl.cli.tables import datasets_table, devices_table, print_comparison, results_table, schemes_table
from codedfl.data import DatasetStatus
from codedfl.experiment import Comparison, run, summarise, verdict
from codedfl.schemes import SCHEMES, make_scheme
from codedfl.training import RunResult
from tests.support import small_config


def text_of(table: Table, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return run(small_config(schemes=[name for name in SCHEMES if not make_scheme(name).private]))


def test_results_in_one_row_per_scheme(comparison: Comparison) -> None:
    text = text_of(results_table(comparison))
    rows = {line.split("  ")[0]: line.split() for line in text.splitlines()}
    for result in comparison.results:
        row = rows[result.scheme.title]
        assert f"{result.final.score:.4f}" in row
        assert f"{result.final.mean_arrivals:.1f}" in row
    assert rows["SCFL"][-2] == "4.62"  # log2(601) / 2
    assert rows["CodedFedL"][-3:-1] == ["no", "bound"]
    assert rows["FedAvg"][-2] == "-"
    assert "never" in rows["DP-CFL"]
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 80


def test_long_runs_fit_as_well(comparison: Comparison) -> None:
    def stretched(result: RunResult) -> RunResult:
        final = replace(result.final, everything_charged_s=123456.0, simulated_time_s=20000.0, bytes_up=99999e6)
        progress = replace(result.progress, curve=[*result.curve[:-1], final], wall_time_s=12345.6)
        return replace(result, progress=progress)

    long = replace(comparison, results=tuple(stretched(result) for result in comparison.results))
    text = text_of(results_table(long))
    assert "…" not in text
    assert "123456" in text


def test_a_diverged_scheme_is_never_the_best() -> None:
    diverged = run(small_config(coding__noise_variance=1e6))
    table = results_table(diverged)
    assert [row.style for row in table.rows] == ["bold", ""]
    assert " diverged " in text_of(table)


def test_the_best_is_bold_even_if_all_scores_are_negative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    pd.DataFrame(rng.normal(size=(40, 6)), columns=list("abcdey")).to_csv("own.csv", index=False)
    noise = run(small_config(data__dataset="own.csv", data__target=["y"], schemes=["fedavg", "dp-cfl"]))
    assert max(result.final.score for result in noise.results) < 0
    assert sorted(str(row.style) for row in results_table(noise).rows) == ["", "bold"]
    assert noise.evaluator.reference is not None
    assert noise.evaluator.reference.score < 0
    assert "never" not in text_of(results_table(noise))  # there is no share of a negative score to reach
    assert all(scheme["time_to_90_s"] is None for scheme in summarise(noise)["schemes"])


def test_with_an_epsilon_only_a_scheme_that_keeps_it_is_bold() -> None:
    private = run(small_config(schemes=["scfl", "ssp"], privacy__epsilon=0.05))
    assert {name: private.privacy(name)["covers"] for name in ("scfl", "ssp")} == {
        "scfl": "upload",
        "ssp": "everything",
    }
    assert private["scfl"].final.score > private["ssp"].final.score
    assert [row.style for row in results_table(private).rows] == ["", "bold"]


def test_devices_are_listed_up_to_a_point(comparison: Comparison) -> None:
    text = text_of(devices_table(comparison))
    assert text.count("device-") == 6
    assert "more" not in text
    many = run(small_config(data__devices=50, schemes=["dp-cfl"]))
    assert "and 10 more" in text_of(devices_table(many))


def test_a_device_with_many_classes_is_cut_short() -> None:
    text = text_of(devices_table(run(small_config(data__partition="iid", data__devices=2, schemes=["dp-cfl"]))))
    assert "..." in text


def test_datasets_with_brackets_in_their_folders() -> None:
    status = DatasetStatus("mnist", "digits", False, "/data/[/b]", ("x",), "get [them]")
    text = text_of(datasets_table([status]), width=120)
    assert "/data/[/b]: get [them]" in text
    assert " no " in text


def test_all_schemes_are_in_the_table_of_schemes() -> None:
    text = text_of(schemes_table())
    assert all(f"\n{name} " in text for name in SCHEMES)
    assert "…" not in text
    assert "`" not in text


def test_a_comparison_that_never_began_is_printed_too(comparison: Comparison) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_comparison(replace(comparison, results=()), Path("[b]run"), console)
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert lines[-2:] == ["stopped early; continue with: codedfl run --resume --out '[b]run'", "results: [b]run"]


def test_the_verdict_is_printed_below_the_notes(comparison: Comparison) -> None:
    console = Console(file=io.StringIO(), width=80)
    print_comparison(comparison, Path("run"), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert "verdict - " in words
    for sentence in verdict(comparison).sentences:
        assert f"- {sentence}" in words


def test_a_measured_fleet_shows_seconds_and_no_radio(tmp_path: Path) -> None:
    (tmp_path / "fleet.csv").write_text("mean_s,p95_s\n" + "10,25\n" * 6)
    given = {"fleet__file": str(tmp_path / "fleet.csv"), "training__deadline_s": 25.0, "schemes": ["fedavg"]}
    text = text_of(devices_table(run(small_config(**given))))
    assert "rounds of 25 s" in text
    assert text.count(" 10.0   25.0     0.95") == 6
    assert not any(word in text for word in ("dBm", "kHz"))
