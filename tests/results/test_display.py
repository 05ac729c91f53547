from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from typing import Any

import pytest

from codedfl.experiment import Comparison, run
from tests.support import Diary, StopAfter, small_config

SHORT = 400
"""Characters of the longest ``repr``; one line of a wide screen or two."""


def test_everything_that_a_comparison_leads_to_is_shown_in_one_line(comparison: Comparison) -> None:
    result, setting = comparison["scfl"], comparison.setting
    shown: list[Any] = [
        *(comparison, result, result.progress, result.prepared, result.progress.state, result.progress.ledger),
        *(comparison.experiment, comparison.config, setting, setting.federation, setting.fleet, setting.gram),
        *(comparison.evaluator, comparison.evaluator.reference, comparison.predictor("scfl")),
    ]
    for value in shown:
        text = repr(value)
        assert text.startswith(f"{type(value).__name__}(")
        assert len(text) <= SHORT, text
        assert "\n" not in text
    assert repr(comparison).startswith("Comparison('digits' on 6 device(s), accuracy: fedavg 0.")
    assert "scfl" in repr(result)
    assert f"{result.final.score:.4f}" in repr(result)


def test_a_notebook_shows_the_table_and_the_curves_without_any_other_file(comparison: Comparison) -> None:
    html = comparison._repr_html_()
    for result in comparison.results:
        assert f">{result.scheme.title}<" in html
        assert f">{result.final.score:.4f}<" in html
    (picture,) = re.findall(r'src="data:image/png;base64,([^"]+)"', html)
    assert b64decode(picture).startswith(b"\x89PNG")
    assert "http" not in html.replace(picture, "")
    assert "<script" not in html


@pytest.mark.slow
def test_names_from_a_file_are_not_markup(comparison: Comparison) -> None:
    data = comparison.config.data.model_copy(update={"dataset": "<b>&.csv"})
    config = comparison.config.model_copy(update={"data": data})
    html = replace(comparison, experiment=replace(comparison.experiment, config=config))._repr_html_()
    assert "&lt;b&gt;&amp;.csv" in html
    assert "<b>" not in html


def test_a_comparison_without_results_can_be_shown() -> None:
    stopped = run(small_config(learning_rate__scale="grid"), callbacks=(StopAfter(1),))
    assert stopped.results == ()
    assert "no results" in repr(stopped)
    assert "no scheme has results yet" in stopped._repr_html_()


@pytest.mark.slow
def test_what_privacy_costs_is_in_the_table() -> None:
    private = run(small_config(privacy__epsilon=4.0, schemes=["dp-gd"]))
    assert "<th" in private._repr_html_()
    assert ">everything<" in private._repr_html_()


def test_a_run_takes_a_mapping_and_reports_to_any_progress(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"schemes": ["fedavg"], "training": {"rounds": 3, "evaluations": 1}, "learning_rate.scale": 0.5}
    diary = Diary()
    quiet = run(given, progress=diary)
    assert quiet.config.training.rounds == quiet["fedavg"].final.round == 3
    assert "FedAvg" in diary.tasks
    assert capsys.readouterr().err == ""
    run(given, progress=True)
    assert "FedAvg: completed" in capsys.readouterr().err
