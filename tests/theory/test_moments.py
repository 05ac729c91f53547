"""The moments of Lemma 1, against draws of the matrices themselves.

A mean over draws may be off by at most 4.5 standard errors: a correct formula fails one of the nine checks with probability
below 1e-4.
"""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.theory import cross_moment, noise_moment, projection_moment, sampling_moment
from codedfl.typing import FloatArray
from tests.reference.theory_variance import subsets
from tests.theory.rounds import squared_norms, standard_error

SIGMAS = 4.5
DRAWS = 20_000


def draw_noise(rng: np.random.Generator, c: int, d: int, variances: FloatArray) -> FloatArray:
    """``N = sum_i N_i``, device by device, (draws, c, d)."""
    total = np.zeros((DRAWS, c, d))
    for variance in variances:
        total += rng.normal(0.0, np.sqrt(variance), total.shape)
    return total


def assert_mean(values: FloatArray, expected: float) -> None:
    error = standard_error(values)
    assert abs(values.mean() - expected) < SIGMAS * error
    assert error < 0.02 * expected, "the check must see an error of a tenth"


@pytest.mark.parametrize(("m", "c"), [(1, 8), (4, 6), (7, 3)])
def test_projection_moment(m: int, c: int) -> None:
    G = np.random.default_rng(m).standard_normal((DRAWS, c, m))
    assert_mean(squared_norms(G.transpose(0, 2, 1) @ G / c - np.eye(m)), projection_moment(m, c))


@pytest.mark.parametrize("variances", [[0.7], [0.3, 0.5, 1.2], [1.0] * 8], ids=["one", "three", "eight"])
def test_noise_moment(variances: list[float]) -> None:
    c, d, noise = 6, 3, np.array(variances)
    N = draw_noise(np.random.default_rng(1), c, d, noise)
    squares = squared_norms(N.transpose(0, 2, 1) @ N / c - noise.sum() * np.eye(d))
    assert_mean(squares, noise_moment(d, c, noise))
    off = (squares.mean() - noise_moment(d, c, noise, "printed")) / standard_error(squares)
    if len(variances) == 1:
        assert abs(off) < SIGMAS, "for one device the paper is right"
    else:
        assert off > 20, "the printed moment must be seen to be too small"


def test_the_printed_noise_moment_is_too_small_by_the_number_of_equal_devices() -> None:
    noise = np.full(10, 0.4)
    assert noise_moment(5, 8, noise) == pytest.approx(10 * noise_moment(5, 8, noise, "printed"))


@pytest.mark.parametrize(("d", "m", "c"), [(2, 3, 5), (4, 1, 2)])
def test_cross_moment(d: int, m: int, c: int) -> None:
    rng, noise = np.random.default_rng(2), np.array([0.3, 0.9])
    G, N = rng.standard_normal((DRAWS, c, m)), draw_noise(rng, c, d, noise)
    assert_mean(squared_norms(G.transpose(0, 2, 1) @ N), cross_moment(d, m, c, 1.2))


@pytest.mark.parametrize("rows", [1, 2, 3, 6])
def test_sampling_moment_is_that_of_all_batches_listed(rows: int) -> None:
    for batch in range(1, rows + 1):
        moment = 0.0
        for probability, chosen in subsets(rows, batch / rows):
            scaled = np.zeros(rows)
            scaled[chosen] = rows / batch
            moment += probability * float(np.sum((scaled - 1.0) ** 2))
        assert sampling_moment(rows, batch) == pytest.approx(moment, abs=1e-12)


def test_sampling_moment_by_draws() -> None:
    rng = np.random.default_rng(3)
    scaled = 9 / 2 * (rng.random((DRAWS, 9)) < 2 / 9)
    assert_mean(np.sum((scaled - 1.0) ** 2, axis=1), sampling_moment(9, 2))
