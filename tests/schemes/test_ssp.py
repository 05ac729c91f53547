from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from codedfl.coding import Rows
from codedfl.errors import InputError
from codedfl.privacy import GaussianMechanism, ThreatModel, epsilon_of, gaussian_mu
from codedfl.schemes import noise_norm, ssp
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import Idle
from codedfl.typing import FloatArray
from codedfl.uploads import NoisyMoments, NoisyStatistics, StatisticsMethod, joint_sensitivity
from tests.private_settings import PLENTY, THREAT_MODELS, private_setting


def released(setting: Setting, method: str = "ridge") -> NoisyMoments:
    upload = NoisyStatistics(method)  # type: ignore[arg-type]
    return upload.simulated(setting, Idle().plan(setting))


def clipped(setting: Setting) -> tuple[FloatArray, FloatArray]:
    """Return the rows that statistics are made of, by another way than the code."""
    X, Y, bound = setting.federation.features, setting.federation.labels, setting.code.clip_norm
    assert bound is not None
    weights = np.minimum(1.0, bound / np.linalg.norm(X, axis=1))[:, None]
    return weights * X, weights * Y


@pytest.mark.parametrize(("bound", "label_bound"), [(1.0, 1.0), (0.5, 3.0), (2.0, 0.1)])
def test_no_sample_changes_the_statistics_by_more_than_the_sensitivity_and_one_reaches_it(
    bound: float, label_bound: float
) -> None:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((500, 4)) * rng.exponential(2 * bound, (500, 1))
    X[-1] *= bound / np.linalg.norm(X[-1])
    Y = rng.standard_normal((500, 2))
    Y *= label_bound / np.linalg.norm(Y, axis=1, keepdims=True)
    joined = Rows(X, Y).clipped(bound).joined()
    joint, least, cross = [], [], []
    others = joined[:40, :4].T @ joined[:40, :4]
    for row in joined:
        x, y = row[:4], row[4:]
        joint.append(math.hypot(np.linalg.norm(np.outer(x, x)), np.linalg.norm(np.outer(x, y))))
        least.append(np.linalg.eigvalsh(others + np.outer(x, x))[0] - np.linalg.eigvalsh(others)[0])
        cross.append(np.linalg.norm(np.outer(x, y)))
    most = joint_sensitivity(bound, label_bound)
    assert max(joint) <= most * (1 + 1e-12)
    assert joint[-1] == pytest.approx(most, rel=1e-12), "a sample with both norms at their bounds reaches it"
    assert max(cross) == pytest.approx(bound * label_bound, rel=1e-12)
    assert 0 < max(least) <= bound**2


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("method", ["ridge", "adassp"])
def test_the_sum_has_the_mean_and_the_variance_of_the_messages_of_all_devices(
    method: str, threat_model: ThreatModel
) -> None:
    setting = private_setting(1.0, threat_model, dimension=12, label_bound=2.0, clip_norm=0.8)
    X, Y = clipped(setting)
    draws = [released(replace(setting, streams=Streams(seed)), method) for seed in range(40)]
    z = math.sqrt(3 if method == "adassp" else 1) / gaussian_mu(1.0, 1e-5)
    devices = 4 if threat_model == "each-message" else 1
    moments, cross = (0.64, 1.6) if method == "adassp" else 2 * (math.sqrt(0.64**2 + 1.6**2),)
    s, s_cross = (z * sensitivity * math.sqrt(devices) for sensitivity in (moments, cross))
    assert (draws[0].deviation, draws[0].cross_deviation) == pytest.approx((s, s_cross), rel=1e-6)

    errors = np.array([draw.features - X.T @ X for draw in draws])
    assert np.array_equal(errors, errors.transpose(0, 2, 1))
    diagonal, beside = errors[:, np.arange(12), np.arange(12)].ravel(), errors[:, *np.triu_indices(12, 1)].ravel()
    cross_errors = np.array([draw.cross - X.T @ Y for draw in draws]).ravel()
    for error, variance in ((diagonal, s**2), (beside, s**2 / 2), (cross_errors, s_cross**2)):
        assert abs(error.mean()) < 4 * math.sqrt(variance / error.size)
        assert abs(error.var() / variance - 1) < 4 * math.sqrt(2 / error.size)


def test_the_operator_norm_of_the_noise_is_predicted() -> None:
    """Fluctuations of the largest eigenvalue are of the order d^(-2/3), which is 0.03 here."""
    draws = np.random.default_rng(0).standard_normal((200, 200))
    assert np.linalg.norm((draws + draws.T) / 2, 2) == pytest.approx(noise_norm(200, 1.0), rel=0.06)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_the_ridge_solution_follows_its_formula(threat_model: ThreatModel) -> None:
    setting = private_setting(5.0, threat_model)
    prepared = ssp(ridge_share=0.4).prepare(setting)
    held = prepared.held
    assert isinstance(held, NoisyMoments)
    values, vectors = np.linalg.eigh(held.features)
    hessian = vectors @ np.diag(np.maximum(values, 0)) @ vectors.T + 0.4 * math.sqrt(6) * held.deviation * np.eye(3)
    solution = prepared.scheme.init(prepared, np.zeros((3, 2))).model
    np.testing.assert_allclose(solution, np.linalg.solve(hessian, held.cross), rtol=1e-10)


