from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from codedfl.errors import InputError
from codedfl.privacy import (
    RandomBytes,
    discrete_gaussian,
    gaussian_noise_on_grid,
    grid_step,
    rounded_sensitivity,
    rounding_delta,
)
from codedfl.privacy._discrete import MOST_EXCESS, _below
from codedfl.typing import FloatArray, IntArray

LEVEL = 1e-6
"""Of every goodness-of-fit test: seeds are fixed, so each passes forever or the law is wrong."""


def seeded(seed: int = 0) -> RandomBytes:
    return np.random.default_rng(seed).bytes


def probabilities(scale: int) -> tuple[IntArray, FloatArray]:
    """Return the support up to 12 standard deviations and its probabilities, from their definition."""
    support = np.arange(-12 * scale, 12 * scale + 1)
    weights = np.exp(-(support.astype(np.float64) ** 2) / (2 * scale**2))
    return support, weights / weights.sum()


def fit(draws: IntArray, support: IntArray, law: FloatArray) -> float:
    """Return the p-value of a chi-square test, with cells of fewer than 10 expected draws joined."""
    expected = law * len(draws)
    common = expected >= 10
    counts = np.array([np.count_nonzero(draws == value) for value in support[common]])
    rest, left = len(draws) - counts.sum(), expected[~common].sum()
    return float(stats.chisquare(np.append(counts, rest), np.append(expected[common], left)).pvalue)


@pytest.mark.parametrize("scale", [1, 2, 3, 7, 20])
def test_draws_have_the_law_of_the_discrete_gaussian(scale: int) -> None:
    assert fit(discrete_gaussian(100_000, scale, seeded(scale)), *probabilities(scale)) > LEVEL


def test_another_law_fails_the_test() -> None:
    draws = discrete_gaussian(100_000, 20, seeded())
    assert fit(draws, *probabilities(21)) < LEVEL
    rounded = np.rint(np.random.default_rng(0).normal(0, 1, 100_000)).astype(np.int64)
    assert fit(rounded, *probabilities(1)) < LEVEL, "a rounded normal number is not a discrete Gaussian"


def test_on_a_fine_grid_draws_are_normal() -> None:
    draws = discrete_gaussian(100_000, 2**46 + 12_345, seeded()) / (2**46 + 12_345)
    cells = np.histogram(stats.norm.cdf(draws), 100, (0, 1))[0]
    assert stats.chisquare(cells).pvalue > LEVEL
    # Low bits are uniform: the step is 2^46 times finer than the noise.
    low = discrete_gaussian(100_000, 2**46 + 12_345, seeded(1)) % 64
    assert stats.chisquare(np.bincount(low, minlength=64)).pvalue > LEVEL


@pytest.mark.parametrize("bound", [1, 2, 3, 7, 16, 17, 100])
def test_uniform_integers_are_uniform(bound: int) -> None:
    draws = _below(bound, 50_000, seeded(bound))
    assert draws.min() == 0
    assert draws.max() == bound - 1
    assert bound == 1 or stats.chisquare(np.bincount(draws, minlength=bound)).pvalue > LEVEL


def test_words_beyond_the_last_multiple_are_drawn_again() -> None:
    """A byte has 256 values, 85 for each remainder of 3 and one more, which would make 0 too likely."""
    content = iter([bytes([255, 254, 6]), bytes([255]), bytes([5])])
    assert _below(3, 3, lambda _: next(content)).tolist() == [2, 2, 0]
    assert next(content, None) is None


def test_the_operating_system_is_the_source() -> None:
    first, again = discrete_gaussian(1000, 2**46), discrete_gaussian(1000, 2**46)
    assert np.count_nonzero(first == again) < 3  # each pair is equal with a probability below 2^-46
    asked: list[int] = []

    def counted(size: int) -> bytes:
        asked.append(size)
        return np.random.default_rng(len(asked)).bytes(size)

    gaussian_noise_on_grid(np.zeros(100), 1.0, random_bytes=counted)
    assert sum(asked) > 100 * 46 / 8, "as many bits as the noise has, at least"


