from __future__ import annotations

import numpy as np
import pytest

from codedfl.errors import InputError
from codedfl.fleet import TraceArrivals
from codedfl.schemes import codedfedl, fedavg, scfl
from codedfl.training import LearningRate, rounds_within, train
from tests.problems import ALWAYS_DBM, make_federation, make_setting


def test_as_many_rounds_as_fit() -> None:
    plan = fedavg().device.plan(make_setting(deadline_s=0.1))
    assert rounds_within("fedavg", plan, 0.1) == 1
    assert rounds_within("fedavg", plan, 0.3) == 3, "0.3 / 0.1 is 2.999... in floating point"
    assert rounds_within("fedavg", plan, 0.39) == 3
    with pytest.raises(InputError, match=r"training.total_time_s = 0.05 is shorter than one round of fedavg \(0.1 s\)"):
        rounds_within("fedavg", plan, 0.05)


def test_a_free_deadline_sets_its_own_round_duration() -> None:
    setting = make_setting(make_federation((14, 20, 16, 9)))
    prepared = codedfedl(mini_batches=2, deadline="free").prepare(setting)
    assert prepared.device.arrivals.duration_s != setting.deadline_s
    result = train(prepared, LearningRate(0.01), 3)
    assert result.final.simulated_time_s == pytest.approx(3 * prepared.device.arrivals.duration_s)


def test_fedavg_with_full_batches_and_everyone_in_time_is_gradient_descent() -> None:
    setting = make_setting(power_dbm=ALWAYS_DBM, local_steps=1, deadline_s=1e6)
    result = train(fedavg().prepare(setting), LearningRate(0.05, decay_rounds=3), 10)
    X, Y = setting.federation.features, setting.federation.labels
    W = np.zeros((3, 2))
    for k in range(10):
        W -= 0.05 / (1 + k / 3) * X.T @ (X @ W - Y)
    np.testing.assert_allclose(result.model, W, rtol=1e-10)


def test_the_average_is_weighted_by_the_step_sizes_and_leaves_the_last_model_out() -> None:
    setting = make_setting()
    rate = LearningRate(0.05, decay_rounds=2)
    models = [np.zeros((3, 2))] + [train(scfl().prepare(setting), rate, k).progress.state.model for k in (1, 2, 3)]
    steps = [rate.at(k) for k in range(4)]
    expected = sum(step * model for step, model in zip(steps, models, strict=True)) / sum(steps)
    result = train(scfl().prepare(setting), rate, 4)
    np.testing.assert_allclose(result.model, expected, rtol=1e-10)
    assert not np.allclose(result.model, result.progress.state.model)


def test_an_initial_model_of_the_wrong_shape_is_refused() -> None:
    with pytest.raises(InputError, match="initial_model has shape"):
        train(fedavg().prepare(make_setting()), LearningRate(0.1), 1, initial_model=np.zeros((2, 2)))


@pytest.mark.parametrize(("rounds", "every"), [(0, 1), (1, 0)])
def test_numbers_below_one_are_refused(rounds: int, every: int) -> None:
    with pytest.raises(InputError):
        train(fedavg().prepare(make_setting()), LearningRate(0.1), rounds, evaluate_every=every)


def test_arrivals_may_come_from_a_trace_instead_of_a_channel() -> None:
    """The loop does not care where arrivals come from: here, from a recording of the channel."""
    prepared = fedavg().prepare(make_setting())
    recorded = [prepared.device.arrivals.attend(k) for k in range(5)]
    trace = TraceArrivals(
        np.array([a.batch_sizes for a in recorded]),
        np.array([a.arrived for a in recorded]),
        prepared.device.arrivals.probability,
        prepared.device.arrivals.duration_s,
    )
    replayed = fedavg().prepare(prepared.setting, arrivals=trace)
    assert replayed.device.arrivals is trace
    a, b = (train(p, LearningRate(0.01), 5) for p in (prepared, replayed))
    assert np.array_equal(a.model, b.model)


def test_time_to_a_score_is_that_of_the_first_evaluation_there() -> None:
    result = train(fedavg().prepare(make_setting(power_dbm=ALWAYS_DBM)), LearningRate(0.05), 10)
    reached = next(point for point in result.curve if point.score >= 0.6)
    assert result.time_to(0.6) == reached.simulated_time_s
    assert result.time_to(1.1) is None