def test_the_ridge_of_adassp_is_what_the_noise_may_exceed_the_least_eigenvalue_by() -> None:
    # Many rows, so that the least eigenvalues are above their noise.
    setting = private_setting(1e4, samples=(400, 300))
    prepared = ssp(method="adassp").prepare(setting)
    held = prepared.held
    assert isinstance(held, NoisyMoments)
    X, _ = clipped(setting)
    assert 0 < held.least_eigenvalue < np.linalg.eigvalsh(X.T @ X)[0]
    for least in (0.0, held.least_eigenvalue):
        changed = replace(held, least_eigenvalue=least)
        ridge = max(0.0, math.sqrt(3 * math.log(2 * 9 / 0.05)) * held.deviation - least)
        assert (ridge > 0) == (least == 0)
        solution = prepared.scheme.init(replace(prepared, held=changed), np.zeros((3, 2))).model
        np.testing.assert_allclose(solution, np.linalg.solve(held.features + ridge * np.eye(3), held.cross), rtol=1e-10)


@pytest.mark.parametrize("method", ["ridge", "adassp"])
def test_without_noise_it_is_least_squares_of_the_clipped_rows(method: str) -> None:
    setting = private_setting(PLENTY, clip_norm=0.7)
    X, Y = clipped(setting)
    assert np.abs(X - setting.federation.features).max() > 0.1, "some rows are clipped"
    prepared = ssp(method=method).prepare(setting)  # type: ignore[arg-type]
    optimum = np.linalg.lstsq(X, Y, rcond=None)[0]
    # mu is about sqrt(2 epsilon) = 45,000, and the least eigenvalue of X^T X about 1.
    assert np.abs(prepared.scheme.init(prepared, np.zeros((3, 2))).model - optimum).max() < 1e-3


@pytest.mark.parametrize("method", ["ridge", "adassp"])
def test_all_of_the_budget_is_used(method: str) -> None:
    setting = private_setting(2.0)
    assert setting.privacy is not None
    spent = GaussianMechanism(20.0)
    setting = replace(setting, privacy=replace(setting.privacy, spent=(spent,)))
    upload = NoisyStatistics(method)  # type: ignore[arg-type]
    (release,) = upload.releases(setting, Idle().plan(setting), 0)
    assert release.mechanism is not None
    assert 1.999 < epsilon_of([release.mechanism, spent], 1e-5) <= 2.0


def test_the_triangle_of_the_second_moments_and_the_cross_moments_are_charged() -> None:
    setting = private_setting(samples=(7, 12))
    cost = NoisyStatistics().cost(setting, Idle().plan(setting))
    assert cost.bits.tolist() == [32 * (6 + 6)] * 2
    assert cost.encoding_macs.tolist() == [7 * 12, 12 * 12]
    adaptive = NoisyStatistics("adassp").cost(setting, Idle().plan(setting))
    assert adaptive.bits.tolist() == [32 * (6 + 6 + 1)] * 2


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (replace(private_setting(), privacy=None), "privacy.epsilon = 0"),
        (private_setting(clip_norm=None), "coding.clip_norm = 0"),
    ],
)
def test_a_setting_without_target_or_clip_norm_is_refused(setting: Setting, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        ssp().prepare(setting)


@pytest.mark.parametrize("method", ["ridge", "adassp"])
def test_devices_that_take_no_part_send_nothing_and_are_charged_for_nothing(method: StatisticsMethod) -> None:
    setting = private_setting(PLENTY, samples=(70, 12, 50, 10))
    some = replace(setting, code=replace(setting.code, participants=np.array([True, False, True, True])))
    upload, plan = NoisyStatistics(method), Idle().plan(some)
    held, cost = upload.simulated(some, plan), upload.cost(some, plan)
    X, Y = clipped(setting)
    kept = np.r_[0:70, 82:142]
    np.testing.assert_allclose(held.features, X[kept].T @ X[kept], atol=0.1)
    np.testing.assert_allclose(held.cross, X[kept].T @ Y[kept], atol=0.1)
    parts = [X[0:70], X[82:132], X[132:142]]
    if method == "adassp":
        least = sum(np.linalg.eigvalsh(part.T @ part)[0] for part in parts)
        assert held.least_eigenvalue == pytest.approx(least, abs=0.1)
    whole = upload.cost(setting, plan)
    assert cost.bits.tolist() == [32 * numbers for numbers in np.array([1, 0, 1, 1]) * whole.bits[0] / 32]
    assert cost.encoding_macs.tolist() == [whole.encoding_macs[0], 0, *whole.encoding_macs[2:]]
    assert cost.server_macs == whole.server_macs * 3 / 4
    assert [len(upload.releases(some, plan, i)) for i in range(4)] == [1, 0, 1, 1]


def test_only_devices_that_take_part_add_noise() -> None:
    setting = private_setting(2.0)
    some = replace(setting, code=replace(setting.code, participants=np.array([True, False, False, False])))
    assert released(some).deviation == pytest.approx(released(setting).deviation / 2)
