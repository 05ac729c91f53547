"""Schemes with a state of their own are small, and touch neither the loop nor the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.schemes import fedavg, scfl
from codedfl.training import (
    Callback,
    Checkpoint,
    LearningRate,
    Round,
    Run,
    RunProgress,
    Scheme,
    SchemeState,
    Setting,
    StopTraining,
    load_checkpoint,
    train_together,
)
from codedfl.typing import FloatArray
from tests.problems import make_federation, make_setting

ROUNDS, RATE = 12, LearningRate(0.01)


@dataclass(frozen=True)
class MomentumState(SchemeState):
    velocity: FloatArray


@dataclass(frozen=True)
class Momentum(Scheme):
    """Heavy ball at the server."""

    def init(self, setting: Setting, model: FloatArray) -> MomentumState:
        return MomentumState(**vars(super().init(setting, model)), velocity=np.zeros_like(model))

    def apply(self, state: MomentumState, round: Round) -> tuple[MomentumState, Mapping[str, float]]:
        velocity = state.model.dtype.type(0.9) * state.velocity + self.aggregation.combine(round, state.model)
        moved = replace(self.moved(state, velocity, round.step_size), velocity=velocity)
        return moved, {"speed": float(np.linalg.norm(velocity))}


@dataclass(frozen=True)
class AdagradState(SchemeState):
    squares: FloatArray


@dataclass(frozen=True)
class Adagrad(Scheme):
    """A diagonal preconditioner."""

    def init(self, setting: Setting, model: FloatArray) -> AdagradState:
        return AdagradState(**vars(super().init(setting, model)), squares=np.zeros(model.shape))

    def apply(self, state: AdagradState, round: Round) -> tuple[AdagradState, Mapping[str, float]]:
        update = self.aggregation.combine(round, state.model)
        squares = state.squares + update**2.0
        scaled = (update / np.sqrt(1.0 + squares)).astype(state.model.dtype)
        return replace(self.moved(state, scaled, round.step_size), squares=squares), {}


@dataclass(frozen=True)
class VariateState(SchemeState):
    latest: FloatArray
    seen: FloatArray


@dataclass(frozen=True)
class Variates(Scheme):
    """The last update of each device stands in for it while it is missing."""

    def init(self, setting: Setting, model: FloatArray) -> VariateState:
        devices = setting.federation.devices
        plain = super().init(setting, model)
        return VariateState(
            **vars(plain), latest=np.zeros((devices, *model.shape), model.dtype), seen=np.zeros(devices)
        )

    def apply(self, state: VariateState, round: Round) -> tuple[VariateState, Mapping[str, float]]:
        latest, seen = state.latest.copy(), state.seen.copy()
        for device, update in round.updates:
            latest[device] = update
            seen[device] += 1
        moved = self.moved(state, latest.sum(axis=0), round.step_size)
        return replace(moved, latest=latest, seen=seen), {"never seen": float(np.sum(seen == 0))}


@dataclass(frozen=True)
class OnlineState(SchemeState):
    arrived: FloatArray
    rounds: int


@dataclass(frozen=True)
class Online(Scheme):
    """Arrival probabilities are estimated from who has arrived so far."""

    def init(self, setting: Setting, model: FloatArray) -> OnlineState:
        return OnlineState(**vars(super().init(setting, model)), arrived=np.zeros(setting.federation.devices), rounds=0)

    def apply(self, state: OnlineState, round: Round) -> tuple[OnlineState, Mapping[str, float]]:
        arrived, rounds = state.arrived + round.attendance.arrived, state.rounds + 1
        estimated = replace(round, arrival_probability=(arrived + 1) / (rounds + 2))
        update = self.aggregation.combine(estimated, state.model)
        return replace(self.moved(state, update, round.step_size), arrived=arrived, rounds=rounds), {}


SCHEMES: dict[str, Scheme] = {
    "momentum": Momentum(**vars(fedavg())),
    "adagrad": Adagrad(**vars(scfl())),
    "variates": Variates(**vars(fedavg())),
    "online": Online(**vars(scfl())),
}
pytestmark = pytest.mark.parametrize("name", SCHEMES)


class StopAt(Callback):
    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == 7:
            raise StopTraining("killed")


def fresh(name: str, dtype: Any = np.float64) -> Run:
    setting = make_setting(make_federation((20, 30, 25, 9), dtype=dtype))
    return Run(SCHEMES[name].prepare(setting), RATE, ROUNDS, evaluate_every=5)


def test_it_trains_otherwise_than_the_scheme_it_extends(name: str) -> None:
    (result,) = train_together([fresh(name)])
    assert result.status == "completed"
    assert result.final.loss < result.curve[0].loss
    run = fresh(name)
    base = replace(run.prepared, scheme=Scheme(**vars(SCHEMES[name])))
    (plain,) = train_together([Run(base, RATE, ROUNDS, evaluate_every=5)])
    assert not np.allclose(plain.last_model, result.last_model)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_killed_and_resumed_it_ends_as_undisturbed(name: str, dtype: Any, tmp_path: Path) -> None:
    (whole,) = train_together([fresh(name, dtype)])
    stopping = replace(fresh(name, dtype), callbacks=[Checkpoint(tmp_path / "c.npz", "same", 0.0), StopAt()])
    assert train_together([stopping])[0].status == "interrupted"
    run = fresh(name, dtype)
    run.progress, _ = load_checkpoint(tmp_path / "c.npz", run, "same")
    assert run.round == 7
    (resumed,) = train_together([run])
    assert [astuple(point) for point in resumed.curve] == [astuple(point) for point in whole.curve]
    assert type(resumed.progress.state) is type(whole.progress.state)
    for item in fields(whole.progress.state):  # type: ignore[arg-type]
        ours, theirs = (getattr(result.progress.state, item.name) for result in (resumed, whole))
        assert type(ours) is type(theirs)
        assert np.array_equal(ours, theirs), item.name


def test_in_lock_step_with_others_it_ends_as_alone(name: str) -> None:
    (alone,) = train_together([fresh(name)])
    run = fresh(name)
    others = [Run(scheme.prepare(run.prepared.setting), RATE, ROUNDS) for scheme in (fedavg(), *SCHEMES.values())]
    together = train_together([others[0], run, *others[1:]])[1]
    np.testing.assert_allclose(together.last_model, alone.last_model, rtol=1e-9, atol=1e-12)
    assert together.final.bytes_up == alone.final.bytes_up


def test_what_it_finds_worth_watching_is_at_hand(name: str) -> None:
    run = fresh(name)
    train_together([run])
    assert set(run.diagnostics) == {"momentum": {"speed"}, "variates": {"never seen"}}.get(name, set())
