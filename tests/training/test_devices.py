from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import TraceArrivals
from codedfl.schemes import fedavg
from codedfl.training import DevicePlan, Idle, LearningRate, LocalSGD, Start, train
from codedfl.training.protocol._devices import WalkPlan
from tests.problems import ALWAYS_DBM, make_setting


def test_adaptive_and_fixed_batches_see_the_same_channel() -> None:
    setting = make_setting()
    adaptive, fixed = LocalSGD().plan(setting), LocalSGD(batch=1).plan(setting)
    for k in range(20):
        # With one sample a device arrives exactly when the adaptive rule finds any batch at all.
        assert np.array_equal(adaptive.arrivals.attend(k).arrived, fixed.arrivals.attend(k).arrived)


def test_a_fixed_batch_is_never_larger_than_the_data() -> None:
    assert LocalSGD(batch=6).plan(make_setting()).arrivals.attend(0).batch_sizes.tolist() == [6, 6, 5, 1]


@pytest.mark.parametrize("batch", ["adaptive", 3])
def test_fewer_steps_are_what_a_setting_with_that_tau_has(batch: Literal["adaptive"] | int) -> None:
    """Batches, arrivals, duration and charges follow ``steps``, not the ``tau`` of the setting."""
    setting = make_setting(local_steps=4)
    told, meant = LocalSGD(batch, steps=1).plan(setting), LocalSGD(batch).plan(replace(setting, local_steps=1))
    assert told.local_steps == 1
    assert np.array_equal(told.arrivals.probability, meant.arrivals.probability)
    for k in range(10):
        for ours, theirs in zip(attended(told, k), attended(meant, k), strict=True):
            assert np.array_equal(ours, theirs)
    assert len(told.steps(1, 0, 3, [Start(np.zeros((3, 2)), 0.1)]).batches) == 1
    more = LocalSGD(batch).plan(setting)
    assert sum(told.arrivals.attend(k).batch_sizes.sum() for k in range(10)) >= sum(
        more.arrivals.attend(k).batch_sizes.sum() for k in range(10)
    )


def attended(plan: DevicePlan, round: int) -> tuple[Any, ...]:
    attendance = plan.arrivals.attend(round)
    return attendance.batch_sizes, attendance.arrived, attendance.late_bits


def test_the_arithmetic_charged_follows_the_steps() -> None:
    setting = make_setting(local_steps=4, power_dbm=ALWAYS_DBM)
    scheme = replace(fedavg(batch=5), device=LocalSGD(5, steps=1))
    ledger = train(scheme.prepare(setting), LearningRate(0.01), 3).progress.ledger
    assert ledger.device_macs.tolist() == [3 * 2 * 3 * 2 * batch for batch in (5, 5, 5, 1)]


def test_steps_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="steps = 0"):
        LocalSGD(steps=0)


def test_idle_devices_do_nothing() -> None:
    plan = Idle().plan(make_setting())
    attendance = plan.arrivals.attend(3)
    assert not attendance.arrived.any()
    assert attendance.batch_sizes.sum() == attendance.late_bits.sum() == 0
    assert not plan.broadcasts
    assert plan.arrivals.duration_s == 1.0
    assert plan.arrivals.probability.tolist() == [0, 0, 0, 0]


def test_a_batch_below_one_is_refused() -> None:
    with pytest.raises(InputError, match="batch = 0"):
        LocalSGD(batch=0)


def test_walking_looks_no_further_than_a_short_trace() -> None:
    batches = np.array([[4, 8, 2, 0], [6, 0, 2, 0]])
    trace = TraceArrivals(batches, batches > 0, np.full(4, 0.5), duration_s=1.0)
    plan = LocalSGD(steps=1, sampling="walk").plan(make_setting(), trace)
    assert isinstance(plan, WalkPlan)
    assert plan.strides.tolist() == [5, 8, 2, 1]
