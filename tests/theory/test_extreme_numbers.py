"""Extreme but finite numbers give finite answers or one sentence: no traceback, warning or NaN."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.theory import device_bound, gap_bound, limit_error, measure_constants, round_variance, server_bound
from codedfl.theory._monte_carlo import example_round

sizes = st.floats(-300, 300).map(lambda exponent: 10.0**exponent) | st.floats(1e-3, 1e3)


@pytest.mark.slow
@given(
    noise=sizes,
    label_noise=sizes,
    radius=sizes,
    step=sizes,
    distance=sizes,
    coded_samples=st.integers(1, 10**9),
    probability=st.floats(1e-9, 1),
)
def test_a_finite_answer_or_one_sentence(
    noise: float,
    label_noise: float,
    radius: float,
    step: float,
    distance: float,
    coded_samples: int,
    probability: float,
) -> None:
    values: list[float] = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            round = example_round(
                noise_variance=np.full(3, noise),
                label_noise_variance=np.full(3, label_noise),
                coded_samples=coded_samples,
                server_batch=min(5, coded_samples),
                arrival_probability=np.full(3, probability),
            )
            values += round_variance(round, np.ones((3, 2))).terms().values()
            values.append(limit_error(round, step).total())
            constants = measure_constants(round.parts, radius)
            for reading in ("printed", "corrected"):
                values += [
                    *device_bound(round, constants, reading).values(),
                    *server_bound(round, constants, reading).values(),
                ]
                values += gap_bound(round, constants, np.full(3, step), distance, reading).total.tolist()
        except InputError as error:
            values.append(float(str(error).count("\n")))
    assert all(math.isfinite(value) for value in values)
