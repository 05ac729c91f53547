from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import r2_score

from codedfl.results import difference_over_rows, difference_over_seeds, half_width, row_scores
from codedfl.typing import FloatArray

DRAWS = 1000


def assert_coverage(covered: list[bool], wanted: float = 0.95) -> None:
    """Refuse less than the wanted share by more than three standard errors of the Monte Carlo estimate."""
    error = math.sqrt(wanted * (1 - wanted) / len(covered))
    assert np.mean(covered) > wanted - 3 * error


@pytest.mark.parametrize(
    ("rows", "only_first", "only_second"), [(50, 0.02, 0.0), (100, 0.05, 0.05), (540, 0.02, 0.03), (2000, 0.1, 0.05)]
)
def test_an_interval_over_test_rows_covers_the_difference_of_accuracies(
    rows: int, only_first: float, only_second: float
) -> None:
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(DRAWS):
        drawn = rng.random(rows)
        first = np.where(drawn < only_first, 1.0, (drawn > 0.5).astype(float))
        second = np.where((drawn >= only_first) & (drawn < only_first + only_second), 1.0, (drawn > 0.5).astype(float))
        found = difference_over_rows("classification", first, second)
        covered.append(found.low <= only_first - only_second <= found.high)
    assert_coverage(covered)
    assert found.value == pytest.approx(first.mean() - second.mean())


def test_the_interval_of_accuracies_is_that_of_bonett_and_price() -> None:
    n, b, c = 200, 17, 6
    first, second = np.zeros(n), np.zeros(n)
    first[:b], second[b : b + c] = 1, 1
    found = difference_over_rows("classification", first, second)
    share, other = (b + 1) / (n + 2), (c + 1) / (n + 2)
    half = 1.959964 * math.sqrt((share + other - (share - other) ** 2) / (n + 2))
    # Student's t and the division by n - 1 widen it by less than a percent at this size.
    assert found.low == pytest.approx(share - other - half, abs=0.01 * half)
    assert found.high == pytest.approx(share - other + half, abs=0.01 * half)


def regression(rng: np.random.Generator, rows: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return targets, and predictions of a better and of a worse model."""
    signal = rng.standard_normal((rows, 2))
    labels = signal + rng.standard_normal((rows, 2))
    return labels, 0.9 * signal, 0.5 * signal + 0.2 * rng.standard_normal((rows, 2))


def test_an_interval_over_test_rows_covers_the_difference_of_r2() -> None:
    # Per output, the variance of the targets is 2, and the squared errors are 1 + 0.01 and 1 + 0.25 + 0.04.
    truth, rng = (1.29 - 1.01) / 2, np.random.default_rng(2)
    covered = []
    for _ in range(DRAWS):
        labels, better, worse = regression(rng, 300)
        first, second = (row_scores("regression", labels, each) for each in (better, worse))
        found = difference_over_rows("regression", first, second)
        covered.append(found.low <= truth <= found.high)
    assert_coverage(covered)
    assert found.value == pytest.approx(r2_score(labels, better) - r2_score(labels, worse))


def test_the_parts_of_a_score_have_its_spread() -> None:
    rng = np.random.default_rng(3)
    scores, errors = [], []
    for _ in range(DRAWS):
        labels, better, _ = regression(rng, 200)
        parts = row_scores("regression", labels, better)
        scores.append(parts.mean())
        errors.append(parts.std(ddof=1) / math.sqrt(200))
    assert scores[-1] == pytest.approx(r2_score(labels, better))
    spread = float(np.std(scores, ddof=1))
    # The relative standard error of a standard deviation is 1 / sqrt(2 (n - 1)).
    assert np.mean(errors) == pytest.approx(spread, rel=3 / math.sqrt(2 * (DRAWS - 1)) + 0.02)


def test_a_constant_target_counts_as_scikit_learn_counts_it() -> None:
    labels = np.array([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]])
    for wrong in (0.0, 0.5):
        predictions = labels + np.array([wrong, 0.25])
        parts = row_scores("regression", labels, predictions)
        assert parts.mean() == pytest.approx(r2_score(labels, predictions))


@pytest.mark.parametrize("seeds", [2, 3, 10])
def test_an_interval_over_seeds_covers_the_mean_difference(seeds: int) -> None:
    rng = np.random.default_rng(4)
    covered = []
    for _ in range(DRAWS):
        shared = rng.standard_normal(seeds)
        first, second = shared + 0.3 + 0.1 * rng.standard_normal(seeds), shared + 0.1 * rng.standard_normal(seeds)
        found = difference_over_seeds(first, second)
        covered.append(found.low <= 0.3 <= found.high)
    assert_coverage(covered)


def test_results_in_steps_do_not_pass_for_certain() -> None:
    """Two seeds of a coarse score agree by chance, which would leave an interval without width."""
    rng = np.random.default_rng(5)
    wrong = 0
    for _ in range(DRAWS):
        first, second = (rng.binomial(100, 0.9, size=2) / 100 for _ in range(2))
        wrong += difference_over_seeds(first, second, resolution=0.01).more_than_noise
    assert wrong / DRAWS <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / DRAWS)


def test_more_comparisons_make_wider_intervals_that_hold_together() -> None:
    rng = np.random.default_rng(6)
    together = []
    for _ in range(DRAWS):
        base = rng.standard_normal(6)
        found = [difference_over_seeds(rng.standard_normal(6), base, comparisons=5) for _ in range(5)]
        together.append(all(each.low <= 0 <= each.high for each in found))
    assert_coverage(together)
    values = np.array([1.0, 2.0, 4.0])
    assert half_width(values, 5) > half_width(values) > 0
    assert half_width(values[:1]) == math.inf
