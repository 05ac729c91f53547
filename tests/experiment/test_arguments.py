"""Runs take configurations and callbacks in several forms, and refuse what is neither before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from codedfl.config import to_toml
from codedfl.errors import InputError
from codedfl.experiment import run, sweep, tune
from codedfl.experiment._arguments import as_callbacks, as_config
from codedfl.training import Callback, Evaluation
from tests.support import refusal_of, small_config

SHORT = {"schemes": ["fedavg"], "training.rounds": 2, "learning_rate.scale": 0.5}


class Points(Callback):
    def __init__(self) -> None:
        self.rounds: list[int] = []

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.rounds.append(evaluation.round)


def test_a_run_takes_the_path_of_a_file(tmp_path: Path) -> None:
    config = small_config(schemes=["fedavg"])
    path = tmp_path / "config.toml"
    path.write_text(to_toml(config))
    assert as_config(str(path)) == as_config(path) == as_config(config) == config
    assert run(path).config == config
    assert refusal_of(lambda: run(tmp_path / "none.toml")).endswith("give the path of a TOML file.")


def test_a_sweep_takes_what_a_run_takes() -> None:
    few, many = sweep([SHORT, SHORT | {"training.rounds": 3}])
    assert (few["fedavg"].final.round, many["fedavg"].final.round) == (2, 3)


@pytest.mark.parametrize("several", [tuple, list, iter])
def test_one_callback_or_several(several: Any) -> None:
    alone, first, second = Points(), Points(), Points()
    run(SHORT, callbacks=alone)
    run(SHORT, callbacks=several([first, second]))
    assert alone.rounds == first.rounds == second.rounds == [1, 2]


@pytest.fixture
def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("data was loaded")

    monkeypatch.setattr("codedfl.experiment._family.build_experiment", refuse)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("given", [[1], 3, None, [("seed", 3)]])
def test_what_is_no_configuration_is_refused(given: Any) -> None:
    sentence = "is no configuration: give a Config, a dictionary, or the path of a TOML file."
    assert refusal_of(lambda: run(given)).endswith(sentence)
    assert refusal_of(lambda: sweep([given])).endswith(sentence)


@pytest.mark.usefixtures("no_work")
@pytest.mark.parametrize("given", [print, (print,), Points, "points", 3, None, (Points(), 3)])
def test_what_is_no_callback_is_refused(given: Any) -> None:
    sentence = "is no codedfl.training.Callback: give one, or a tuple of them."
    for action in (lambda: run(SHORT, callbacks=given), lambda: sweep([SHORT], callbacks=given)):
        assert refusal_of(action).endswith(sentence)
    assert refusal_of(lambda: tune([SHORT], callbacks=given)).endswith(sentence)
    assert as_callbacks(()) == ()


@pytest.mark.parametrize("folder", ["runs/first", Path("runs/first")])
def test_a_path_is_no_run_folder(folder: Any) -> None:
    with pytest.raises(InputError, match=r"^folder = .*first.* is no run folder: give RunFolder"):
        run({"schemes": ["fedavg"], "training.rounds": 1}, folder=folder)
