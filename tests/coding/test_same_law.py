"""The direct encoder, the Gram factor and the transcription of the paper draw from one law.

Sizes are such that each comparison also tells the law from the one with 1.5 times the noise variance.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from _pytest.mark import ParameterSet

from codedfl.coding import compute_gram, encode, encode_all, sample_coded
from codedfl.streams import Streams
from codedfl.typing import FloatArray
from tests.coding.law import (
    SIGMAS,
    assert_rows_follow,
    covariance,
    energy_differs,
    joined,
    projections_differ,
    random_rows,
    worst_deviation,
)
from tests.reference.coded_data import device_upload, global_coded_data

NOISE = 4.0
ROWS = random_rows(12, 4, 2, seed=30, weighted=True, scale=0.15)
DEVICES = [random_rows(samples, 4, 2, seed=samples, scale=0.15) for samples in (2, 5, 9)]
DEVICE_NOISE = [0.5, 1.0, 2.5]  # sums to NOISE

Draw = Callable[[int, float], FloatArray]
"""Draw ``c`` rows of [X~ Y~] with the noise variance multiplied by a factor."""


@cache
def one_direct(c: int, factor: float) -> FloatArray:
    return joined(encode(ROWS, c, noise_variance=factor * NOISE, rng=np.random.default_rng(31)))


@cache
def one_gram(c: int, factor: float) -> FloatArray:
    return joined(sample_coded(compute_gram([ROWS]), c, noise_variance=factor * NOISE, rng=np.random.default_rng(32)))


@cache
def one_reference(c: int, factor: float) -> FloatArray:
    X, Y, w = (np.asarray(part, dtype=np.float64) for part in (ROWS.features, ROWS.labels, ROWS.weights))
    rng = np.random.default_rng(33)
    return np.hstack(device_upload(X, Y, c, rng, noise_variance=factor * NOISE, weights=w))


@cache
def all_direct(c: int, factor: float) -> FloatArray:
    noise = factor * np.array(DEVICE_NOISE)
    streams = Streams(34)
    return joined(
        encode_all(
            DEVICES, c, noise_variance=noise, label_noise_variance=np.zeros(3), streams=streams, encoder="direct"
        )
    )


@cache
def all_gram(c: int, factor: float) -> FloatArray:
    noise = factor * np.array(DEVICE_NOISE)
    streams = Streams(35)
    return joined(
        encode_all(DEVICES, c, noise_variance=noise, label_noise_variance=np.zeros(3), streams=streams, encoder="gram")
    )


@cache
def all_reference(c: int, factor: float) -> FloatArray:
    devices = [(np.asarray(r.features, dtype=np.float64), np.asarray(r.labels, dtype=np.float64)) for r in DEVICES]
    noise = [factor * v for v in DEVICE_NOISE]
    return np.hstack(global_coded_data(devices, c, noise, np.random.default_rng(36)))


ONE, ALL = covariance([ROWS], NOISE), covariance(DEVICES, NOISE)
PAIRS = [
    pytest.param(one_direct, one_gram, ONE, id="device: direct, gram"),
    pytest.param(one_direct, one_reference, ONE, id="device: direct, paper"),
    pytest.param(one_gram, one_reference, ONE, id="device: gram, paper"),
    pytest.param(all_direct, all_gram, ALL, id="sum: direct, gram"),
    pytest.param(all_direct, all_reference, ALL, id="sum: direct, paper"),
    pytest.param(all_gram, all_reference, ALL, id="sum: gram, paper"),
]


def slow(pair: ParameterSet) -> ParameterSet:
    return pytest.param(*pair.values, id=pair.id, marks=pytest.mark.slow)


@pytest.mark.parametrize(("draw", "S"), [(one_reference, ONE), (all_reference, ALL)])
def test_the_transcription_has_the_stated_moments(draw: Draw, S: FloatArray) -> None:
    assert_rows_follow(draw(10_000, 1.0), S)


@pytest.mark.parametrize(("first", "second", "S"), PAIRS)
def test_second_moments_agree(first: Draw, second: Draw, S: FloatArray) -> None:
    assert worst_deviation(first(10_000, 1.0), second(10_000, 1.0), S) <= SIGMAS
    assert worst_deviation(first(10_000, 1.0), second(10_000, 1.5), S) > SIGMAS


@pytest.mark.parametrize(("first", "second", "S"), PAIRS)
def test_projections_agree(first: Draw, second: Draw, S: FloatArray) -> None:
    # each projection is scaled to the same length in the law's own geometry
    whiten = np.linalg.inv(np.linalg.cholesky(S)).T
    assert not projections_differ(first(10_000, 1.0) @ whiten, second(10_000, 1.0) @ whiten)
    assert projections_differ(first(10_000, 1.0) @ whiten, second(10_000, 1.5) @ whiten)


@pytest.mark.parametrize(("first", "second", "S"), [PAIRS[4], *(slow(pair) for pair in PAIRS[:4] + PAIRS[5:])])
def test_energy_distance_is_that_of_equal_laws(first: Draw, second: Draw, S: FloatArray) -> None:
    assert S.shape == (6, 6)
    assert not energy_differs(first(1000, 1.0), second(1000, 1.0))
    assert energy_differs(first(1000, 1.0), second(1000, 1.5))
