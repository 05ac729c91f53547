"""Where training ends. Bounds of the statistical checks are in standard errors: 4 of them, which a correct formula exceeds
with probability 6e-5 in each check.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import CodedData, Rows, compute_gram, encode, sample_coded
from codedfl.errors import InputError
from codedfl.schemes import scfl
from codedfl.theory import RoundLaw, arrival_limit_point, coded_limit_point, limit_error, limit_point
from codedfl.typing import BoolArray, FloatArray
from tests.problems import ALWAYS_DBM, global_update, make_setting
from tests.reference.theory_variance import server_variance
from tests.support import mostly_slow
from tests.theory.rounds import random_round, standard_error

SIGMAS = 4.0
SOME = np.array([True, False, True])


def draw_code(round: RoundLaw, rng: np.random.Generator) -> CodedData:
    return sample_coded(
        round.coded_gram,
        round.coded_samples,
        noise_variance=round.total_noise,
        label_noise_variance=round.total_label_noise,
        rng=rng,
    )


def mean_update(round: RoundLaw, coded: CodedData, W: FloatArray) -> FloatArray:
    """Full batches, everyone arrives: device by device, and the coded gradient with its make-up term."""
    update = np.zeros_like(W)
    for part, weight in zip(round.parts, round.weights, strict=True):
        update += weight * part.features.T @ (part.features @ W - part.labels)
    gradient = coded.features.T @ (coded.features @ W - coded.labels) / len(coded) - coded.noise_variance * W
    return update + (1 - round.device_weight) * gradient


@pytest.mark.parametrize("uploading", [None, SOME], ids=["all", "some"])
@pytest.mark.parametrize("weight", [0.0, 0.5, 0.8])
def test_the_mean_update_vanishes_at_the_limit_point_and_nowhere_near(
    uploading: BoolArray | None, weight: float
) -> None:
    rng = np.random.default_rng(0)
    round = random_round(
        rng, (9, 7, 8), uploading=uploading, device_weight=weight, coded_samples=40, noise_variance=np.full(3, 0.2)
    )
    coded = draw_code(round, rng)
    limit = limit_point(round.gram, coded, weight, round.coded_gram)
    assert limit.stable
    np.testing.assert_allclose(mean_update(round, coded, limit.model), 0.0, atol=1e-10)
    assert np.abs(mean_update(round, coded, round.gram.optimum)).max() > 0.1
    X, Y = (np.vstack([getattr(part, name) for part in round.parts]) for name in ("features", "labels"))
    losses = [0.5 * np.sum((X @ W - Y) ** 2) for W in (limit.model, np.linalg.lstsq(X, Y)[0])]
    assert limit.gap == pytest.approx(losses[0] - losses[1], rel=1e-9)


def test_devices_alone_end_at_the_optimum() -> None:
    rng = np.random.default_rng(0)
    round = random_round(rng, (9, 7, 8))
    limit = limit_point(round.gram, draw_code(round, rng), 1.0)
    np.testing.assert_allclose(limit.model, round.gram.optimum, rtol=1e-9)
    assert limit.gap == pytest.approx(0.0, abs=1e-12)


def test_fedavg_ends_where_the_gradients_that_arrive_cancel() -> None:
    rng = np.random.default_rng(0)
    round = random_round(rng, (9, 7, 8))
    limit = arrival_limit_point(round.gram, round.parts, round.arrival_probability)
    arriving = sum(
        p * part.features.T @ (part.features @ limit.model - part.labels)
        for p, part in zip(round.arrival_probability, round.parts, strict=True)
    )
    np.testing.assert_allclose(arriving, 0.0, atol=1e-10)
    assert limit.stable
    assert limit.gap > 1e-3
    everyone = arrival_limit_point(round.gram, round.parts, np.ones(3))
    np.testing.assert_allclose(everyone.model, round.gram.optimum, rtol=1e-9)
    with pytest.raises(InputError, match=r"2 value\(s\) for 3 device"):
        arrival_limit_point(round.gram, round.parts, np.ones(2))


def test_dp_cfl_ends_at_least_squares_on_coded_data() -> None:
    rng = np.random.default_rng(0)
    round = random_round(rng, (9, 7, 8), coded_samples=40)
    coded = draw_code(round, rng)
    limit = coded_limit_point(round.gram, coded)
    np.testing.assert_allclose(limit.model, np.linalg.lstsq(coded.features, coded.labels)[0], rtol=1e-9)
    eigenvalues = np.linalg.svd(coded.features, compute_uv=False) ** 2 / 40
    assert limit.least_eigenvalue == pytest.approx(eigenvalues.min(), rel=1e-9)
    assert limit.gap == pytest.approx(round.gram.loss(limit.model) - round.gram.loss(round.gram.optimum), rel=1e-9)


@pytest.mark.parametrize("participants", [None, np.array([True, False, True, True])], ids=["all", "some"])
def test_training_ends_at_the_limit_point(participants: BoolArray | None) -> None:
    setting = make_setting(
        local_steps=1, power_dbm=ALWAYS_DBM, deadline_s=100.0, server_batch=40, coded_samples=40, noise_variance=0.02
    )
    setting = replace(setting, code=replace(setting.code, participants=participants))
    prepared = scfl(device_weight=0.4).prepare(setting)
    (coded,) = prepared.held
    on = np.flatnonzero(setting.code.uploading)
    limit = limit_point(setting.gram, coded, 0.4, compute_gram([setting.rows(int(i)) for i in on]))
    assert limit.stable
    W = np.zeros((3, 2))
    for k in range(150):
        attendance = prepared.device.arrivals.attend(k)
        assert attendance.arrived.all()
        W = W - 1.0 / setting.gram.smoothness * global_update(prepared, k, W, 0.1)
    np.testing.assert_allclose(W, limit.model, rtol=1e-6, atol=1e-9)
    assert np.abs(W - setting.gram.optimum).max() > 1e-3


def test_very_strong_noise_makes_the_limit_a_point_to_run_away_from() -> None:
    rng = np.random.default_rng(0)
    round = random_round(rng, (4, 3, 3), noise_variance=np.full(3, 40.0), coded_samples=8, server_batch=8)
    coded = draw_code(round, rng)
    limit = limit_point(round.gram, coded)
    assert limit.least_eigenvalue < 0
    assert not limit.stable
    W = limit.model + 1e-3 * rng.standard_normal((3, 2))
    start = np.linalg.norm(W - limit.model)
    for _ in range(300):
        W = W - 0.002 * mean_update(round, coded, W)
    assert np.linalg.norm(W - limit.model) > 10 * start


def test_the_least_eigenvalue_is_that_of_the_hessian_training_sees() -> None:
    rng = np.random.default_rng(1)
    round = random_round(rng, (9, 7, 8), device_weight=0.3, coded_samples=30)
    coded = draw_code(round, rng)
    # Differences of the mean update along each axis are the columns of the Hessian.
    zero = np.zeros((3, 2))
    columns = []
    for k in range(3):
        step = zero.copy()
        step[k, 0] = 1.0
        columns.append((mean_update(round, coded, step) - mean_update(round, coded, zero))[:, 0])
    expected = np.linalg.eigvals(np.array(columns)).real.min()
    assert limit_point(round.gram, coded, 0.3).least_eigenvalue == pytest.approx(expected, rel=1e-9)


CODES = {
    "all": {},
    "label noise": {"label_noise_variance": np.array([3.0, 1.0, 20.0])},
    "some": {"uploading": SOME, "label_noise_variance": np.array([0.3, 0.1, 0.2])},
}


@pytest.mark.parametrize("name", mostly_slow(CODES, "some"))
def test_the_floor_is_the_mean_first_order_gap_of_drawn_codes(name: str) -> None:
    """To first order the gap is ``1/2 tr(e^T H^-1 e)`` with the error of the coded gradient at the optimum; no allowance."""
    rng = np.random.default_rng(2)
    round = random_round(rng, (9, 7, 8), coded_samples=10, server_batch=10, **CODES[name])
    H, optimum = round.gram.features, round.gram.optimum
    gradient = round.coded_gram.features @ optimum - round.coded_gram.cross
    gaps = []
    for _ in range(1500):
        coded = draw_code(round, rng)
        e = coded.features.T @ (coded.features @ optimum - coded.labels) / 10 - round.total_noise * optimum - gradient
        gaps.append(0.5 * np.sum(e * np.linalg.solve(H, e)))
    floor, error = limit_error(round, 1e-3).code_floor, standard_error(np.array(gaps))
    assert abs(np.mean(gaps) - floor) < SIGMAS * error
    assert error < 0.05 * floor


@pytest.mark.slow
def test_the_gap_of_limit_points_tends_to_the_floor_as_the_code_grows() -> None:
    """What the floor leaves out falls as ``1 / c``: measured on a short code, it is the allowance on a longer one."""
    rng, weight = np.random.default_rng(3), 0.2
    excess = {}
    for c in (20, 320):
        round = random_round(np.random.default_rng(2), (9, 7, 8), coded_samples=c, server_batch=c)
        gaps = np.array([limit_point(round.gram, draw_code(round, rng), weight).gap for _ in range(1000)])
        floor = (1 - weight) ** 2 * limit_error(round, 1e-3).code_floor
        excess[c] = gaps.mean() / floor - 1, standard_error(gaps) / floor
    assert excess[20][0] > SIGMAS * excess[20][1], "the short code must show what is left out"
    allowance = 2 * excess[20][0] * 20 / 320
    assert allowance < 0.2
    assert abs(excess[320][0]) < allowance + SIGMAS * excess[320][1]


def stationary_gaps(round: RoundLaw, eta: float, runs: int, rounds: int, rng: np.random.Generator) -> FloatArray:
    """The gap of the last iterate, averaged over rounds once the start is forgotten, for each of many runs.

    The code is endless: every batch of the server is a Poisson number of fresh rows.
    """
    H, optimum, b, w = round.gram.features, round.gram.optimum, round.server_batch, round.device_weight
    spread = np.linalg.cholesky(
        round.coded_gram.matrix + np.diag([round.total_noise] * 3 + [round.total_label_noise] * 2)
    )
    W, total = np.broadcast_to(optimum, (runs, 3, 2)).copy(), np.zeros(runs)
    for k in range(2 * rounds):
        update = np.zeros_like(W)
        for i, part in enumerate(round.parts):
            X, Y, p = part.features, part.labels, round.arrival_probability[i]
            chosen = rng.random((runs, len(part), 1)) < 1 / (round.inverse_batch[i] * len(part))
            gradient = len(part) * round.inverse_batch[i] * X.T @ (chosen * (X @ W - Y))
            update += round.weights[i] / p * (rng.random((runs, 1, 1)) < p) * gradient
        if w < 1:
            fresh = rng.poisson(b, runs)
            Z = rng.standard_normal((runs, fresh.max(), 5)) @ spread.T
            Z *= (np.arange(fresh.max()) < fresh[:, None])[:, :, None]
            X, Y = Z[..., :3], Z[..., 3:]
            update += (1 - w) * (X.transpose(0, 2, 1) @ (X @ W - Y) / b - round.total_noise * W)
        W = W - eta * update
        if k >= rounds:
            total += 0.5 * np.sum((W - optimum) * (H @ (W - optimum)), axis=(1, 2))
    return total / rounds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("weight", "uploading"),
    [
        pytest.param(1.0, None, id="devices alone", marks=pytest.mark.slow),
        pytest.param(0.5, None, id="both"),
        pytest.param(0.3, SOME, id="some", marks=pytest.mark.slow),
    ],
)
def test_a_constant_step_stays_at_a_quarter_of_step_times_variance(weight: float, uploading: BoolArray | None) -> None:
    """The next order is linear in the step: measured with a step ten times as large, a tenth of it is allowed for."""
    rng = np.random.default_rng(4)
    round = random_round(
        np.random.default_rng(1),
        (6, 9, 7),
        coded_samples=10**9,
        noise_variance=np.array([0.1, 0.3, 0.05]),
        label_noise_variance=np.array([0.2, 0.1, 0.3]),
        device_weight=weight,
        uploading=uploading,
    )
    eigenvalues = np.linalg.eigvalsh(round.gram.features)
    ratio, error = {}, {}
    for scale, runs in ((0.1, 500), (0.01, 250)):
        eta = scale / float(eigenvalues[-1])
        # After this many rounds the start is forgotten but for exp(-4).
        rounds = int(2.0 / (eta * eigenvalues[0]))
        gaps = stationary_gaps(round, eta, runs, rounds, rng)
        predicted = limit_error(round, eta).total()
        ratio[scale], error[scale] = gaps.mean() / predicted, standard_error(gaps) / predicted
    expected = 1 + (ratio[0.1] - 1) / 10
    assert abs(expected - 1) < 0.1
    assert abs(ratio[0.01] - expected) < SIGMAS * np.hypot(error[0.01], error[0.1] / 10)
    assert error[0.01] < 0.05


def test_only_what_each_round_draws_anew_counts_as_noise_of_the_server() -> None:
    """What a batch adds to the variance of the whole code, by listing all batches of a short one."""
    round = random_round(np.random.default_rng(6), coded_samples=4, server_batch=2, device_weight=0.0)
    parts = [(part.features, part.labels) for part in round.parts]
    sampled, whole = (server_variance(parts, round.gram.optimum, 4, batch, round.total_noise, 0.0) for batch in (2, 4))
    limit = limit_error(round, 0.02)
    assert limit.server_noise == pytest.approx(0.02 / 4 * (sampled - whole), rel=1e-9)
    assert limit_error(replace(round, server_batch=4), 0.02).server_noise == 0.0
    assert limit_error(replace(round, server_batch=4), 0.02).code_floor == pytest.approx(limit.code_floor, rel=1e-12)


def test_no_weight_ends_nearer_than_the_best() -> None:
    round = random_round(np.random.default_rng(5), uploading=SOME, device_weight=0.3)
    limit = limit_error(round, 0.01)
    grid = np.linspace(0, 1, 1001)
    totals = [limit.total(float(w)) for w in grid]
    assert limit.total(limit.best_weight) <= min(totals) * (1 + 1e-12)
    assert abs(grid[np.argmin(totals)] - limit.best_weight) <= 0.5e-3 + 1e-9
    assert limit.total() == pytest.approx(limit.total(0.3))
    assert sum(limit.terms().values()) == pytest.approx(limit.total(), rel=1e-12)
    assert limit_error(round, 1e-9).best_weight > 0.999, "as steps fall only the floor remains, and devices are all"


def test_data_with_a_feature_that_is_always_zero_is_refused() -> None:
    X = np.random.default_rng(0).standard_normal((6, 3))
    X[:, 2] = 0.0
    round = random_round(np.random.default_rng(0), (6,), parts=(Rows(X, np.ones((6, 2))),))
    with pytest.raises(InputError, match=r"X\^T X is singular"):
        limit_error(round, 0.1)


def test_data_with_a_feature_that_is_the_sum_of_others_is_refused() -> None:
    for seed in range(8):
        rng = np.random.default_rng(seed)
        X = rng.standard_normal((6, 3))
        X[:, 2] = X[:, 0] + X[:, 1]
        round = random_round(rng, (6,), parts=(Rows(X, np.ones((6, 2))),))
        with pytest.raises(InputError, match=r"X\^T X is singular"):
            limit_error(round, 0.1)


@pytest.mark.parametrize("step_size", [0.0, -0.1, np.nan])
def test_a_step_that_is_no_step_is_refused(step_size: float) -> None:
    with pytest.raises(InputError, match="step_size"):
        limit_error(random_round(np.random.default_rng(0)), step_size)


def test_a_limit_that_is_not_unique_is_refused() -> None:
    rng = np.random.default_rng(0)
    rows = Rows(rng.standard_normal((20, 4)), rng.standard_normal((20, 1)))
    coded = encode(rows, 2, noise_variance=0.0, rng=rng)
    with pytest.raises(InputError, match="singular"):
        limit_point(compute_gram([rows]), coded, device_weight=0.0)
    with pytest.raises(InputError, match=r"device_weight = 1.7"):
        limit_point(compute_gram([rows]), coded, device_weight=1.7)
