"""The budgets of a sketch are those of the Gaussian mechanisms that it consists of."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl.coding import Rows, public_test_matrix, sketch_rows
from codedfl.experiment import notes_on, privacy_of, run, summarise
from codedfl.experiment._privacy_summary import sketch_sensitivity
from codedfl.privacy import gaussian_epsilon
from codedfl.streams import Streams
from codedfl.typing import FloatArray
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
        assert found["mi_dp"] == "unbounded: sketch without noise"
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


D, OUTPUTS = 4, 2
OMEGA = public_test_matrix(D, 3, Streams(0))
entries = st.floats(-1, 1, width=32)


def sent(X: FloatArray, Y: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
    """Return what a sketch tells about features and about labels; a row of zeros keeps it from being empty."""
    rows = Rows(np.vstack([X, np.zeros((1, D))]), np.vstack([Y, np.zeros((1, OUTPUTS))])).clipped(bound)
    products, label_products, energy = sketch_rows(rows, OMEGA, len(rows), rng=np.random.default_rng(0))
    return np.append(products, energy), label_products


@given(
    X=arrays(np.float64, (4, D), elements=entries),
    Y=arrays(np.float64, (4, OUTPUTS), elements=entries),
    x=arrays(np.float64, (1, D), elements=entries),
    y=arrays(np.float64, (1, OUTPUTS), elements=entries),
    bound=st.floats(0.1, 3),
)
@settings(deadline=None, max_examples=80)
def test_no_sample_changes_a_sketch_by_more_than_its_sensitivity(
    X: FloatArray, Y: FloatArray, x: FloatArray, y: FloatArray, bound: float
) -> None:
    """Removed from all rows, and replaced in some rows."""
    label_norm = float(np.linalg.norm(np.vstack([Y, y]), axis=1).max())
    whole = sent(X, Y, bound)
    for other, some in (
        (sent(X[1:], Y[1:], bound), False),
        (sent(np.vstack([X[1:], x]), np.vstack([Y[1:], y]), bound), True),
    ):
        allowed = sketch_sensitivity(bound, label_norm, some_rows=some)
        for before, after, most in zip(whole, other, allowed, strict=True):
            assert np.linalg.norm(before - after) <= most * (1 + 1e-9) + 1e-12


def test_sensitivities_are_attained() -> None:
    """By a sample in the span of the test matrix, and by another label for the same sample."""
    x, y = OMEGA[:, :1].T, np.array([[1.0, 0.0]])
    for other, some in ((sent(x[:0], y[:0], 1.0), False), (sent(x, -y, 1.0), True)):
        features, labels = (float(np.linalg.norm(a - b)) for a, b in zip(sent(x, y, 1.0), other, strict=True))
        assert labels == pytest.approx(sketch_sensitivity(1.0, 1.0, some_rows=some)[1])
        assert some or features == pytest.approx(sketch_sensitivity(1.0, 1.0, some_rows=some)[0])
