"""Schemes with a state of their own: each is a few lines that touch neither the loop nor the checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from codedfl.coding import Rows, compute_gram
from codedfl.schemes import fedavg, scfl
from codedfl.setting import Setting
from codedfl.training import (
    Callback,
    Checkpoint,
    LearningRate,
    PreparedScheme,
    Round,
    Run,
    RunProgress,
    RunResult,
    Scheme,
    SchemeState,
    StopTraining,
    advance,
    load_checkpoint,
    train_together,
)
from codedfl.typing import FloatArray, IntArray
from tests.problems import ALWAYS_DBM, make_federation, make_setting

ROUNDS = 12
RATE = LearningRate(0.003)


@dataclass(frozen=True)
class MomentumState(SchemeState):
    velocity: FloatArray


@dataclass(frozen=True)
class Momentum(Scheme):
    """Server momentum: ``v <- beta v + g``, ``W <- W - eta v``."""

    beta: float = 0.9

    def init(self, prepared: PreparedScheme, model: FloatArray) -> MomentumState:
        return MomentumState(**vars(super().init(prepared, model)), velocity=np.zeros_like(model))

    def step(self, state: MomentumState, round: Round) -> tuple[MomentumState, Mapping[str, float]]:
        velocity = self.beta * state.velocity + self.aggregation.combine(round, state.model)
        moved = replace(self.moved(state, velocity, round.step_size), velocity=velocity)
        return moved, {"velocity": float(np.linalg.norm(velocity))}


@dataclass(frozen=True)
class PreconditionedState(SchemeState):
    inverse_hessian: FloatArray


@dataclass(frozen=True)
class Preconditioned(Scheme):
    """Newton-like steps: ``W <- W - eta L (H + mu)^-1 g``."""

    def init(self, prepared: PreparedScheme, model: FloatArray) -> PreconditionedState:
        federation = prepared.setting.federation
        gram = compute_gram([Rows(federation.features, federation.labels)])
        damped = gram.features / gram.smoothness + 0.1 * np.eye(len(model))
        return PreconditionedState(**vars(super().init(prepared, model)), inverse_hessian=np.linalg.inv(damped))

    def step(self, state: PreconditionedState, round: Round) -> tuple[PreconditionedState, Mapping[str, float]]:
        update = state.inverse_hessian @ self.aggregation.combine(round, state.model)
        return self.moved(state, update.astype(state.model.dtype), round.step_size), {}


@dataclass(frozen=True)
class ControlState(SchemeState):
    variates: FloatArray


@dataclass(frozen=True)
class ControlVariates(Scheme):
    """The last update of every device stands in for the devices that are missing (MIFA)."""

    def init(self, prepared: PreparedScheme, model: FloatArray) -> ControlState:
        variates = np.zeros((prepared.setting.federation.devices, *model.shape), model.dtype)
        return ControlState(**vars(super().init(prepared, model)), variates=variates)

    def step(self, state: ControlState, round: Round) -> tuple[ControlState, Mapping[str, float]]:
        variates = state.variates.copy()
        for device, update in round.updates:
            variates[device] = update
        return replace(self.moved(state, variates.sum(axis=0), round.step_size), variates=variates), {}


@dataclass(frozen=True)
class ArrivalState(SchemeState):
    asked: IntArray
    arrived: IntArray


@dataclass(frozen=True)
class EstimatedArrivals(Scheme):
    """Weights ``1 / p_i`` with ``p_i`` estimated online by the mean of a Beta(1, 1) posterior."""

    def init(self, prepared: PreparedScheme, model: FloatArray) -> ArrivalState:
        none = np.zeros(prepared.setting.federation.devices, np.int64)
        return ArrivalState(**vars(super().init(prepared, model)), asked=none, arrived=none)

    def step(self, state: ArrivalState, round: Round) -> tuple[ArrivalState, Mapping[str, float]]:
        asked, arrived = state.asked + 1, state.arrived + round.attendance.arrived
        estimate = (arrived + 1) / (asked + 2)
        update = self.aggregation.combine(replace(round, arrival_probability=estimate), state.model)
        worst = float(np.abs(estimate - round.arrival_probability).max())
        return replace(self.moved(state, update, round.step_size), asked=asked, arrived=arrived), {"worst": worst}


def with_state(kind: type[Scheme], base: Scheme) -> Scheme:
    return kind(**{item.name: getattr(base, item.name) for item in fields(Scheme)})


SCHEMES = {
    "momentum": with_state(Momentum, fedavg()),
    "preconditioned": with_state(Preconditioned, scfl()),
    "control-variates": with_state(ControlVariates, fedavg()),
    "estimated-arrivals": with_state(EstimatedArrivals, scfl()),
}


class KilledError(BaseException):
    """Nothing in the loop catches this."""


class KillAt(Callback):
    def __init__(self, round: int) -> None:
        self.round = round

    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == self.round:
            raise KilledError


def setting() -> Setting:
    return make_setting(make_federation((40, 60, 50, 33), 12, 3, dtype=np.float32), coded_samples=60)


def run_of(scheme: Scheme, **options: Any) -> Run:
    return Run(scheme.prepare(setting()), RATE, ROUNDS, evaluate_every=5, **options)


def assert_same_bits(ours: RunResult, theirs: RunResult) -> None:
    for item in fields(theirs.progress.state):  # type: ignore[arg-type]
        a, b = (getattr(result.progress.state, item.name) for result in (ours, theirs))
        assert type(a) is type(b)
        assert np.array_equal(a, b), item.name
    assert ours.curve == theirs.curve
    assert ours.progress.ledger.bytes_up == theirs.progress.ledger.bytes_up


@pytest.mark.parametrize("name", SCHEMES)
def test_it_trains(name: str) -> None:
    [result] = train_together([run_of(SCHEMES[name])])
    assert result.status == "completed"
    assert result.final.loss < result.curve[0].loss


@pytest.mark.parametrize("name", SCHEMES)
def test_a_killed_run_resumes_and_equals_an_undisturbed_one(name: str, tmp_path: Path) -> None:
    [undisturbed] = train_together([run_of(SCHEMES[name])])
    path = tmp_path / "checkpoint.npz"
    with pytest.raises(KilledError):
        train_together([run_of(SCHEMES[name], callbacks=[Checkpoint(path, "same", every_s=0.0), KillAt(7)])])
    run = run_of(SCHEMES[name])
    run.progress, _ = load_checkpoint(path, run, "same")
    assert run.round == 7
    assert_same_bits(train_together([run])[0], undisturbed)


@pytest.mark.parametrize("name", SCHEMES)
def test_in_lock_step_with_another_scheme_it_is_what_it_is_alone(name: str) -> None:
    [alone] = train_together([run_of(SCHEMES[name])])
    shared = setting()
    runs = [Run(scheme.prepare(shared), RATE, ROUNDS, evaluate_every=5) for scheme in (scfl(), SCHEMES[name], fedavg())]
    assert len({run.device_identity for run in runs}) == 1
    _, together, _ = train_together(runs)
    # A wider product adds at most 60 + 12 terms in another order, in 12 rounds of 2 steps.
    limit = ROUNDS * 2 * (60 + 12) * float(np.finfo(np.float32).eps)
    np.testing.assert_allclose(together.model, alone.model, rtol=0, atol=limit * np.abs(alone.model).max())


def test_diagnostics_reach_callbacks() -> None:
    run = run_of(SCHEMES["estimated-arrivals"])
    train_together([run])
    assert 0 <= run.diagnostics["worst"] < 0.5


def test_momentum_is_the_recursion_that_it_says() -> None:
    """With full batches and devices that always arrive, against the recursion on the exact gradient."""
    federation = make_federation((5, 6), 3, 2)
    prepared = SCHEMES["momentum"].prepare(make_setting(federation, power_dbm=200.0, deadline_s=1e6, local_steps=1))
    [result] = train_together([Run(prepared, RATE, 4)])
    X, Y = federation.features, federation.labels
    W = velocity = np.zeros((3, 2))
    for _ in range(4):
        velocity = 0.9 * velocity + X.T @ (X @ W - Y)
        W = W - 0.003 * velocity
    np.testing.assert_allclose(result.progress.state.model, W, rtol=1e-12)


def test_a_state_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"

    class Stop(Callback):
        def on_round(self, progress: RunProgress) -> None:  # noqa: ARG002
            raise StopTraining("enough")

    train_together([run_of(SCHEMES["momentum"], callbacks=[Checkpoint(path, "same"), Stop()])])
    for name in ("control-variates", "estimated-arrivals"):
        with pytest.raises(ValueError, match="is not a usable checkpoint"):
            load_checkpoint(path, run_of(SCHEMES[name]), "same")


def test_the_former_name_of_step_is_refused_instead_of_ignored() -> None:
    with pytest.raises(TypeError, match=r"Older\.apply is called `step`: rename it"):

        class Older(Scheme):
            def apply(self, state: Any, round: Round) -> tuple[Any, Mapping[str, float]]:
                return super().step(state, round)


@dataclass(frozen=True)
class Lookahead(Scheme):
    """Devices start from another model than the server's own: half of it."""

    def broadcast(self, state: Any) -> dict[str, FloatArray]:
        return {"model": 0.5 * state.model}


