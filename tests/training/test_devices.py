from __future__ import annotations

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.training import Idle, LocalSGD
from tests.problems import make_setting


def test_adaptive_and_fixed_batches_see_the_same_channel() -> None:
    setting = make_setting()
    adaptive, fixed = LocalSGD().plan(setting), LocalSGD(batch=1).plan(setting)
    for k in range(20):
        # With one sample a device arrives exactly when the adaptive rule finds any batch at all.
        assert np.array_equal(adaptive.arrivals.attend(k).arrived, fixed.arrivals.attend(k).arrived)


def test_a_fixed_batch_is_never_larger_than_the_data() -> None:
    assert LocalSGD(batch=6).plan(make_setting()).arrivals.attend(0).batch_sizes.tolist() == [6, 6, 5, 1]


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
