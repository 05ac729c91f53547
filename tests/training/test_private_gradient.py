from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import Geometry
from codedfl.errors import InputError
from codedfl.fleet import Channel, CohortArrivals, Fleet, RoundTiming, Workload, patient_deadline
from codedfl.fleet._round_design import LATE
from codedfl.losses import SOFTMAX
from codedfl.privacy import PrivacyTarget, ThreatModel, least_arrivals
from codedfl.schemes import dp_gd, noise_in_sum
from codedfl.setting import Setting
from codedfl.training import LearningRate, PrivateGradient, PrivatePlan, Start, train
from codedfl.typing import FloatArray
from codedfl.uploads import require_target
from tests.private_settings import THREAT_MODELS, Everybody, private_setting
from tests.problems import ALWAYS_DBM
from tests.reference.private_descent import clipped_sum

rng = np.random.default_rng(2)


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.01, math.nan, math.inf])
def test_a_sampling_rate_out_of_range_is_refused(rate: float) -> None:
    with pytest.raises(InputError, match=f"sampling_rate = {rate}") as refused:
        PrivateGradient(rate)
    assert str(refused.value).count(".") >= 1
    assert "\n" not in str(refused.value)


def test_a_setting_without_a_target_is_refused_with_the_name_of_the_scheme() -> None:
    setting = private_setting()
    assert require_target(setting, "dp-gd") is setting.privacy
    with pytest.raises(InputError, match=r"privacy\.epsilon = 0 .* dp-gd .*--epsilon"):
        require_target(replace(setting, privacy=None), "dp-gd")


def fleet_timing(devices: int, **changes: float) -> RoundTiming:
    fleet = Fleet(
        tuple(f"d{i}" for i in range(devices)), rng.uniform(1e5, 1e6, devices), rng.uniform(-10.0, 20.0, devices)
    )
    return RoundTiming(fleet, Channel(**changes), Workload.for_linear_model(100, 4, 1), deadline_s=0.5)


@pytest.mark.parametrize("devices", [1, 7, 40])
def test_the_patient_deadline_is_the_least_that_leaves_few_updates_late(devices: int) -> None:
    timing, sizes = fleet_timing(devices), rng.integers(1, 500, devices)

    def late(deadline: float) -> float:
        return replace(timing, deadline_s=deadline).straggler_ratio(sizes)

    patient = patient_deadline(timing, sizes)
    assert late(patient) <= LATE
    assert late(patient) == pytest.approx(LATE, rel=1e-4)
    assert late(0.999 * patient) > LATE


def test_devices_without_rows_do_not_count_as_late() -> None:
    timing, sizes = fleet_timing(6), np.array([50, 0, 100, 0, 0, 10])
    patient = replace(timing, deadline_s=patient_deadline(timing, sizes))
    assert np.mean(1 - patient.arrival_probability(sizes)[sizes > 0]) == pytest.approx(LATE, rel=1e-4)
    assert patient_deadline(timing, np.zeros(6, np.int64)) == timing.deadline_s


def test_devices_with_hardly_any_power_still_get_a_deadline() -> None:
    timing, sizes = fleet_timing(3, mean_gain=1e-30), np.array([5, 5, 5])
    assert replace(timing, deadline_s=patient_deadline(timing, sizes)).straggler_ratio(sizes) <= LATE


def plan_of(setting: Setting, rate: float = 1.0, multipliers: FloatArray | None = None) -> PrivatePlan:
    assert setting.privacy is not None
    plan = PrivateGradient(rate).plan(setting)
    return plan.protected(setting.privacy, 0.6, np.full(9, 2.0) if multipliers is None else multipliers)


def test_arrivals_are_those_of_patient_rounds_with_all_rows_or_their_expected_number() -> None:
    setting = private_setting(samples=(7, 12, 5, 1))
    for rate, sizes in ((1.0, [7, 12, 5, 1]), (0.5, [4, 6, 2, 1])):
        plan = PrivateGradient(rate).plan(setting)
        assert plan.arrivals.attend(0).batch_sizes.tolist() == sizes
        assert plan.arrivals.duration_s == pytest.approx(patient_deadline(setting.timing(1), np.array(sizes)))
        assert np.mean(1 - plan.arrivals.probability) <= LATE
        assert plan.local_steps == 1
    given = Everybody(setting.federation.samples)
    assert PrivateGradient().plan(setting, given).arrivals is given
    assert isinstance(PrivateGradient().plan(replace(setting, cohort=2)).arrivals, CohortArrivals)


