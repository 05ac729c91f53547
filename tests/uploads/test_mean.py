from __future__ import annotations

import math
from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest

from codedfl.coding import Geometry
from codedfl.errors import InputError
from codedfl.parallel import one_blas_thread
from codedfl.privacy import GaussianMechanism, ThreatModel, epsilon_of, gaussian_mu
from codedfl.schemes import dp_gd
from codedfl.setting import Setting
from codedfl.streams import Streams
from codedfl.training import Idle
from codedfl.typing import FloatArray
from codedfl.uploads import (
    MEAN_FACTOR,
    MEAN_SHARE,
    MOMENTS_SHARE,
    MOST_DIRECTIONS,
    CurvatureDetail,
    Mean,
    PrivateCurvature,
)
from codedfl.uploads._mean import _leading, _with_moments
from tests.private_settings import PLENTY, THREAT_MODELS, private_setting
from tests.problems import make_federation, make_setting
from tests.reference.private_descent import shrinking, with_mean, with_moments


def leaning(setting: Setting, mean: float = 0.5) -> Setting:
    """Return the setting with features that have a mean."""
    federation = setting.federation
    features = federation.features + mean * np.arange(1, federation.dimension + 1) / federation.dimension
    return replace(setting, federation=replace(federation, features=features.astype(federation.features.dtype)))


def held_in(setting: Setting, curvature: CurvatureDetail = "second-moments") -> PrivateCurvature:
    return Mean("auto", curvature, rounds=5).simulated(setting, Idle().plan(setting))


def dense(geometry: Geometry) -> FloatArray:
    return shrinking(geometry.directions, geometry.factors)


def noise_of(setting: Setting, share: float, threat_model: ThreatModel) -> float:
    """Return the noise in the sum over four devices, in units of the sensitivity."""
    assert setting.privacy is not None
    z = 1 / (gaussian_mu(setting.privacy.epsilon, setting.privacy.delta) * math.sqrt(share))
    return z if threat_model == "sums-only" else 2 * z


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("epsilon", [0.5, 20.0, 2000.0])
def test_it_is_that_of_the_transcription(epsilon: float, threat_model: ThreatModel) -> None:
    setting = leaning(private_setting(epsilon, threat_model, samples=(70, 120, 50, 10), clip_norm=0.9, dimension=6))
    X, streams = setting.federation.features, setting.streams
    mean = with_mean(
        X,
        0.9,
        0.9 * noise_of(setting, MEAN_SHARE, threat_model),
        streams.at("private-mean").standard_normal(6),
        MEAN_FACTOR,
    )
    ours = held_in(setting, "mean")
    np.testing.assert_allclose(dense(ours.geometry), mean.D, rtol=1e-9, atol=1e-12)
    assert (ours.smoothness, ours.row_norm) == pytest.approx((mean.smoothness, mean.row_norm), rel=1e-9)

    moments = with_moments(
        X,
        mean,
        mean.row_norm**2 * noise_of(setting, MOMENTS_SHARE, threat_model),
        streams.at("private-moments").standard_normal((6, 6)),
    )
    ours = held_in(setting)
    np.testing.assert_allclose(dense(ours.geometry), moments.D, rtol=1e-8, atol=1e-10)
    assert (ours.smoothness, ours.row_norm) == pytest.approx((moments.smoothness, moments.row_norm), rel=1e-9)


