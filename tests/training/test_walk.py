"""Devices that go through their rows in turn: every row alike, few repeats, unbiased gradients."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.fleet import TraceArrivals, fastest_deadline
from codedfl.streams import Streams
from codedfl.training import LocalSGD, Start, accumulate_gradients
from codedfl.training.engine import _gradients as gradients_module
from codedfl.training.engine._kernel import suits
from codedfl.training.protocol import _devices as module
from codedfl.training.protocol._devices import WalkPlan, walking_order, walking_strides
from codedfl.typing import FloatArray, IntArray
from tests.native.needs import needs_kernel
from tests.problems import make_federation, make_setting

SAMPLES = (12, 10, 7)
D, OUTPUTS = 3, 2
START = Start(np.random.default_rng(1).standard_normal((D, OUTPUTS)), 0.0)


def plan_with(batch: int, rounds: int = 40, local_steps: int = 1) -> WalkPlan:
    """Return a plan in which every device has batches of the same size."""
    setting = make_setting(make_federation(SAMPLES, D, OUTPUTS))
    batches = np.full((rounds, len(SAMPLES)), batch)
    trace = TraceArrivals(batches, batches > 0, np.ones(len(SAMPLES)), duration_s=1.0)
    plan = LocalSGD(steps=local_steps, sampling="walk").plan(setting, trace)
    assert isinstance(plan, WalkPlan)
    return plan


def rows_of(plan: WalkPlan, device: int, round: int, batch: int) -> list[IntArray]:
    found = []
    for chosen in plan.steps(device, round, batch, [START]).batches:
        assert isinstance(chosen, np.ndarray)
        found.append(chosen)
    return found


@pytest.mark.parametrize("batch", [1, 3, 6])
@pytest.mark.parametrize("round", [0, 2, 9])
def test_every_row_is_in_a_batch_for_b_of_all_starts(batch: int, round: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first row is uniform, so counting over all of them gives the probability ``b / l`` exactly, in every local step."""
    plan = plan_with(batch, local_steps=2)
    for device, samples in enumerate(SAMPLES):
        order, _ = walking_order(plan.streams, device, samples)
        counts = np.zeros((2, samples))
        for first in range(samples):
            monkeypatch.setattr(module, "walking_order", lambda *_, at=first, order=order: (order, at))
            for step, chosen in enumerate(rows_of(plan, device, round, batch)):
                assert len(np.unique(chosen)) == len(chosen) == batch
                counts[step, chosen] += 1
        assert np.all(counts == batch)
        monkeypatch.undo()


def test_gradients_are_unbiased_over_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mean over all starts is the gradient on all rows, up to rounding."""
    plan = plan_with(4)
    for device, samples in enumerate(SAMPLES):
        X, Y = plan.federation.device(device)
        order, _ = walking_order(plan.streams, device, samples)
        mean = np.zeros((D, OUTPUTS))
        for first in range(samples):
            monkeypatch.setattr(module, "walking_order", lambda *_, at=first, order=order: (order, at))
            ((gradient,),) = accumulate_gradients([plan.steps(device, 5, 4, [START])])
            mean += gradient / samples
        monkeypatch.undo()
        np.testing.assert_allclose(mean, X.T @ (X @ START.model - Y), atol=1e-12)


def test_orders_and_starts_are_uniform() -> None:
    """Over seeds, each row comes first in a walk equally often: 1500 draws of 5, each within 4.5 standard errors."""
    first_rows, starts = np.zeros((2, 5))
    for seed in range(1500):
        order, first = walking_order(Streams(seed), 1, 5)
        assert sorted(order) == list(range(5))
        first_rows[order[0]] += 1
        starts[first] += 1
    error = np.sqrt(1500 * 0.2 * 0.8)
    assert np.all(np.abs(first_rows - 300) < 4.5 * error)
    assert np.all(np.abs(starts - 300) < 4.5 * error)


@pytest.mark.parametrize("batch", [1, 2, 3, 5])
def test_successive_rounds_share_no_rows_until_all_were_used(batch: int) -> None:
    plan = plan_with(batch)
    assert plan.strides.tolist() == [batch] * 3
    for device, samples in enumerate(SAMPLES):
        whole = samples // batch
        epoch = [row for round in range(whole) for row in rows_of(plan, device, round, batch)[0].tolist()]
        assert len(set(epoch)) == whole * batch
        if samples % batch == 0:
            assert set(epoch) == set(range(samples))
            assert np.array_equal(rows_of(plan, device, whole, batch)[0], rows_of(plan, device, 0, batch)[0])


def test_local_steps_walk_on() -> None:
    plan = plan_with(2, local_steps=3)
    rows = [row for round in range(2) for chosen in rows_of(plan, 0, round, 2) for row in chosen.tolist()]
    assert sorted(rows) == list(range(12))


def test_a_walk_depends_on_the_round_alone() -> None:
    """Asked in any order, by any plan with the same streams; another seed and another device walk elsewhere."""
    first, second = plan_with(3), plan_with(3)
    backwards = {k: rows_of(second, 0, k, 3)[0] for k in reversed(range(8))}
    for k in range(8):
        assert np.array_equal(rows_of(first, 0, k, 3)[0], backwards[k])
    other = replace(first, streams=Streams(99))
    assert any(not np.array_equal(rows_of(other, 0, k, 3)[0], backwards[k]) for k in range(3))


def test_a_full_batch_is_all_rows() -> None:
    plan = plan_with(50)
    steps = plan.steps(2, 3, 50, [START])
    assert steps.batches == [None]
    assert steps.scale == 1.0
    assert plan.steps(0, 0, 4, [START]).scale == 12 / 4


def test_strides_are_mean_batches() -> None:
    batches = np.array([[4, 0, 1], [6, 0, 2], [0, 0, 2]])
    trace = TraceArrivals(batches, batches > 0, np.full(3, 0.5), duration_s=1.0)
    assert walking_strides(trace).tolist() == [5, 1, 2]
    assert walking_strides(trace, rounds=1).tolist() == [4, 1, 1]


@needs_kernel
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_agrees_with_numpy(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    setting = make_setting(make_federation((300, 200), 20, 4, dtype=dtype))
    batches = np.full((40, 2), 50)
    trace = TraceArrivals(batches, batches > 0, np.ones(2), duration_s=1.0)
    plan = LocalSGD(steps=2, sampling="walk").plan(setting, trace)
    start = Start(np.random.default_rng(2).standard_normal((20, 4)).astype(dtype), 1e-3)
    parties = [plan.steps(device, 7, 50, [start]) for device in range(2)]
    assert all(suits(party) for party in parties)

    def computed() -> list[FloatArray]:
        return [gradient for (gradient,) in accumulate_gradients(parties)]

    compiled = computed()
    monkeypatch.setattr(gradients_module, "suits", lambda *_: False)
    for ours, theirs in zip(compiled, computed(), strict=True):
        limit = 500 * float(np.finfo(dtype).eps) * float(np.abs(theirs).max())
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=limit)


def test_the_deadline_is_chosen_if_it_is_to_be() -> None:
    setting = make_setting(make_federation((60, 50, 40)))
    fixed, chosen = (LocalSGD(steps=1, deadline=how).plan(setting).arrivals for how in ("fixed", "auto"))
    expected = fastest_deadline(setting.timing(1), setting.federation.samples)
    assert fixed.duration_s == 1.0 != expected
    assert chosen.duration_s == expected
    asked = LocalSGD(steps=1, deadline="auto").plan(replace(setting, cohort=2)).arrivals
    assert asked.duration_s == expected
    assert len(asked.attend(0).batch_sizes) == 2