def test_no_draws_and_bad_scales() -> None:
    assert discrete_gaussian(0, 5).shape == (0,)
    for scale in (0, -1, 2**56 + 1):
        with pytest.raises(InputError, match="scale"):
            discrete_gaussian(1, scale)
    with pytest.raises(InputError, match="count"):
        discrete_gaussian(-1, 1)


@given(st.floats(1e-200, 1e200))
def test_the_step_is_a_power_of_two_at_most_the_deviation_over_2_46(deviation: float) -> None:
    step = grid_step(deviation)
    assert math.frexp(step)[0] == 0.5
    assert 2**46 <= Fraction(deviation) / Fraction(step) < 2**47


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=20), st.floats(1e-3, 1e3))
def test_what_is_returned_lies_on_the_grid_and_is_the_rounded_exact_sum(values: list[float], deviation: float) -> None:
    step = Fraction(grid_step(deviation))
    noisy = gaussian_noise_on_grid(np.array(values), deviation, random_bytes=seeded())
    scale = math.ceil(deviation / float(step)) + 1
    noise = discrete_gaussian(len(values), scale, seeded())
    for value, drawn, found in zip(values, noise.tolist(), noisy.tolist(), strict=True):
        assert Fraction(found) % step == 0
        exact = (round(Fraction(value) / step) + drawn) * step
        assert found == exact.numerator / exact.denominator  # Python divides integers with one correct rounding


def test_values_are_rounded_before_noise_is_added() -> None:
    """Two values that round to the same multiple of the step are sent with the same law, here with the same draws."""
    step = grid_step(1.0)
    first, second = (
        gaussian_noise_on_grid(np.full(100, 3.0 * step + shift * step), 1.0, random_bytes=seeded())
        for shift in (-0.3, 0.4)
    )
    np.testing.assert_array_equal(first, second)
    floating = np.random.default_rng(0).standard_normal(100)
    assert np.count_nonzero(floating + 3.0 * step - 0.3 * step != floating + 3.0 * step + 0.4 * step) > 0


def test_shapes_and_empty_arrays() -> None:
    assert gaussian_noise_on_grid(np.zeros((3, 4), np.float32), 1.0, 1.0).shape == (3, 4)
    assert gaussian_noise_on_grid(np.zeros((3, 0)), 1.0).shape == (3, 0)


@pytest.mark.parametrize(
    ("deviation", "sensitivity", "error"), [(1.0, math.inf, 0.0), (3.0, 1.0, 0.0), (3.0, 1.0, 0.1)]
)
def test_noise_grows_as_the_sensitivity_does(deviation: float, sensitivity: float, error: float) -> None:
    noisy = gaussian_noise_on_grid(
        np.zeros(100_000), deviation, sensitivity, computation_error=error, random_bytes=seeded()
    )
    wanted = deviation * (1 + 2 * error / sensitivity)
    # Five standard errors of a variance.
    assert abs(noisy.var() / wanted**2 - 1) < 5 * math.sqrt(2 / noisy.size)


def test_a_grid_too_coarse_for_the_sensitivity_is_refused() -> None:
    gaussian_noise_on_grid(np.zeros(100), 2.0**32, 1.0)
    assert rounded_sensitivity(1.0, 100, grid_step(2.0**32)) < 1 + MOST_EXCESS < 1.001
    with pytest.raises(InputError, match=r"standard_deviation = .* lower it"):
        gaussian_noise_on_grid(np.zeros(100), 2.0**34, 1.0)


