"""The budgets of a sketch are those of the Gaussian mechanisms that it consists of."""

from __future__ import annotations

import math
from typing import Any

import pytest

from codedfl.experiment import notes_on, privacy_of, run, summarise
from codedfl.privacy import gaussian_epsilon
from tests.support import small_config

BUDGETS = ("epsilon_features", "epsilon", "epsilon_in_sum")


def privacy(noise: bool = True, sketch_rows: int = 20, **changes: Any) -> dict[str, Any]:
    options = {"noise": noise, "rank": 8, "sketch_rows": sketch_rows}
    given = {"coding__clip_norm": 0.5, "coding__noise_variance": 2.0, "coding__label_noise_variance": 3.0, **changes}
    return privacy_of(run(small_config(schemes=["ccfl"], options__ccfl=options, **given))["ccfl"], 1e-5)


def test_a_sketch_with_noise_is_a_gaussian_mechanism() -> None:
    """``mu^2 = 2 B^4 / sigma^2 + 4 B^2 / sigma_Y^2`` for some rows with one-hot labels."""
    found = privacy()
    features, labels = 2 * 0.5**4 / 2.0, 4 * 0.5**2 / 3.0
    assert found["epsilon_features"] == pytest.approx(gaussian_epsilon(math.sqrt(features), 1e-5))
    assert found["epsilon"] == pytest.approx(gaussian_epsilon(math.sqrt(features + labels), 1e-5))
    assert found["epsilon_in_sum"] == found["epsilon"], "the server keeps devices apart"
    assert 0 < found["epsilon_features"] < found["epsilon"]
    assert found["mi_dp_bits"] is None


def test_a_sketch_of_all_rows_never_swaps_one_for_another() -> None:
    expected = gaussian_epsilon(math.sqrt(2 * 0.5**4 / 2.0 + 0.5**2 / 3.0), 1e-5)
    assert privacy(sketch_rows=10**6)["epsilon"] == pytest.approx(expected)


def test_the_least_noisy_device_decides() -> None:
    uneven = privacy(coding__noise_variance=[4.0, 4.0, 2.0, 4.0, 4.0, 4.0])
    assert uneven == privacy()
    silent = privacy(coding__noise_variance=[4.0, 4.0, 0.0, 4.0, 4.0, 4.0])
    assert [silent[name] for name in BUDGETS] == [math.inf] * 3


def test_what_leaves_no_guarantee() -> None:
    for found in (privacy(noise=False), privacy(coding__noise_variance=0.0)):
        assert found["mi_dp"] == "no bound: sketch without noise"
        assert [found[name] for name in ("mi_dp_bits", *BUDGETS)] == [math.inf] * 4
    unclipped = privacy(coding__clip_norm=0.0)
    assert [unclipped[name] for name in BUDGETS] == [math.inf] * 3
    labels = privacy(coding__label_noise_variance=0.0)
    assert labels["epsilon_features"] == privacy()["epsilon_features"]
    assert labels["epsilon"] == labels["epsilon_in_sum"] == math.inf


def test_the_guarantee_reaches_notes_and_summary() -> None:
    comparison = run(
        small_config(
            schemes=["ccfl"],
            options__ccfl={"noise": True, "rank": 8},
            coding__clip_norm=0.5,
            coding__noise_variance=2.0,
            coding__label_noise_variance=3.0,
        )
    )
    (scheme,) = summarise(comparison)["schemes"]
    expected = privacy_of(comparison["ccfl"], comparison.config.privacy.delta)
    assert {name: scheme[name] for name in BUDGETS} == {name: expected[name] for name in BUDGETS}
    assert any("worst-case epsilon" in note and "CCFL" in note for note in notes_on(comparison))
