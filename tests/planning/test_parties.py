"""What devices and server contribute to a round, against matrices and sampled gradients."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from codedfl.coding import CodedData
from codedfl.planning._parties import Attended, DeviceShare, ServerShare, uncovered_share
from codedfl.schemes import make_scheme
from codedfl.setting import Setting
from codedfl.training import CodedSGD, ServerPlan, ServerRound, ServerWork
from tests.problems import ALWAYS_DBM, make_federation, make_setting


def share_of(name: str, setting: Setting) -> tuple[DeviceShare, Attended]:
    scheme = make_scheme(name, {"mini_batches": 2} if name == "codedfedl" else None)
    plan = scheme.plan(setting)
    attended = Attended.of(plan.arrivals, setting.federation.samples.astype(float))
    return DeviceShare.of(scheme, plan, setting, attended), attended


def test_arrivals_and_inverse_batches_are_those_of_the_channel() -> None:
    setting = make_setting()
    plan = make_scheme("fedavg").device.plan(setting)
    attended = Attended.of(plan.arrivals, setting.federation.samples.astype(float))
    assert attended.arrivals == pytest.approx(float(plan.arrivals.probability.sum()))
    assert attended.inverse_batch == pytest.approx(np.nan_to_num(plan.arrivals.inverse_batch))  # type: ignore[attr-defined]


def test_a_cohort_is_asked_in_its_share() -> None:
    _, attended = share_of("fedavg", make_setting(cohort=2))
    assert attended.asked == pytest.approx(0.5)


def test_weights_of_fedavg_are_probabilities_and_those_of_scfl_are_even() -> None:
    setting = make_setting(power_dbm=20.0)
    fedavg, attended = share_of("fedavg", setting)
    assert fedavg.weight == pytest.approx(attended.probability)
    assert fedavg.spread == pytest.approx(4 * attended.probability * (1 - attended.probability))
    scfl, _ = share_of("scfl", setting)
    assert scfl.weight == pytest.approx(np.full(4, 0.5))


def test_what_devices_remove_is_exact_if_their_data_is_alike() -> None:
    """``I - sum_i a_i (I - (I - eta H_i)^tau)`` with ``H_i = s_i H``."""
    fedavg, attended = share_of("fedavg", make_setting())
    H = np.diag([0.5, 2.0])
    expected = sum(
        p * (np.eye(2) - np.linalg.matrix_power(np.eye(2) - 0.3 * s * H, 2))
        for p, s in zip(attended.probability, fedavg.shares, strict=True)
    )
    assert fedavg.moved(0.3 * np.diag(H)) == pytest.approx(np.diag(expected))


def test_what_the_server_removes() -> None:
    setting = make_setting()
    scheme = make_scheme("scfl")
    server = ServerShare.of(scheme, scheme.plan(setting), setting)
    assert server is not None
    assert server.moved(np.array([0.3])) == pytest.approx(0.5 * (1 - 0.7**2))
    assert server.batch_noise == pytest.approx(2 * 0.25 * (1 / 8 - 1 / 20))
    assert ServerShare.of(make_scheme("fedavg"), scheme.plan(setting), setting) is None


def test_a_rule_of_ones_own_is_predicted_to_take_one_gradient_unless_it_says_otherwise() -> None:
    @dataclass(frozen=True)
    class Own(ServerWork[tuple[CodedData, ...]]):
        def plan(self, setting: Setting, held: tuple[CodedData, ...], /) -> ServerPlan:
            return CodedSGD().plan(setting, held)

    @dataclass(frozen=True)
    class Thrice(Own):
        def forecast(self, setting: Setting, rows: int) -> ServerRound:
            return ServerRound(steps=3, multiple=2.0, sampling=1.0 / setting.server_batch_of(rows))

    setting, scheme = make_setting(), make_scheme("scfl")
    own, thrice = (
        ServerShare.of(replace(scheme, server=server), scheme.plan(setting), setting) for server in (Own(), Thrice())
    )
    assert own is not None
    assert thrice is not None
    assert not Own().make_up
    assert Own().describe() == "Own"
    assert own.moved(np.array([0.3])) == pytest.approx(0.5 * 0.3)
    assert own.batch_noise == 0
    assert thrice.moved(np.array([0.3])) == pytest.approx(0.5 * (1 - 0.4**3))
    assert thrice.batch_noise == pytest.approx(3 * 0.25 / 8)


def test_sampling_noise_agrees_with_sampled_gradients() -> None:
    """Residuals independent of features: the variance of a Bernoulli batch's gradient is ``(l / b - 1) sum ||x||^2 ||r||^2``."""
    setting = make_setting(make_federation((400,), 5), power_dbm=ALWAYS_DBM, local_steps=1)
    share, attended = share_of("fedavg", setting)
    rng = np.random.default_rng(0)
    X, residual = rng.standard_normal((400, 5)), rng.standard_normal((400, 2))
    batch = 1 / float(attended.inverse_batch[0])
    terms = X[:, :, None] * residual[:, None, :]
    draws = [(terms[rng.random(400) < batch / 400]).sum(axis=0) * 400 / batch for _ in range(4000)]
    measured = float(np.var(draws, axis=0).sum())
    predicted = share.batch_noise * float(np.sum(X**2)) * float(np.sum(residual**2)) / 400
    assert predicted == pytest.approx(measured, rel=0.1), (
        "within the sampling error of the residuals, sqrt(2 / 400) = 7%"
    )


def test_parity_data_stands_for_what_devices_fail_to_cover() -> None:
    everybody = make_setting(power_dbm=ALWAYS_DBM)
    scheme = make_scheme("cfl-fb")
    plan = scheme.plan(everybody)
    share, _ = share_of("cfl-fb", everybody)
    # Whoever surely arrives leaves only rows beyond its load, or none.
    assert uncovered_share(plan, everybody) == pytest.approx(1.0 - float(share.weight @ share.shares))
