"""Mechanisms are merged whatever their order; no sample changes a sketch by more than its sensitivity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from codedfl.coding import Rows, public_test_matrix, sketch_rows
from codedfl.errors import InputError
from codedfl.privacy import CodedMechanism, GaussianMechanism, Mechanism, sketch_sensitivity
from codedfl.privacy._mechanisms import merge
from codedfl.streams import Streams
from codedfl.typing import FloatArray


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier = -1.0"),
        ({"noise_multiplier": math.nan}, "noise_multiplier = nan"),
        ({"noise_multiplier": True}, "noise_multiplier = True"),
        ({"count": 0}, "count = 0"),
        ({"count": 2.5}, "count = 2.5"),
        ({"sampling_rate": 0.0}, "sampling_rate = 0.0"),
        ({"sampling_rate": 1.01}, "sampling_rate = 1.01"),
        ({"sampling_rate": math.nan}, "sampling_rate = nan"),
    ],
)
def test_impossible_gaussian_mechanisms_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words} must "):
        GaussianMechanism(**{"noise_multiplier": 1.0, **wrong})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"coded_samples": 0}, "coded_samples = 0 must"),
        ({"signal_to_noise": -0.1}, "signal_to_noise = -0.1 must"),
        ({"coded_samples": 2**41}, "coded_samples = .* must lie"),
    ],
)
def test_impossible_coded_mechanisms_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=f"^{words}"):
        CodedMechanism(**{"coded_samples": 10, "signal_to_noise": 0.5, **wrong})


def test_equal_mechanisms_are_merged_in_any_order() -> None:
    mechanisms: list[Mechanism] = [
        GaussianMechanism(4.0, count=9),
        CodedMechanism(10, 0.5),
        CodedMechanism(10, 0.5),
        GaussianMechanism(2.0, count=3, sampling_rate=0.1),
        GaussianMechanism(3.0, count=16),
        CodedMechanism(7, 0.5),
        GaussianMechanism(2.0, count=4, sampling_rate=0.1),
        CodedMechanism(5, 0.25),
    ]
    merged = merge(mechanisms)
    assert merged.mu == pytest.approx(math.sqrt(9 / 16 + 16 / 9))
    assert merged.sampled == ((2.0, 0.1, 7),)
    assert merged.coded == ((0.25, 5), (0.5, 27))
    assert merge(mechanisms[::-1]) == merged


def test_what_reveals_nothing_is_left_out_and_what_has_no_noise_is_unbounded() -> None:
    nothing: list[Mechanism] = [
        GaussianMechanism(math.inf),
        GaussianMechanism(math.inf, 5, 0.1),
        CodedMechanism(10, 0.0),
    ]
    assert merge(nothing) == merge([])
    unbounded: list[Mechanism] = [GaussianMechanism(0.0), GaussianMechanism(0.0, 1, 0.5), CodedMechanism(10, math.inf)]
    for bare in unbounded:
        assert merge([*nothing, bare]).mu == math.inf


def test_rows_that_cannot_be_counted_are_refused() -> None:
    with pytest.raises(InputError, match=r"^coded uploads of signal_to_noise = 0.5 have "):
        merge([CodedMechanism(2**40, 0.5), CodedMechanism(1, 0.5)])


D, OUTPUTS = 4, 2
OMEGA = public_test_matrix(D, 3, Streams(0))
entries = st.floats(-1, 1, width=32)


def sent(X: FloatArray, Y: FloatArray, bound: float) -> tuple[FloatArray, FloatArray]:
    """Return what a sketch tells about features and about labels; a row of zeros keeps it from being empty."""
    rows = Rows(np.vstack([X, np.zeros((1, D))]), np.vstack([Y, np.zeros((1, OUTPUTS))])).clipped(bound)
    products, label_products, energy = sketch_rows(rows, OMEGA)
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