def test_without_curvature_nothing_is_sent_and_the_bounds_are_those_of_the_clip_norm() -> None:
    setting = private_setting(2.0, clip_norm=0.7)
    held = held_in(setting, "none")
    assert held.geometry.directions == ()
    assert (held.smoothness, held.row_norm) == pytest.approx((25 * 0.49, 0.7))
    cost = Mean("auto", "none").cost(setting, Idle().plan(setting))
    assert not cost.bits.any()
    assert Mean("auto", "none").releases(setting, Idle().plan(setting), 0) == ()


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_without_noise_the_mean_and_the_leading_eigenvectors_shrink(threat_model: ThreatModel) -> None:
    setting = leaning(private_setting(1e13, threat_model, samples=(70, 120, 50, 10), clip_norm=3.0, dimension=6))
    X = setting.federation.features
    mean = X.mean(axis=0)
    first = dense(held_in(setting, "mean").geometry)
    np.testing.assert_allclose(first @ mean, MEAN_FACTOR * mean, rtol=1e-3)
    across = np.linalg.svd(mean[None])[2][1:]
    np.testing.assert_allclose(across @ first.T, across, atol=1e-3)

    held = held_in(setting)
    left = np.linalg.eigvalsh((held.geometry.rows(X)).T @ held.geometry.rows(X))
    assert held.smoothness < 1e-2, "noise of no account"
    np.testing.assert_allclose(left, held.smoothness, rtol=1e-2)  # all eigenvalues stand out, so all shrink to the edge
    values, vectors = np.linalg.eigh(first @ X.T @ X @ first.T)
    second = dense(Geometry(held.geometry.directions[1:], held.geometry.factors[1:]))
    for value, vector in zip(values, vectors.T, strict=True):
        shrunk = math.sqrt(held.smoothness / (value + held.smoothness))
        np.testing.assert_allclose(second @ vector, shrunk * vector, atol=2e-2 * shrunk)


def sent_sum(held: PrivateCurvature, samples: int, bound: float, deviation: float) -> FloatArray:
    """Return the noisy sum of features that a geometry and a row norm were made of."""
    direction = held.geometry.directions[0][:, 0]
    squared = (bound**2 - held.row_norm**2) / (1 - MEAN_FACTOR**2)
    return math.sqrt(squared * samples**2 + len(direction) * deviation**2) * direction


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
def test_the_noise_of_the_mean_has_the_stated_variance(threat_model: ThreatModel) -> None:
    setting = leaning(private_setting(2.0, threat_model, samples=(700, 1200, 500, 100), dimension=4), 0.7)
    X, samples = setting.federation.features, setting.federation.total_samples
    deviation = noise_of(setting, MEAN_SHARE, threat_model)
    exact = (X * np.minimum(1.0, 1 / np.linalg.norm(X, axis=1))[:, None]).sum(axis=0)
    draws = []
    for seed in range(150):
        held = held_in(replace(setting, streams=Streams(seed)), "mean")
        assert held.row_norm > 0.5, "not at its bound"
        draws.append(sent_sum(held, samples, 1.0, deviation) - exact)
    noise = np.array(draws).ravel() / deviation
    assert abs(noise.mean()) < 4 / math.sqrt(noise.size)
    assert abs(noise.var() - 1) < 4 * math.sqrt(2 / noise.size)


def moments_of(setting: Setting, held: PrivateCurvature, multiplier: float) -> FloatArray:
    """Return the noisy second moments that devices send."""
    seen: list[FloatArray] = []

    def watch(matrix: FloatArray) -> Any:
        seen.append(matrix.copy())
        return np.linalg.eigh(matrix)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("codedfl.uploads._mean._leading", watch)
        _with_moments(setting, held, multiplier)
    return seen[0]


def test_the_noise_of_second_moments_has_the_stated_variance() -> None:
    setting = private_setting(dimension=5)
    held = PrivateCurvature(Geometry(), 1.0, 0.6)
    exact = moments_of(setting, held, 0.0)
    drawn = np.array([moments_of(replace(setting, streams=Streams(seed)), held, 3.0) for seed in range(300)]) - exact
    np.testing.assert_array_equal(drawn, drawn.transpose(0, 2, 1))
    s = 3.0 * 0.6**2
    diagonal, beside = drawn[:, np.arange(5), np.arange(5)].ravel(), drawn[:, *np.triu_indices(5, 1)].ravel()
    for noise, variance in ((diagonal, s**2), (beside, s**2 / 2)):
        assert abs(noise.mean()) < 4 * math.sqrt(variance / noise.size)
        assert abs(noise.var() / variance - 1) < 4 * math.sqrt(2 / noise.size)