def test_devices_start_from_what_is_sent_to_them() -> None:
    scheme = Lookahead(**vars(fedavg()))
    data = make_federation((40, 60, 50, 33), 12, 3, dtype=np.float32)
    prepared = scheme.prepare(make_setting(data, power_dbm=ALWAYS_DBM))
    start = np.ones(prepared.model_shape)
    run = Run(prepared, LearningRate(1e-4), 1, initial_model=start)
    ((_, payloads),) = advance(0, [run], lambda run, round: (run, list(round.payloads)))
    usual = Run(fedavg().prepare(prepared.setting), LearningRate(1e-4), 1, initial_model=0.5 * start)
    ((_, expected),) = advance(0, [usual], lambda run, round: (run, list(round.payloads)))
    assert len(payloads) == len(expected) > 0
    for (device, payload), (other, wanted) in zip(payloads, expected, strict=True):
        assert device == other
        np.testing.assert_array_equal(payload["update"], wanted["update"])


def test_coded_data_stands_for_nobody_without_an_upload() -> None:
    setting = make_setting(make_federation((40, 60, 50, 33), 12, 3, dtype=np.float32), power_dbm=ALWAYS_DBM)
    assert fedavg().prepare(setting).covered.tolist() == [False] * setting.federation.devices
    assert scfl().prepare(setting).covered.tolist() == [True] * setting.federation.devices
