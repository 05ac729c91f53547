from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedfl.coding import Geometry, Rows
from codedfl.errors import InputError
from codedfl.federation._private_update import (
    FARTHEST,
    PrivateRequest,
    computation_error,
    make_private_update,
    requested_private_train,
)
from codedfl.federation.transport import Packet
from codedfl.privacy import ExactNoise, GaussianMechanism, SeededNoise
from codedfl.typing import FloatArray
from tests.federation.support import digits_config
from tests.reference.private_descent import clipped_sum, shrinking

CONFIG = digits_config(scheme="dp-gd", features={"map": "rff", "dimension": 12, "gamma": 0.1}, privacy={"epsilon": 2.0})
SQUARE = CONFIG.model_copy(update={"options": CONFIG.options | {"loss": "square"}})
D, OUTPUTS, SAMPLES, BOUND = 12, 10, 80, 1.0


def direction(seed: int = 2) -> FloatArray:
    vector = np.random.default_rng(seed).standard_normal((D, 1))
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def rows(seed: int = 0, samples: int = SAMPLES, scale: float = 1.0) -> Rows:
    rng = np.random.default_rng(seed)
    features = scale * rng.standard_normal((samples, D), dtype=np.float32) / math.sqrt(D)
    return Rows(features.astype(np.float32), np.eye(OUTPUTS, dtype=np.float32)[rng.integers(0, OUTPUTS, samples)])


GEOMETRY = Geometry((direction().astype(np.float64),), (np.array([0.3]),))


def request(clip_norm: float = 0.3, noise_multiplier: float = 1e-9, model: FloatArray | None = None) -> PrivateRequest:
    if model is None:
        model = np.random.default_rng(1).standard_normal((D, OUTPUTS)).astype(np.float32)
    return PrivateRequest(model, 3, clip_norm, noise_multiplier, GEOMETRY)


class Silence(SeededNoise):
    """Adds nothing, as a simulator without noise would."""

    def added(self, values: FloatArray, deviation: float, **_: float) -> FloatArray:  # noqa: ARG002
        return values


def silent() -> SeededNoise:
    return Silence(np.random.default_rng(0))


def seeded(seed: int) -> ExactNoise:
    """A device's noise, with bytes from a seed."""
    return ExactNoise(np.random.Generator(np.random.Philox(seed)), random_bytes=np.random.default_rng(seed).bytes)


def transcribed(data: Rows, asked: PrivateRequest, *, softmax: bool = True) -> FloatArray:
    D_matrix = shrinking([part.astype(np.float64) for part in asked.geometry.directions], asked.geometry.factors)
    X, Y, W = (np.asarray(part, np.float64) for part in (data.features, data.labels, asked.model))
    return clipped_sum(X, Y, W, asked.clip_norm, D_matrix, softmax=softmax)


# What it computes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("config", [CONFIG, SQUARE], ids=["softmax", "square"])
def test_it_is_the_transcription_sample_by_sample(config: Any) -> None:
    data, asked = rows(), request()
    expected = transcribed(data, asked, softmax=config is CONFIG)
    sent = make_private_update(data, asked, config, silent())
    assert sent.dtype == np.float32
    # One rounding to float32, of numbers that float64 has to 1e-12.
    assert (np.abs(sent - expected) <= 2.0**-24 * np.abs(expected) + 1e-12).all()
    unclipped = transcribed(data, request(clip_norm=1e9), softmax=config is CONFIG)
    assert np.linalg.norm(expected) < 0.7 * np.linalg.norm(unclipped), "clipping matters here"


def test_many_rows_are_added_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = make_private_update(rows(), request(), CONFIG, silent())
    monkeypatch.setattr("codedfl.federation._private_update.BLOCK_ROWS", 7)
    np.testing.assert_allclose(make_private_update(rows(), request(), CONFIG, silent()), whole, rtol=1e-6, atol=1e-9)


def test_simulators_noise_has_the_stated_deviation() -> None:
    asked = request(noise_multiplier=5.0)
    sent = make_private_update(rows(), asked, CONFIG, SeededNoise(np.random.default_rng(8)))
    noise = 5.0 * 0.3 * np.random.default_rng(8).standard_normal((D, OUTPUTS))
    np.testing.assert_allclose(sent, transcribed(rows(), asked) + noise, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("clip_norm", "noise_multiplier"), [(0.3, 5.0), (2.0, 0.1)])