@pytest.mark.parametrize(
    ("values", "deviation", "options", "named"),
    [
        ([math.nan], 1.0, {}, "values"),
        ([math.inf], 1.0, {}, "values"),
        ([0.0], 0.0, {}, "standard_deviation"),
        ([0.0], 1e-300, {}, "standard_deviation"),
        ([0.0], 1.0, {"sensitivity": 0.0}, "sensitivity"),
        ([0.0], 1.0, {"computation_error": -1.0}, "computation_error"),
        ([0.0], 1.0, {"sensitivity": 1.0, "computation_error": 1e6}, "computation_error"),
        # Noise of more than 53 bits would be rounded before it is added.
        ([0.0], 1.0, {"sensitivity": 1.0, "computation_error": 10.0}, "computation_error"),
        ([0.0], 1.0, {"sensitivity": 1.0, "computation_error": 1.7e308}, "computation_error"),
    ],
)
def test_bad_input_is_refused(values: list[float], deviation: float, options: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        gaussian_noise_on_grid(np.array(values), deviation, **options)


def test_rounding_moves_neighbours_apart_by_no_more_than_is_said() -> None:
    rng, step = np.random.default_rng(0), 0.25
    largest = 0.0
    for _ in range(2000):
        first = rng.standard_normal(4)
        change = rng.standard_normal(4)
        second = first + 0.1 * change / np.linalg.norm(change)
        apart = np.linalg.norm(step * np.rint(first / step) - step * np.rint(second / step))
        largest = max(largest, float(apart))
    assert 0.4 < largest <= rounded_sensitivity(0.1, 4, step)
    # It is reached in the limit: both vectors next to an edge, on different sides.
    edge = np.full(4, step / 2)
    apart = np.linalg.norm(np.rint((edge + 1e-9) / step) - np.rint((edge - 1e-9) / step)) * step
    assert apart == pytest.approx(rounded_sensitivity(4e-9, 4, step), rel=1e-7)


def distance_from_rounded_noise(step: float) -> float:
    """Return the total variation between discrete noise with this step and normal noise that is rounded, both of variance 1."""
    points = step * np.arange(-round(12 / step), round(12 / step) + 1)
    discrete = np.exp(-(points**2) / 2)
    rounded = stats.norm.cdf(points + step / 2) - stats.norm.cdf(points - step / 2)
    return float(np.abs(discrete / discrete.sum() - rounded).sum() / 2)


@pytest.mark.parametrize("step", [0.05, 0.1, 0.25, 0.5])
def test_discrete_noise_is_as_close_to_rounded_noise_as_is_said(step: float) -> None:
    """The last term of the bound, on grids that are coarse enough to compute with."""
    distance = distance_from_rounded_noise(step)
    assert step**2 / 60 < distance <= step**2 / 25


def test_delta_of_rounding_is_that_of_its_three_terms() -> None:
    shift = 1e-3
    exact = 2 * stats.norm.cdf(shift / 2) - 1
    assert exact <= rounding_delta(1, shift, 0.0) / 2 <= exact * (1 + 1e-6)
    grid = 2.0**-46
    assert rounding_delta(100, 0.0, math.log(3)) == pytest.approx(4 * 10 * grid / 2 / math.sqrt(2 * math.pi), rel=1e-12)
    assert rounding_delta(1, 1e9, 1.0) == 1.0
    assert rounding_delta(1, 1e-9, 1e6) == 1.0


def test_a_real_device_is_no_further_off_than_delta_of_rounding_says() -> None:
    """On a coarse grid and with a mean that is off, by direct summation: the real law, against the ideal one rounded."""
    step, mean, computed = 0.25, 0.4, 0.43
    points = step * np.arange(-60, 61)
    discrete = np.exp(-((points - step * round(computed / step)) ** 2) / 2)
    ideal = stats.norm.cdf(points + step / 2 - mean) - stats.norm.cdf(points - step / 2 - mean)
    distance = np.abs(discrete / discrete.sum() - ideal).sum() / 2
    bound = (abs(computed - mean) + step / 2) / math.sqrt(2 * math.pi) + step**2 / 25
    assert distance <= bound
