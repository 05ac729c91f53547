"""The claims about expectations, by Monte Carlo with standard errors.

Every check compares a mean over independent draws with an exact value, coordinate by coordinate. A coordinate may be off by
at most 4.5 standard errors of its mean: for a correct implementation the chance that any of the (at most) 60 coordinates
checked here fails is below 5e-4, and with fixed seeds the outcome is the same every time.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.schemes import cfl_fb, codedfedl, scfl
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import CodedSGD, Scheme
from codedfl.typing import FloatArray
from tests.problems import ALWAYS_DBM, global_update, make_federation, make_setting

SIGMAS = 4.5
W = np.random.default_rng(5).standard_normal((3, 2))


def gradient(setting: Setting, model: FloatArray = W) -> FloatArray:
    X, Y = setting.federation.features, setting.federation.labels
    result: FloatArray = X.T @ (X @ model - Y)
    return result


@pytest.fixture(params=[pytest.param(0.04, id="few"), pytest.param(1.0, id="all", marks=pytest.mark.slow)])
def effort(request: pytest.FixtureRequest) -> float:
    """The share of the draws that a test takes."""
    return float(request.param)


def sample_updates(scheme: Scheme, setting: Setting, draws: float, step_size: float = 0.01) -> FloatArray:
    """Draw the aggregated update over everything that is random: projection, noise, batches and arrivals.

    Draw k is round k, with coded data of its own.
    """
    assert scheme.upload is not None
    assert scheme.server is not None
    plan = scheme.plan(setting)
    updates = []
    for k in range(round(draws)):
        coded = scheme.held_in(replace(setting, streams=Streams(1000 + k)), plan)
        prepared = scheme.prepared(setting, plan, coded, cost=None)
        updates.append(global_update(prepared, k, W, step_size))
    return np.array(updates)


def assert_mean(samples: FloatArray, expected: FloatArray, effort: float) -> None:
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    off = np.abs(samples.mean(axis=0) - expected) / error
    assert off.max() < SIGMAS, f"off by {off.max():.1f} standard errors"
    # The check has power: with all draws it can tell the update from one that is 10% too large or too small somewhere.
    assert np.max(0.1 / np.sqrt(effort) * np.abs(expected) / error) > 1.0


@pytest.mark.parametrize("encoder", ["direct", "gram"])
@pytest.mark.parametrize("scheme", [scfl(), scfl(batch=4)], ids=["adaptive", "fixed"])
def test_scfl_is_unbiased_for_one_step(scheme: Scheme, encoder: str, effort: float) -> None:
    setting = make_setting(local_steps=1, encoder=encoder, noise_variance=(0.1, 0.0, 0.4, 0.2))
    probability = scheme.plan(setting).arrivals.probability
    assert probability.min() < 0.7 < probability.max(), "the problem must have stragglers of different kinds"
    assert_mean(sample_updates(scheme, setting, effort * 2500), gradient(setting), effort)


def test_scfl_is_unbiased_with_devices_that_upload_nothing(effort: float) -> None:
    setting = make_setting(local_steps=1, noise_variance=(0.1, 0.5, 0.4, 0.2))
    code = replace(setting.code, participants=np.array([True, False, True, False]))
    assert_mean(sample_updates(scfl(batch=4), replace(setting, code=code), effort * 2500), gradient(setting), effort)


@pytest.mark.parametrize(
    "scheme",
    [pytest.param(scfl(), id="scfl"), pytest.param(codedfedl(mini_batches=2), id="codedfedl", marks=pytest.mark.slow)],
)
def test_a_cohort_of_the_devices_is_unbiased_for_all_of_them(scheme: Scheme, effort: float) -> None:
    setting = make_setting(make_federation((14, 20, 16, 9)), local_steps=1, cohort=2)
    assert_mean(sample_updates(scheme, setting, effort * 6000), gradient(setting), effort)


def test_label_noise_adds_no_bias(effort: float) -> None:
    setting = make_setting(local_steps=1, label_noise_variance=0.5)
    assert_mean(sample_updates(scfl(), setting, effort * 2500), gradient(setting), effort)


def test_without_make_up_the_noise_biases_the_update(effort: float) -> None:
    """DP-CFL's gradient gains sigma^2 W, half of it in an aggregation with weight 1/2."""
    setting = make_setting(local_steps=1, noise_variance=(0.1, 0.0, 0.4, 0.2))
    scheme = replace(scfl(), server=CodedSGD(make_up=False))
    assert_mean(sample_updates(scheme, setting, effort * 2500), gradient(setting) + 0.5 * 0.7 * W, effort)


@pytest.mark.parametrize(
    "scheme",
    [
        pytest.param(codedfedl(mini_batches=3), id="3"),
        pytest.param(cfl_fb(), id="1", marks=pytest.mark.slow),
        pytest.param(codedfedl(mini_batches=2, deadline="free"), id="free", marks=pytest.mark.slow),
    ],
)
def test_codedfedl_is_unbiased_over_projection_and_arrivals(scheme: Scheme, effort: float) -> None:
    setting = make_setting(make_federation((14, 20, 16, 9)), local_steps=1)
    probability = scheme.plan(setting).arrivals.probability
    assert probability.min() < 0.95, "the problem must have stragglers"
    assert_mean(sample_updates(scheme, setting, effort * 2500), gradient(setting), effort)


def test_codedfedl_under_noise_gains_the_noise_of_one_mini_batch_times_their_number(effort: float) -> None:
    setting = make_setting(make_federation((14, 20, 16, 9)), local_steps=1, noise_variance=0.2)
    expected = gradient(setting) + 3 * (4 * 0.2) * W
    assert_mean(sample_updates(codedfedl(mini_batches=3, noise=True), setting, effort * 2500), expected, effort)


def drift(setting: Setting, step_size: float) -> FloatArray:
    """Return eta sum_{i != j} H_i grad f_j, the bias of two local steps."""
    pairs = [setting.federation.device(i) for i in range(setting.federation.devices)]
    hessians = [X.T @ X for X, _ in pairs]
    gradients = [X.T @ (X @ W - Y) for X, Y in pairs]
    total = np.zeros_like(W)
    for i, hessian in enumerate(hessians):
        for j, other in enumerate(gradients):
            if i != j:
                total += step_size * hessian @ other
    return total


def virtual_update(setting: Setting, step_size: float) -> FloatArray:
    """Return u_k for tau = 2, gradient descent on the global dataset."""
    first = gradient(setting)
    return first + gradient(setting, W - step_size * first)


def test_two_full_batch_steps_drift_exactly_as_derived() -> None:
    setting = make_setting(local_steps=2, power_dbm=ALWAYS_DBM, deadline_s=100.0)
    prepared = scfl(device_weight=1.0).prepare(setting)
    attendance = prepared.device.arrivals.attend(0)
    assert attendance.arrived.all()
    assert (attendance.batch_sizes == setting.federation.samples).all()
    update = global_update(prepared, 0, W, 0.05)
    np.testing.assert_allclose(update, virtual_update(setting, 0.05) + drift(setting, 0.05), rtol=1e-10)


def test_two_steps_with_batches_and_stragglers_drift_as_derived_on_average(effort: float) -> None:
    setting = make_setting(local_steps=2)
    samples = sample_updates(scfl(batch=4, device_weight=1.0), setting, effort * 4000, step_size=0.05)
    assert_mean(samples, virtual_update(setting, 0.05) + drift(setting, 0.05), effort)
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    off = np.abs(samples.mean(axis=0) - virtual_update(setting, 0.05)) / error
    assert off.max() > SIGMAS * np.sqrt(effort), "the drift must be large enough to be seen"