def test_an_update_is_the_private_sum_of_the_devices_own_rows() -> None:
    setting = private_setting()
    X, Y = setting.federation.device(1)
    V, _ = np.linalg.qr(rng.standard_normal((3, 1)))
    geometry = Geometry((V,), (np.array([0.3]),))
    target = setting.privacy
    assert target is not None
    plan = PrivateGradient().plan(replace(setting, loss=SOFTMAX)).protected(target, 0.6, np.array([1.0, 2.0]), geometry)
    model = rng.standard_normal((3, 2))
    steps = plan.steps(1, 1, 12, [Start(model, 1.0)])
    assert steps.private is not None
    assert steps.loss == SOFTMAX
    (batch,) = steps.batches
    assert batch is None
    D = np.eye(3) - 0.7 * V @ V.T
    noise = 0.6 * 2.0 * setting.streams.at("update-noise", device=1, round=1).standard_normal((3, 2))
    expected = clipped_sum(X, Y, model, 0.6, D, softmax=True) + noise
    np.testing.assert_allclose(steps.private.release(X, Y, None, model, steps.scale, steps.loss), expected, rtol=1e-10)
    np.testing.assert_allclose(plan.norms, np.linalg.norm(setting.federation.features @ D, axis=1), rtol=1e-12)
    assert [plan.precision(round) for round in (0, 1)] == [1.0, 0.25]


def test_every_row_is_in_a_batch_with_the_sampling_rate_independently_of_all_others() -> None:
    setting, rounds = private_setting(samples=(7, 12, 5, 1)), 3000
    plan = plan_of(setting, 0.3, np.full(rounds, 2.0))
    drawn = np.zeros((rounds, 12))
    for round in range(rounds):
        steps = plan.steps(1, round, 4, [Start(np.zeros((3, 2)), 1.0)])
        assert steps.scale == pytest.approx(1 / 0.3)
        drawn[round, np.asarray(steps.batches[0])] = 1
    assert np.all(np.abs(drawn.mean(axis=0) - 0.3) < 4.5 * math.sqrt(0.21 / rounds))
    assert np.all(np.abs(np.corrcoef(drawn.T) - np.eye(12)) < 4.5 / math.sqrt(rounds))
    sizes = drawn.sum(axis=1)  # binomial: sizes are not fixed, as the accounting of Poisson samples assumes
    assert abs(sizes.var() - 12 * 0.21) < 4.5 * 12 * 0.21 * math.sqrt(2 / rounds)
    assert abs(np.corrcoef(sizes[:-1], sizes[1:])[0, 1]) < 4 / math.sqrt(rounds)


def test_a_sum_of_as_many_updates_as_there_are_shares_has_the_noise_of_one_mechanism() -> None:
    setting = private_setting(2.0, "sums-only", samples=(4,) * 12)
    plan = plan_of(setting)
    assert plan.shares == least_arrivals(plan.arrivals.probability)
    assert 1 < plan.shares <= 12
    for number, setting_ in ((plan.shares, setting), (1, private_setting(2.0, samples=(4,) * 12))):
        steps = [plan_of(setting_).steps(i, 0, 4, [Start(np.zeros((3, 2)), 1.0)]) for i in range(number)]
        variance = sum(step.private.standard_deviation**2 for step in steps if step.private is not None)
        assert math.sqrt(variance) == pytest.approx(2.0 * 0.6, rel=1e-12)


def test_the_noise_of_a_sum_is_counted_in_units_of_one_mechanism() -> None:
    setting = private_setting(samples=(4,) * 9)
    assert noise_in_sum(setting, PrivacyTarget(1.0, 1e-5), 1) == 3.0
    assert noise_in_sum(setting, PrivacyTarget(1.0, 1e-5, "sums-only"), 9) == 1.0
    assert noise_in_sum(setting, PrivacyTarget(1.0, 1e-5, "sums-only"), 4) == 1.5
    # Of four that are asked, each update counts 9 / 4 times: 9 / 4 sqrt(4) alone, and half of that if four share the noise.
    cohort = replace(setting, cohort=4)
    assert noise_in_sum(cohort, PrivacyTarget(1.0, 1e-5), 1) == pytest.approx(4.5)
    assert noise_in_sum(cohort, PrivacyTarget(1.0, 1e-5, "sums-only"), 4) == pytest.approx(2.25)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_rounds_of_a_cohort_can_be_opened(threat_model: ThreatModel) -> None:
    """The noise of a sum must count on the devices that are asked, not on all that there are."""
    setting = private_setting(
        50.0,
        threat_model,
        samples=(30,) * 8,
        cohort=3,
        power_dbm=ALWAYS_DBM,
    )
    prepared = dp_gd(rounds=4).prepare(setting)
    plan = prepared.device
    assert isinstance(plan, PrivatePlan)
    assert plan.shares <= 3
    result = train(prepared, LearningRate(1.0), 4)
    assert result.model.any(), "no round was opened"
    assert result.progress.ledger.updates.sum() == 12