def test_noise_on_a_device_is_normal_with_the_stated_deviation(clip_norm: float, noise_multiplier: float) -> None:
    asked = request(clip_norm, noise_multiplier)
    expected = transcribed(rows(), asked)
    sent = [make_private_update(rows(), asked, CONFIG, seeded(seed)).astype(np.float64) for seed in range(20)]
    noise = np.array([(each - expected).ravel() for each in sent]).ravel() / (clip_norm * noise_multiplier)
    assert stats.kstest(noise, "norm").pvalue > 1e-6
    # Five standard errors of a standard deviation.
    assert abs(noise.std() - 1) < 5 / math.sqrt(2 * noise.size)


@given(seed=st.integers(0, 50), scale=st.floats(0.1, 100.0), clip_norm=st.floats(0.01, 5.0), which=st.integers(0, 19))
def test_one_sample_changes_it_by_the_clip_norm_at_most(seed: int, scale: float, clip_norm: float, which: int) -> None:
    data, asked = rows(seed, 20, scale), request(clip_norm)
    rest = np.delete(np.arange(20), which)
    without = Rows(data.features[rest], data.labels[rest])
    both = [make_private_update(each, asked, CONFIG, silent()).astype(np.float64) for each in (data, without)]
    rounding = 2.0**-24 * sum(float(np.linalg.norm(each)) for each in both)
    assert np.linalg.norm(both[0] - both[1]) <= clip_norm + rounding + 1e-9


def test_rows_that_lie_far_out_are_scaled_down_to_a_public_norm() -> None:
    data = rows(scale=1000.0)
    norms = np.linalg.norm(data.features.astype(np.float64), axis=1, keepdims=True)
    far = FARTHEST * BOUND
    assert (norms > far).all()
    config = CONFIG.model_copy(update={"coding": CONFIG.coding.model_copy(update={"clip_norm": BOUND})})
    sent = make_private_update(data, request(), config, silent())
    expected = transcribed(Rows(far * data.features / norms, data.labels), request())
    np.testing.assert_allclose(sent, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.3, 1e6])