def without(setting: Setting, row: int) -> Setting:
    federation = setting.federation
    kept = np.delete(np.arange(federation.total_samples), row)
    offsets = federation.offsets - (federation.offsets > row)
    return replace(
        setting,
        federation=replace(
            federation, features=federation.features[kept], labels=federation.labels[kept], offsets=offsets
        ),
    )


@pytest.mark.parametrize("bound", [0.4, 1.1])
def test_one_sample_changes_the_mean_by_the_clip_norm_at_most_and_a_large_one_by_as_much(bound: float) -> None:
    setting = leaning(private_setting(PLENTY, clip_norm=bound), -0.3)
    deviation = bound * noise_of(setting, MEAN_SHARE, "each-message")

    def total(each: Setting) -> FloatArray:
        held = held_in(each, "mean")
        assert held.row_norm > 0.5 * bound * (1 + 1e-6), "not at its bound"
        return sent_sum(held, each.federation.total_samples, bound, deviation)

    # The noise is the same in all of them and cancels.
    changes = [np.linalg.norm(total(setting) - total(without(setting, row))) for row in range(24)]
    assert max(changes) == pytest.approx(bound, rel=1e-5)


@pytest.mark.parametrize("norm", [0.4, 1.1])
def test_one_sample_changes_second_moments_by_the_square_of_the_row_norm_at_most(norm: float) -> None:
    setting = leaning(private_setting(dimension=4))
    V, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((4, 1)))
    held = PrivateCurvature(Geometry((V,), (np.array([0.3]),)), 1.0, norm)
    changes = [
        np.linalg.norm(moments_of(setting, held, 1.0) - moments_of(without(setting, row), held, 1.0))
        for row in range(24)
    ]
    assert max(changes) == pytest.approx(norm**2, rel=1e-9)


@pytest.mark.parametrize("curvature", ["second-moments", "mean", "none"])
def test_the_cost_is_known_without_making_it(curvature: CurvatureDetail) -> None:
    setting = private_setting(2.0, dimension=5)
    upload, plan = Mean("auto", curvature), Idle().plan(setting)
    prepared = dp_gd(curvature=curvature).prepare(setting)
    charged = prepared.upload_cost
    assert charged is not None
    for made, known in zip(astuple(charged), astuple(upload.cost(setting, plan)), strict=True):
        assert np.array_equal(made, known)
    numbers = {"none": 0, "mean": 5, "second-moments": 5 + 15}[curvature]
    assert charged.bits.tolist() == [32 * numbers] * 4


def test_releases_are_the_mechanisms_of_the_budget() -> None:
    setting = private_setting(2.0)
    upload, plan = Mean("auto", "second-moments", rounds=6), Idle().plan(setting)
    sent = upload.releases(setting, plan, 3)
    assert [release.message for release in sent] == ["mean of the features", "second moments"]
    assert all(release.upload for release in sent)
    mechanisms = [release.mechanism for release in sent if release.mechanism is not None]
    updates = [GaussianMechanism(float(z)) for z in upload.budget(setting).noise_multipliers]
    assert epsilon_of([*mechanisms, *updates], 1e-5) == pytest.approx(2.0, rel=1e-6)


def test_it_depends_on_the_clip_norm_but_not_on_the_code() -> None:
    upload, code = Mean(), private_setting().code
    kept = upload.depends_on(replace(code, coded_samples=77, draw=4))
    assert kept.clip_norm == code.clip_norm
    assert (kept.coded_samples, kept.draw) == (1, 0)
    assert not kept.noise_variance.any()
    assert upload.noise


def test_many_features_shrink_the_same_directions_as_a_dense_solver_finds() -> None:
    """An iterative solver takes over from 257 features on."""
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((300, 300)))
    spectrum = (rotation * 0.9 ** np.arange(300)) @ rotation.T
    for size in (40, 257):
        matrix = spectrum[:size, :size]
        with one_blas_thread():  # as where it is called from
            values, vectors = _leading(matrix)
        assert len(values) == min(size, MOST_DIRECTIONS)
        np.testing.assert_allclose(np.sort(values), np.linalg.eigvalsh(matrix)[-MOST_DIRECTIONS:], atol=1e-10)
        np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-8)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-10)


