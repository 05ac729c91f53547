"""No sample changes a sketch by more than its sensitivity, and some change it by as much."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl.coding import Rows, public_test_matrix, sketch_rows
from codedfl.privacy import sketch_sensitivity
from codedfl.streams import Streams
from codedfl.typing import FloatArray

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
