"""Schemes that find their step size themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from codedfl.experiment import RunFolder, notes_on, run, summarise, sweep, tune
from codedfl.schemes import make_scheme
from codedfl.training import LearningRate, LocalSGD, PreparedScheme, Round, Scheme, SchemeState
from codedfl.typing import FloatArray
from tests.support import StopAfter, small_config


@dataclass(frozen=True)
class OwnState(SchemeState):
    own_step: float


@dataclass(frozen=True)
class Own(Scheme):
    """FedAvg with one local step and a step size in units of ``1 / L``."""

    scale: float = 0.5

    @property
    def tunes_itself(self) -> bool:
        return True

    def init(self, prepared: PreparedScheme, model: FloatArray) -> OwnState:
        own_step = self.scale / prepared.setting.gram.smoothness
        return OwnState(**vars(super().init(prepared, model)), own_step=own_step)

    def step(self, state: OwnState, round: Round) -> tuple[OwnState, Mapping[str, float]]:
        update = self.aggregation.combine(round, state.model)
        return self.moved(state, update, state.own_step * round.step_size), {}


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Let FedAvg tune itself; the scale of its step can be changed."""
    choice = {"scale": 0.5}

    def make(name: str, options: Mapping[str, object] | None = None) -> Scheme:
        scheme = make_scheme(name, options)
        parts = {**vars(scheme), "device": LocalSGD(steps=1)}
        return Own(**parts, scale=choice["scale"]) if name == "fedavg" else scheme

    monkeypatch.setattr("codedfl.experiment._family.make_scheme", make)
    return choice


GRID: dict[str, Any] = {"learning_rate__scale": "grid", "learning_rate__grid": [0.2, 0.4]}


def test_no_grid_is_searched_for_it(own: dict[str, float]) -> None:
    comparison = run(small_config(**GRID))
    assert own
    result, other = comparison["fedavg"], comparison["scfl"]
    assert result.status == "completed"
    assert result.final.loss < result.curve[0].loss
    assert (result.scale, result.choice, result.learning_rate) == (None, None, LearningRate(1.0))
    assert other.choice is not None
    (note,) = (note for note in notes_on(comparison) if note.startswith("step sizes"))
    assert "SCFL" in note
    assert "FedAvg" not in note
    summary = summarise(comparison)["schemes"][0]
    assert (summary["step_size"], summary["step_size_scale"], summary["step_size_trials"]) == (None, None, None)
    assert list(tune([small_config(**GRID)])[0]) == ["scfl"]


def test_it_ignores_a_step_size_that_is_given(own: dict[str, float]) -> None:
    assert own
    small, large = sweep([small_config(learning_rate__scale=scale) for scale in (1e-9, 0.5)])
    assert small["fedavg"].final == large["fedavg"].final
    assert small["scfl"].final != large["scfl"].final


def test_it_backs_off_to_smaller_multiples_of_its_own_step(own: dict[str, float]) -> None:
    own["scale"] = 16.0
    comparison = run(small_config(schemes=["fedavg"], training__rounds=200, training__evaluations=200))
    result = comparison["fedavg"]
    assert result.status == "completed"
    assert result.progress.back_offs > 0
    assert result.learning_rate == LearningRate(0.5**result.progress.back_offs)
    assert f"backed off to {result.learning_rate.initial:.4g} times its own step size" in result.message


def test_no_smaller_learning_rate_is_asked_for_if_it_diverges(own: dict[str, float]) -> None:
    own["scale"] = 1e6
    result = run(small_config(schemes=["fedavg"], training__rounds=200, training__evaluations=200))["fedavg"]
    assert result.status == "diverged"
    assert result.message.endswith(": check the scale of the data and coding.clip_norm")


@pytest.mark.slow
def test_it_resumes(own: dict[str, float], tmp_path: Path) -> None:
    assert own
    config = small_config(**GRID)
    whole = run(config)
    stopped = run(config, folder=RunFolder.create(tmp_path / "run", config), callbacks=(StopAfter(5),))
    assert stopped.interrupted
    resumed = run(config, folder=RunFolder.reopen(tmp_path / "run"))
    assert [point.loss for point in resumed["fedavg"].curve] == [point.loss for point in whole["fedavg"].curve]
    assert replace(resumed["fedavg"].final, everything_charged_s=0) == replace(
        whole["fedavg"].final, everything_charged_s=0
    )
