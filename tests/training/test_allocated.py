from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import optimal_loads
from codedfl.losses import SOFTMAX
from codedfl.streams import Streams
from codedfl.training import AllocatedGradient
from codedfl.training.protocol._allocated import mini_batch_of
from tests.problems import make_federation, make_setting

SETTING = make_setting(make_federation((31, 44, 17)), coded_samples=30)


def test_mini_batches_cover_all_rows_once() -> None:
    plan = AllocatedGradient(mini_batches=4).plan(SETTING)
    for device, samples in enumerate(SETTING.federation.samples):
        parts = [plan.uncovered(device, j) for j in range(4)]
        assert sum(len(part) for part in parts) == samples
        rows = np.concatenate([block.features for part in parts for block in part.blocks(5)])
        expected = SETTING.federation.device(device)[0]
        assert {row.tobytes() for row in rows} == {row.tobytes() for row in expected}


def test_weights_leave_to_the_server_what_the_device_may_fail_to_deliver() -> None:
    plan = AllocatedGradient().plan(SETTING)
    timing = SETTING.timing(local_steps=1)
    loads = optimal_loads(timing, SETTING.federation.samples)
    probability = timing.arrival_probability(loads)
    assert (loads < SETTING.federation.samples).any(), "some device must leave points to the server"
    for device in range(3):
        weights = plan.uncovered(device, 0).weights
        assert weights is not None
        # Each point counts once on average: w^2 from the server and, if processed, the arrival probability from the device.
        processed = np.arange(len(weights)) < loads[device]
        np.testing.assert_allclose(weights**2 + processed * probability[device], 1.0, rtol=1e-12)


def test_the_deadline_is_free_to_be_the_least_that_returns_a_mini_batch() -> None:
    fixed = AllocatedGradient(2, "fixed").plan(SETTING)
    free = AllocatedGradient(2, "free").plan(SETTING)
    assert fixed.arrivals.duration_s == SETTING.deadline_s
    assert free.arrivals.duration_s != SETTING.deadline_s


def test_there_are_never_more_mini_batches_than_coded_rows() -> None:
    plan = AllocatedGradient(20).plan(replace(SETTING, code=replace(SETTING.code, coded_samples=3)))
    assert plan.coded_rows(3) == (1, 1, 1)


def test_mini_batches_are_drawn_uniformly() -> None:
    """Over 4,000 rounds each of 4 mini-batches is drawn 1,000 times, within 4.5 binomial standard errors."""
    drawn = np.bincount([mini_batch_of(k, 4, Streams(0)) for k in range(4000)], minlength=4)
    assert np.abs(drawn - 1000).max() < 4.5 * np.sqrt(4000 * 0.25 * 0.75)


def test_a_loss_whose_gradient_parity_data_does_not_give_is_refused() -> None:
    with pytest.raises(InputError, match="but the loss is softmax"):
        AllocatedGradient().plan(replace(make_setting(), loss=SOFTMAX))
