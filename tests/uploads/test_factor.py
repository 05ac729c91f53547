"""SCFL on the triangular factor of the coded rows: its cost, the server's steps, and what shares it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl.audits import run_theory
from codedfl.errors import InputError
from codedfl.experiment import build_experiment, privacy_of, run, sweep
from codedfl.schemes import dp_cfl, scfl
from codedfl.setting import Setting
from codedfl.training import LearningRate, Scheme, round_growth, train
from codedfl.typing import FloatArray
from codedfl.uploads import CodedFactor, CodedRows
from tests.gradients import server_update
from tests.problems import ALWAYS_DBM, make_federation, make_setting
from tests.support import small_config

W = np.random.default_rng(2).standard_normal((3, 2))
FACTOR = scfl(upload="factor")


def gradient(setting: Setting, model: FloatArray, scheme: Scheme = FACTOR) -> FloatArray:
    """Return ``M_xx W / c - M_xy / c - sigma^2 W``."""
    (coded,) = scheme.prepare(setting).held
    X, Y, c = coded.features, coded.labels, setting.code.coded_samples
    result: FloatArray = X.T @ (X @ model - Y) / c - coded.noise_variance * model
    return result


def test_every_part_is_charged() -> None:
    setting = make_setting(coded_samples=20)
    taking_part = np.array([True, False, True, True])
    partial = replace(setting, code=replace(setting.code, participants=taking_part))
    prepared = FACTOR.prepare(partial)
    cost = prepared.upload_cost
    assert cost is not None
    n = 5
    assert cost.bits.tolist() == [32 * 15, 0, 32 * 15, 32 * 15]
    macs = [samples * n**2 / 2 + 2 * n**3 / 3 for samples in (7, 12, 5, 1)]
    assert cost.encoding_macs == pytest.approx(np.array(macs) * taking_part)
    assert cost.encoding_s == pytest.approx(cost.encoding_macs / setting.fleet.columns()["mac_rate"])
    rate = setting.channel.mean_uplink_rate_bps(setting.fleet.columns()["transmit_power_dbm"])
    assert cost.upload_s == pytest.approx(cost.bits / rate)
    assert cost.server_macs == pytest.approx(3 * n**3 / 3 + n**3 / 3)
    assert prepared.held[0].noise_variance == pytest.approx(0.3)
    more = cost.with_server_macs(setting, 1000.0)
    assert more.server_macs == cost.server_macs + 1000.0
    assert more.total_s == pytest.approx(cost.total_s + 1000.0 / setting.server_mac_rate)


def test_a_device_that_takes_no_part_adds_nothing() -> None:
    setting = make_setting(coded_samples=20)
    some = replace(setting, code=replace(setting.code, participants=np.array([True, False, True, True])))
    features = setting.federation.features.copy()
    features[7:19] = 100.0  # of the second device
    others = replace(some, federation=replace(setting.federation, features=features))
    assert np.array_equal(FACTOR.prepare(some).held[0].features, FACTOR.prepare(others).held[0].features)


@pytest.mark.parametrize(("deadline", "steps"), [(1.0, 4), (0.025, 2), (0.0375, 3), (0.012, 0)])
def test_the_server_takes_the_full_steps_it_has_time_for(deadline: float, steps: int) -> None:
    """``s`` steps of ``d^2 o = 18`` MACs, each multiplied by ``tau / s``."""
    setting = replace(make_setting(local_steps=4, server_batch=None), deadline_s=deadline, server_mac_rate=1440.0)
    if steps == 0:
        with pytest.raises(InputError, match=r"training.deadline_s = 0.012 .* 0.0125 s"):
            FACTOR.prepare(setting)
        return
    server = FACTOR.prepare(setting).server
    assert server is not None
    assert server.samples_processed(0) * 2 * 3 * 2 == steps * 18
    total, model, eta = np.zeros_like(W), W, 0.05
    for _ in range(steps):
        each = 4 / steps * gradient(setting, model)
        total, model = total + each, model - eta * each
    np.testing.assert_allclose(server_update(server, 0, W, eta), total, rtol=1e-10)


def test_without_a_make_up_term() -> None:
    setting = make_setting(local_steps=1)
    scheme = replace(dp_cfl(), upload=CodedFactor())
    server = scheme.prepare(setting).server
    assert server is not None
    expected = gradient(setting, W, scheme) + 0.4 * W
    np.testing.assert_allclose(server_update(server, 0, W, 0.1), expected, rtol=1e-10)


def test_stability_knows_the_steps_on_a_factor() -> None:
    """Against ``I - (1/2) eta sum_i H_i - (1/2) (I - (I - eta (tau / s) C)^s)`` with one local step and everyone in time."""
    data = make_federation((7, 12, 5, 9), 5, 2, task="regression")
    setting = make_setting(data, local_steps=1, power_dbm=ALWAYS_DBM, deadline_s=1e6, coded_samples=30)
    prepared = FACTOR.prepare(setting)
    coded, H = prepared.held[0], setting.gram.features
    C = coded.features.T @ coded.features / 30 - coded.noise_variance * np.eye(5)
    for scale in (0.1, 1.0, 5.0):
        eta = scale / setting.gram.smoothness
        expected = np.abs(np.linalg.eigvalsh(np.eye(5) - eta * (H + C) / 2)).max()
        found = round_growth(prepared, [eta])
        assert found is not None
        assert found[0] == pytest.approx(expected, rel=1e-9)


@pytest.mark.slow
def test_training_ends_closer_to_the_optimum_than_on_rows() -> None:
    """With tau = 1 the limit solves (H + H~) W = ...; second moments of N devices are as exact as N c rows."""
    distances = []
    for kind in ("rows", "factor"):
        found = []
        for seed in range(6):
            setting = make_setting(
                make_federation((50, 50, 50, 50), task="regression"),
                seed=seed,
                power_dbm=ALWAYS_DBM,
                deadline_s=1e6,
                local_steps=1,
                coded_samples=40,
                server_batch=40,
            )
            rate = LearningRate.relative(0.5, setting.gram.smoothness)
            found.append(train(scfl(upload=kind).prepare(setting), rate, 600, evaluate_every=600).final.distance)
        distances.append(np.mean(found))
    assert distances[1] < 0.75 * distances[0]


def test_too_few_coded_rows_are_refused_before_training() -> None:
    with pytest.raises(InputError, match=r"coding.coded_samples = 39 is below the d \+ o = 40 columns"):
        run(small_config(options={"scfl": {"upload": "factor"}}, coding__coded_samples=39))


def test_runs_share_a_factor_and_never_take_it_for_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def count(kind: type[CodedRows | CodedFactor]) -> None:
        simulated = kind.simulated

        def counted(self: Any, *arguments: Any) -> Any:
            calls.append(self.name)
            return simulated(self, *arguments)

        monkeypatch.setattr(kind, "simulated", counted)

    count(CodedRows)
    count(CodedFactor)
    options = {"scfl": {"upload": "factor"}}
    rates = [
        small_config(schemes=["scfl", "dp-cfl"], learning_rate__scale=scale, options=options) for scale in (0.1, 0.2)
    ]
    first, _ = sweep(rates)
    assert sorted(calls) == ["factor", "rows"]
    assert first["scfl"].prepared.held[0].factor is not None
    assert first["dp-cfl"].prepared.held[0].factor is None


def test_its_privacy_is_that_of_the_rows_but_a_sum_shares_no_noise() -> None:
    given = {"schemes": ["scfl"], "coding__clip_norm": 1.0, "coding__label_noise_variance": 1.0, "training__rounds": 1}
    rows, factor = (
        privacy_of(run(small_config(**given, options={"scfl": {"upload": kind}}))["scfl"], 1e-5)
        for kind in ("rows", "factor")
    )
    assert {**factor, "epsilon_in_sum": 0} == {**rows, "epsilon_in_sum": 0}
    assert rows["epsilon_in_sum"] < rows["epsilon"] == factor["epsilon_in_sum"]


def test_the_theory_of_rows_refuses_it() -> None:
    config = small_config(schemes=["scfl"], options={"scfl": {"upload": "factor"}})
    with pytest.raises(InputError, match="set it to 'rows'"):
        run_theory(config)
    assert build_experiment(config).setting.code.coded_samples == 60