def only(setting: Setting, taking_part: list[bool]) -> Setting:
    """Return the setting with some devices that take no part in the upload."""
    return replace(setting, code=replace(setting.code, participants=np.array(taking_part)))


def alone(setting: Setting, devices: list[int]) -> Setting:
    """Return a setting in which there are no other devices than some."""
    federation = setting.federation
    X, Y = (np.concatenate([federation.device(i)[part] for i in devices]) for part in (0, 1))
    smaller = make_federation([int(federation.samples[i]) for i in devices], federation.dimension)
    smaller = replace(smaller, features=X, labels=Y)
    same = make_setting(smaller, privacy=setting.privacy)
    return replace(same, code=replace(same.code, clip_norm=setting.code.clip_norm), streams=setting.streams)


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("curvature", ["second-moments", "mean"])
def test_rows_of_devices_that_take_no_part_are_taken_to_be_like_the_others(
    curvature: CurvatureDetail, threat_model: ThreatModel
) -> None:
    """What the others send is what they would send by themselves, but it stands for all rows."""
    everybody = leaning(private_setting(200.0, threat_model, samples=(70, 120, 50, 10), dimension=6))
    some = only(everybody, [True, False, True, True])
    held, by_themselves = held_in(some, curvature), held_in(alone(some, [0, 2, 3]), curvature)
    np.testing.assert_allclose(dense(held.geometry), dense(by_themselves.geometry), rtol=1e-9, atol=1e-12)
    assert held.row_norm == pytest.approx(by_themselves.row_norm, rel=1e-9)
    assert held.smoothness == pytest.approx(by_themselves.smoothness * 250 / 130, rel=1e-9)


def test_devices_that_take_no_part_send_nothing_and_are_charged_for_nothing() -> None:
    setting = only(private_setting(2.0, dimension=5), [True, False, True, True])
    upload, plan = Mean("auto", "second-moments"), Idle().plan(setting)
    assert [len(upload.releases(setting, plan, i)) for i in range(4)] == [2, 0, 2, 2]
    cost = upload.cost(setting, plan)
    assert cost.bits.tolist() == [32 * 20, 0, 32 * 20, 32 * 20]
    training = 2 * 5 * (1 + 5) * setting.federation.samples  # every device computes in the geometry
    assert (cost.encoding_macs - training).tolist() == [7 * 20, 0, 5 * 20, 1 * 20]
    whole = upload.cost(private_setting(2.0, dimension=5), plan)
    assert whole.server_macs - cost.server_macs == 20


def test_features_that_are_all_zero_have_curvature_too() -> None:
    for dimension in (1, 3):
        setting = private_setting(2.0, dimension=dimension)
        features = 0 * setting.federation.features
        held = held_in(replace(setting, federation=replace(setting.federation, features=features)))
        assert math.isfinite(held.smoothness)
        assert held.row_norm > 0


@pytest.mark.parametrize(
    ("setting", "curvature", "sentence"),
    [
        (replace(private_setting(), privacy=None), "mean", "privacy.epsilon = 0"),
        (private_setting(clip_norm=None), "mean", "coding.clip_norm = 0"),
    ],
)
def test_a_setting_without_a_target_or_a_clip_norm_is_refused(
    setting: Setting, curvature: CurvatureDetail, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence) as refused:
        dp_gd(curvature=curvature).prepare(setting)
    assert str(refused.value).endswith(".")


def test_second_moments_that_are_too_large_to_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("codedfl.uploads._mean.LARGEST_GRAM", 2)
    with pytest.raises(InputError, match=r"features\.dimension = 3 is too large .*at most 2.*curvature = \"mean\""):
        dp_gd(curvature="second-moments").prepare(private_setting())
    dp_gd(curvature="mean").prepare(private_setting())


def test_a_softmax_of_a_regression_is_refused() -> None:
    with pytest.raises(InputError, match=r'options\.dp-gd\.loss = "softmax" is for classes'):
        dp_gd(loss="softmax").prepare(private_setting(task="regression"))