@pytest.mark.parametrize("size", [1.0, 1e4])
def test_errors_of_float64_are_within_the_bound(clip_norm: float, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Long double has eleven more bits, so that its own errors hardly count."""
    data = rows(samples=300)
    asked = request(clip_norm)
    asked = request(clip_norm, model=(size * asked.model).astype(np.float32))
    X, Y, W = (part.astype(np.longdouble) for part in (data.features, data.labels, asked.model))
    V, c = asked.geometry.directions[0].astype(np.longdouble), asked.geometry.factors[0].astype(np.longdouble)
    shrunk = X - (X @ V) * (1 - c) @ V.T
    logits = X @ W
    residual = np.exp(logits - logits.max(axis=1, keepdims=True))
    residual = residual / residual.sum(axis=1, keepdims=True) - Y
    sizes = np.sqrt((shrunk**2).sum(axis=1)) * np.sqrt((residual**2).sum(axis=1))
    exact = shrunk.T @ (residual * (clip_norm / np.maximum(sizes, clip_norm))[:, None])
    captured: list[FloatArray] = []

    def capture(values: FloatArray, *_: Any, **__: Any) -> FloatArray:
        captured.append(values)
        return values

    monkeypatch.setattr("codedfl.privacy._noise.gaussian_noise_on_grid", capture)
    make_private_update(data, asked, CONFIG, seeded(0))
    error = float(np.sqrt(((captured[0] - exact) ** 2).sum()))
    assert CONFIG.clip_norm is not None
    bound = computation_error(300, D, OUTPUTS, FARTHEST * CONFIG.clip_norm, float(np.linalg.norm(asked.model)), 1.0)
    assert 0 < error <= bound


def test_the_noise_is_raised_for_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    told: dict[str, Any] = {}

    def remember(values: FloatArray, deviation: float, sensitivity: float, **others: Any) -> FloatArray:
        told.update(deviation=deviation, sensitivity=sensitivity, **others)
        return values

    monkeypatch.setattr("codedfl.privacy._noise.gaussian_noise_on_grid", remember)
    asked = request(0.3, 5.0)
    make_private_update(rows(), asked, CONFIG, seeded(0))
    assert (told["deviation"], told["sensitivity"]) == (pytest.approx(1.5), 0.3)
    assert CONFIG.clip_norm is not None
    expected = computation_error(SAMPLES, D, OUTPUTS, 10 * CONFIG.clip_norm, float(np.linalg.norm(asked.model)), 1.0)
    assert told["computation_error"] == pytest.approx(expected)


def test_targets_of_a_regression_are_clipped_to_their_bound() -> None:
    rng = np.random.default_rng(3)
    data = Rows(rows().features, (4.0 * rng.standard_normal((SAMPLES, 1))).astype(np.float32))
    config = digits_config(
        scheme="dp-gd",
        data={"columns": ["a", "b"], "target": ["t"], "task": "regression", "classes": []},
        features={"map": "rff", "dimension": 12, "gamma": 0.1},
        privacy={"epsilon": 2.0, "label_bound": 1.5},
        server={"test_file": ""},
    )
    asked = request(0.9, model=rng.standard_normal((D, 1)).astype(np.float32))
    assert (np.abs(data.labels) > 1.5).mean() > 0.5
    expected = transcribed(Rows(data.features, np.clip(data.labels, -1.5, 1.5)), asked, softmax=False)
    np.testing.assert_allclose(make_private_update(data, asked, config, silent()), expected, rtol=1e-6, atol=1e-9)


# What it refuses -------------------------------------------------------------------------------------------------------


def packet(**changes: Any) -> Packet:
    geometry = Geometry((direction(),), (np.array([0.3]),))
    arrays: dict[str, Any] = {"model": np.zeros((D, OUTPUTS), np.float32), **geometry.arrays(D)}
    values: dict[str, Any] = {"round": 2, "clip_norm": 0.5, "noise_multiplier": 4.0}
    for name, change in changes.items():
        (arrays if name in ("model", "directions", "factors") else values)[name] = change
    return Packet(
        {name: array for name, array in arrays.items() if array is not None},
        {name: value for name, value in values.items() if value is not None},
    )


def test_a_request_is_read_as_it_was_sent() -> None:
    asked = requested_private_train(packet(), CONFIG)
    assert (asked.round, asked.clip_norm, asked.noise_multiplier) == (2, 0.5, 4.0)
    assert asked.mechanism == GaussianMechanism(4.0)
    np.testing.assert_array_equal(asked.geometry.directions[0], direction())
    np.testing.assert_array_equal(asked.geometry.factors[0], [0.3])


def test_a_request_without_a_geometry_is_one_in_the_coordinates_of_the_data() -> None:
    asked = requested_private_train(packet(**Geometry().arrays(D)), CONFIG)
    assert asked.geometry == Geometry()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"model": np.zeros((D, OUTPUTS))}, r"model must be float32 of the shape \(12, 10\)"),
        ({"model": np.full((D, OUTPUTS), np.nan, np.float32)}, "model has values that are not finite"),
        ({"round": -1}, "round = -1"),
        ({"clip_norm": None}, "clip_norm = None must be a number above 0 and up to 1e"),
        ({"clip_norm": 0.0}, r"clip_norm = 0.0 must be a number above 0"),
        ({"clip_norm": math.inf}, "clip_norm = inf must be"),
        ({"noise_multiplier": math.nan}, "noise_multiplier = nan must be"),
        ({"noise_multiplier": "4"}, "noise_multiplier = '4' must be"),
        ({"noise_multiplier": True}, "noise_multiplier = True must be"),
        ({"noise_multiplier": -4.0}, "noise_multiplier = -4.0 must be"),
        ({"directions": None}, "directions must be float32 with 12 rows and a column for each of the factors"),
        ({"directions": np.zeros((D, 1))}, "directions must be float32"),
        ({"directions": np.zeros((D - 1, 1), np.float32)}, "directions must be float32 with 12 rows"),
        ({"factors": np.ones(2)}, "directions must be float32 with 12 rows and a column for each"),
        (
            {"directions": np.eye(D, 2, dtype=np.float32), "factors": np.array([0.3, 0.3])},
            "directions must be float32 with 12 rows and a column for each of the factors, at most one",
        ),
        ({"directions": np.zeros((D, 10**7), np.float32), "factors": np.zeros(10**7)}, "at most one and float64"),
        ({"directions": 2 * np.eye(D, 1, dtype=np.float32)}, "directions must be orthonormal"),
        ({"directions": np.full((D, 1), np.nan, np.float32)}, "directions must be orthonormal"),
        ({"factors": np.array([1.5])}, r"factors = \[1.5\] must lie between 0 and 1"),
        ({"factors": np.array([-0.1])}, r"factors = \[-0.1\] must lie between 0 and 1"),
        ({"factors": np.array([np.nan])}, "factors = .*nan.* must lie between 0 and 1"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        requested_private_train(packet(**changes), CONFIG)


@pytest.mark.parametrize(
    ("largest", "clip_norm", "noise_multiplier"), [(3e38, 1e-279, 1e9), (3e38, 1e-3, 1.0), (1.0, 1e-300, 1e-9)]
)
def test_what_float64_cannot_compute_is_refused(largest: float, clip_norm: float, noise_multiplier: float) -> None:
    asked = request(clip_norm, noise_multiplier, model=np.full((D, OUTPUTS), largest, np.float32))
    with np.errstate(all="ignore"), pytest.raises(InputError):
        make_private_update(rows(), asked, CONFIG, seeded(0))
