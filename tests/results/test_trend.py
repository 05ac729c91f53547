from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from codedfl.results import trend_of
from codedfl.training import Evaluation
from codedfl.typing import FloatArray


def curve(scores: Sequence[float] | FloatArray) -> list[Evaluation]:
    return [
        Evaluation(k, 2.0 * k, 2.0 * k + 5, 0.1, 0.1, float(score), float(score), 0.1, 0.1, 3.0, 100.0)
        for k, score in enumerate(scores)
    ]


RISE = 0.95 - 0.85 * np.exp(-np.arange(101) / 8)


def test_a_curve_that_peaks_and_falls() -> None:
    fall = RISE - np.maximum(0, np.arange(101) - 40) * 0.001
    found = trend_of(curve(fall))
    assert found is not None
    assert found.fell
    assert not found.rising
    assert 60 < found.peak_s < 100
    assert found.peak == pytest.approx(0.945, abs=0.005)
    assert found.end == pytest.approx(fall[-10:].mean())


def test_a_curve_that_has_settled_and_one_that_has_not() -> None:
    settled = trend_of(curve(RISE))
    assert settled is not None
    assert (settled.fell, settled.rising) == (False, False)
    slow = trend_of(curve(0.95 - 0.85 * np.exp(-np.arange(101) / 60)))
    assert slow is not None
    assert (slow.fell, slow.rising) == (False, True)


@pytest.mark.parametrize("evaluations", [20, 100])
def test_jitter_is_neither_a_fall_nor_a_rise(evaluations: int) -> None:
    rng = np.random.default_rng(0)
    found = [trend_of(curve(0.9 + 0.02 * rng.standard_normal(evaluations))) for _ in range(300)]
    assert np.mean([each is not None and (each.fell or each.rising) for each in found]) <= 0.05


def test_a_fall_below_a_point_is_not_worth_a_word() -> None:
    found = trend_of(curve(RISE - np.maximum(0, np.arange(101) - 40) * 0.0001))
    assert found is not None
    assert not found.fell


def test_a_change_by_a_few_test_rows_is_noise() -> None:
    fall = RISE - np.maximum(0, np.arange(101) - 40) * 0.001  # by about five points
    slow = 0.95 - 0.85 * np.exp(-np.arange(101) / 60)  # by about seven in the last quarter
    for scores, what in ((fall, "fell"), (slow, "rising")):
        assert getattr(trend_of(curve(scores), 1000), what)
        assert not getattr(trend_of(curve(scores), 60), what)


def test_short_and_empty_curves_say_nothing() -> None:
    assert trend_of(curve(RISE[:19])) is None
    assert trend_of(curve([math.nan] * 50)) is None
    assert trend_of([]) is None
