"""Schemes whose devices run a half of their own: FedProx and SCAFFOLD, as in the template of plug-ins."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from codedfl.parallel import Workers
from codedfl.schemes import PrivateDescent, dp_gd, fedavg
from codedfl.setting import Setting
from codedfl.training import (
    Callback,
    Checkpoint,
    InverseProbability,
    LearningRate,
    Local,
    Payload,
    Run,
    RunProgress,
    RunResult,
    Scheme,
    StopTraining,
    load_checkpoint,
    train,
    train_together,
)
from codedfl.typing import FloatArray
from tests.problems import ALWAYS_DBM, make_federation, make_setting

TEMPLATE = Path(__file__).parents[2] / "examples" / "plugin" / "src"
ROUNDS = 12
RATE = LearningRate(0.02)


@pytest.fixture(autouse=True)
def _template(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(TEMPLATE))
    yield
    for name in [name for name in sys.modules if name.startswith("codedfl_template")]:
        del sys.modules[name]


def of_template(name: str) -> ModuleType:
    return importlib.import_module(f"codedfl_template.{name}")


def fedprox(pull: float) -> Scheme:
    made: Scheme = of_template("fedprox").fedprox(pull)
    return made


def scaffold() -> Scheme:
    made: Scheme = of_template("scaffold").scaffold()
    return made


def setting(**changes: Any) -> Setting:
    federation = make_federation((40, 60, 50, 33), 6, 3, dtype=np.float64)
    return make_setting(federation, local_steps=changes.pop("local_steps", 3), **changes)


def on_all_rows(**changes: Any) -> Setting:
    """A setting in which everybody arrives with all rows in every step."""
    return setting(power_dbm=ALWAYS_DBM, deadline_s=1e6, **changes)


def gradients(own: Setting) -> list[tuple[FloatArray, FloatArray]]:
    return [own.federation.device(i) for i in range(own.federation.devices)]


def test_fedprox_without_a_pull_is_fedavg_bit_for_bit() -> None:
    plain = train(fedavg().prepare(setting()), RATE, ROUNDS)
    pulled = train(fedprox(0.0).prepare(setting()), RATE, ROUNDS)
    assert [astuple(point) for point in plain.curve] == [astuple(point) for point in pulled.curve]
    np.testing.assert_array_equal(plain.model, pulled.model)


def test_fedprox_takes_steps_on_the_proximal_loss() -> None:
    own, pull, eta = on_all_rows(), 0.7, 0.004
    result = train(fedprox(pull).prepare(own), LearningRate(eta), 5)
    W = np.zeros((6, 3))
    for _ in range(5):
        total = np.zeros_like(W)
        for X, Y in gradients(own):
            local = W.copy()
            for _ in range(3):
                local = local - eta * (X.T @ (X @ local - Y) + pull * (local - W))
            total += W - local
        W = W - total
    np.testing.assert_allclose(result.model, W, rtol=1e-10, atol=1e-12)


def test_scaffold_is_its_paper() -> None:
    own, eta, tau = on_all_rows(), 0.004, 3
    result = train(scaffold().prepare(own), LearningRate(eta), 6)
    devices = own.federation.devices
    W, c = np.zeros((6, 3)), np.zeros((6, 3))
    own_c = [np.zeros((6, 3)) for _ in range(devices)]
    for _ in range(6):
        moved, changes = np.zeros_like(W), np.zeros_like(W)
        for i, (X, Y) in enumerate(gradients(own)):
            local = W.copy()
            for _ in range(tau):
                local = local - eta * (X.T @ (X @ local - Y) - own_c[i] + c)
            new = own_c[i] - c + (W - local) / (tau * eta)  # option II
            moved += local - W
            changes += (new - own_c[i]) / devices
            own_c[i] = new
        W, c = W + moved, c + changes
    np.testing.assert_allclose(result.model, W, rtol=1e-9, atol=1e-12)
    for memory, expected in zip(result.progress.devices, own_c, strict=True):
        np.testing.assert_allclose(memory, expected, rtol=1e-9, atol=1e-12)


def test_scaffold_has_a_fifth_of_the_gap_of_fedavg_or_less() -> None:
    """Many local steps on unlike devices draw FedAvg away from the optimum, and the control variates take that away."""
    own = on_all_rows(local_steps=20)
    rate = LearningRate.relative(0.1, own.gram.smoothness)
    drifted = train(fedavg().prepare(own), rate, 400)
    corrected = train(scaffold().prepare(own), rate, 400)
    assert corrected.status == drifted.status == "completed"
    assert drifted.final.gap > 0
    assert corrected.final.gap <= drifted.final.gap / 5


def test_two_vectors_take_twice_the_bytes_and_seconds() -> None:
    plain, both = fedavg().prepare(setting()), scaffold().prepare(setting())
    usual, doubled = (each.setting.workload(each.device.local_steps) for each in (plain, both))
    assert (doubled.payload_bits, doubled.bits_down) == (2 * usual.payload_bits, 2 * usual.bits_down)
    assert both.setting.timing().download_s == 2 * plain.setting.timing().download_s  # type: ignore[union-attr]
    # Twice as much to send: the chance to arrive is that of half the bandwidth, of those who were not sure to.
    unsure = (plain.device.arrivals.probability > 0) & (plain.device.arrivals.probability < 1)
    assert unsure.any()
    assert (both.device.arrivals.probability[unsure] < plain.device.arrivals.probability[unsure]).all()
    result = train(both, RATE, ROUNDS)
    ledger, shape = result.progress.ledger, (6, 3)
    assert ledger.bits_up.sum() == ledger.arrivals * 2 * 32 * np.prod(shape)
    assert (ledger.bits_down == ROUNDS * 2 * 32 * np.prod(shape)).all()


class StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self.rounds = rounds

    def on_round(self, progress: RunProgress) -> None:
        if progress.state.round == self.rounds:
            raise StopTraining("enough")


def test_a_resumed_run_with_memory_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.npz"
    callbacks = [Checkpoint(path, "same", every_s=0.0), StopAfter(7)]
    stopped = train(scaffold().prepare(setting()), RATE, ROUNDS, callbacks=callbacks)
    assert any(np.any(memory != 0) for memory in stopped.progress.devices)
    run = Run(scaffold().prepare(setting()), RATE, ROUNDS)
    run.progress, _ = load_checkpoint(path, run, "same")
    (resumed,) = train_together([run])
    assert_same(resumed, train(scaffold().prepare(setting()), RATE, ROUNDS))


def test_neither_workers_nor_other_runs_matter() -> None:
    alone = train(scaffold().prepare(setting()), RATE, ROUNDS)
    with Workers(3) as workers:
        prepared = [
            scheme.prepare(replace(setting(), workers=workers)) for scheme in (scaffold(), fedavg(), fedprox(0.1))
        ]
        together = train_together([Run(each, RATE, ROUNDS) for each in prepared])
    assert_same(together[0], alone)


def test_who_backs_off_returns_to_what_devices_remembered_then() -> None:
    own = on_all_rows()
    rates = [LearningRate.relative(scale, own.gram.smoothness) for scale in (40.0, 0.3)]
    run = Run(scaffold().prepare(own), rates[0], 40, fallbacks=(rates[1],))
    (result,) = train_together([run])
    assert result.progress.back_offs == 1
    assert result.status == "completed"
    assert all(np.isfinite(memory).all() for memory in result.progress.devices)


def test_updates_of_a_cohort_count_for_everybody_and_control_variates_do_not() -> None:
    own = replace(on_all_rows(), cohort=2)
    prepared = replace(scaffold(), aggregation=InverseProbability(device_weight=1.0)).prepare(own)
    result = train(prepared, LearningRate(0.004), 1)
    asked = prepared.device.arrivals.attend(0)
    assert asked.weight == 2.0
    sums = [X.T @ -Y for i, (X, Y) in enumerate(gradients(own)) if i in set(asked.devices.tolist())]  # type: ignore[union-attr]
    steps = [result.progress.devices[int(i)] * 3 for i in asked.devices]  # type: ignore[union-attr]
    np.testing.assert_allclose(result.model, -0.004 * 2.0 * np.sum(steps, axis=0), rtol=1e-10)
    assert np.linalg.norm(steps[0] / 3 - sums[0]) < np.linalg.norm(sums[0]), "the mean gradient on the way, unweighted"


def assert_same(a: RunResult, b: RunResult) -> None:
    np.testing.assert_array_equal(a.model, b.model)
    assert [astuple(point) for point in a.curve] == [astuple(point) for point in b.curve]
    for mine, theirs in zip(a.progress.devices, b.progress.devices, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_private_scheme_with_an_update_of_its_own_is_for_the_simulator() -> None:
    class Own(PrivateDescent):
        def update(self, memory: Any, sent: Payload, local: Local) -> tuple[Any, Payload]:
            return super().update(memory, sent, local)

    assert dp_gd().over_network
    assert not Own(**vars(dp_gd())).over_network
