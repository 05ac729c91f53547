"""The engine against Algorithm 1, line by line, on the same draws."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.schemes import dp_cfl, fedavg, scfl
from codedfl.setting import Setting
from codedfl.training import LearningRate, PreparedScheme, train
from codedfl.typing import FloatArray
from tests.problems import make_federation, make_setting
from tests.reference import algorithm1

ROUNDS = 6
RATE = LearningRate(0.02, decay_rounds=5)
ETA = [RATE.at(k) for k in range(ROUNDS)]


def draws_of(prepared: PreparedScheme) -> algorithm1.Draws:
    """Collect from the random streams the matrices that the engine never forms."""
    setting = prepared.setting
    federation, tau, c = setting.federation, setting.local_steps, setting.code.coded_samples
    G: list[FloatArray] = []
    N: list[FloatArray] = []
    for i, samples in enumerate(federation.samples):
        rng = setting.streams.at("coding", device=i)
        G.append(rng.standard_normal((c, samples)))
        noise = setting.code.noise_variance[i]
        N.append(np.sqrt(noise) * rng.standard_normal((c, federation.dimension)) if noise else np.zeros((c, 3)))
    draws = algorithm1.Draws(G, N, [], [], [], [])
    for k in range(ROUNDS):
        attendance = prepared.device.arrivals.attend(k)
        draws.b.append([int(b) for b in attendance.batch_sizes])
        draws.arrived.append([bool(a) for a in attendance.arrived])
        draws.S.append([])
        for i, samples in enumerate(federation.samples):
            u = setting.streams.at("batch", device=i, round=k).random((tau, samples), dtype=np.float32)
            draws.S[k].append([(row < draws.b[k][i] / samples).astype(float) for row in u])
        u = setting.streams.at("server-batch", round=k).random((tau, c), dtype=np.float32)
        draws.S_server.append([(row < (setting.server_batch or c) / c).astype(float) for row in u])
    return draws


def data_of(setting: Setting) -> tuple[list[FloatArray], list[FloatArray]]:
    pairs = [setting.federation.device(i) for i in range(setting.federation.devices)]
    return [X for X, _ in pairs], [Y for _, Y in pairs]


@pytest.mark.parametrize("tau", [1, 3])
@pytest.mark.parametrize("batch", ["adaptive", 4])
def test_scfl_is_algorithm_1(tau: int, batch: int | str) -> None:
    setting = make_setting(local_steps=tau, noise_variance=(0.1, 0.0, 0.4, 0.2))
    prepared = scfl(batch=batch).prepare(setting)  # type: ignore[arg-type]
    draws = draws_of(prepared)
    assert 0 < np.mean(draws.arrived) < 1, "the problem must have stragglers"
    W_0 = np.random.default_rng(1).standard_normal((3, 2))

    average, last = algorithm1.scfl(
        *data_of(setting), draws, W_0, ETA, tau, prepared.device.arrivals.probability, 8, setting.code.noise_variance
    )
    result = train(prepared, RATE, ROUNDS, initial_model=W_0)

    # Same arithmetic in float64, in another order: agreement to rounding.
    np.testing.assert_allclose(result.model, average, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(result.progress.state.model, last, rtol=1e-10, atol=1e-12)


def test_fedavg_is_the_sum_of_what_arrived() -> None:
    setting = make_setting(local_steps=3)
    prepared = fedavg().prepare(setting)
    W_0 = np.random.default_rng(1).standard_normal((3, 2))
    expected = algorithm1.fedavg(*data_of(setting), draws_of(prepared), W_0, ETA)
    result = train(prepared, RATE, ROUNDS, initial_model=W_0)
    np.testing.assert_allclose(result.model, expected, rtol=1e-10, atol=1e-12)


def test_dp_cfl_is_the_servers_half_of_algorithm_1_without_make_up() -> None:
    setting = make_setting(local_steps=3)
    prepared = dp_cfl().prepare(setting)
    draws = draws_of(prepared)
    X, Y = data_of(setting)
    X_coded = np.sum([draws.G[i] @ X[i] + draws.N[i] for i in range(4)], axis=0)
    Y_coded = np.sum([draws.G[i] @ Y[i] for i in range(4)], axis=0)
    W = np.zeros((3, 2))
    for k in range(ROUNDS):
        for u in range(3):
            S = np.diag(draws.S_server[k][u])
            W = W - ETA[k] * (S @ X_coded).T @ (S @ X_coded @ W - S @ Y_coded) / 8
    result = train(prepared, RATE, ROUNDS)
    np.testing.assert_allclose(result.model, W, rtol=1e-10, atol=1e-12)


def test_float32_agrees_with_float64_to_single_precision() -> None:
    # The normal draws differ between the two precisions, so only a scheme without coded data is comparable.
    results = [
        train(fedavg().prepare(make_setting(make_federation(dtype=dtype))), RATE, ROUNDS).progress.state.model
        for dtype in (np.float32, np.float64)
    ]
    assert results[0].dtype == np.float32
    np.testing.assert_allclose(results[0], results[1], rtol=1e-4, atol=1e-5)
