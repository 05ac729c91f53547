from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl.models import probabilities
from codedfl.typing import FloatArray


@given(arrays(np.float32, (5, 4), elements=st.floats(-1e6, 1e6, width=32)))
def test_probabilities_are_a_distribution_that_keeps_the_order_of_the_classes(outputs: FloatArray) -> None:
    found = probabilities(outputs)
    assert (found >= 0).all()
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=0, atol=1e-12)
    for row, own in zip(outputs, found, strict=True):
        assert (np.diff(own[np.argsort(row)]) >= 0).all()


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_least_squares_outputs_near_equal_chances_are_probabilities_already(classes: int) -> None:
    # The second-order term of softmax(k z) around equal chances is at most k / 2 times the sum of squares, here below k^2 h^2.
    shift = np.linspace(-1, 1, classes) * 1e-4
    outputs = (1 / classes + shift)[None]
    np.testing.assert_allclose(probabilities(outputs), outputs, rtol=0, atol=classes**2 * 1e-8)


def test_probabilities_of_logits_are_their_softmax() -> None:
    logits = np.array([[0.0, np.log(3)], [1000.0, 0.0]], np.float32)
    np.testing.assert_allclose(probabilities(logits, logits=True), [[0.25, 0.75], [1.0, 0.0]], rtol=1e-7)
