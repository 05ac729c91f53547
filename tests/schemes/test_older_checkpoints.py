"""Checkpoints of versions that kept the state flat: a federation that was interrupted then still resumes."""

from __future__ import annotations

import numpy as np

from codedfl.schemes import ccfl
from codedfl.training import LearningRate, record_arrays, record_from, train
from tests.problems import make_setting

FLAT = (
    *("round", "model", "average", "averaged", "basis", "values", "blocks", "tails", "damping", "coefficients"),
    *(
        "residuals",
        "rows",
        "windows",
        "arrivals",
        "first_decrement",
        "least_decrement",
        "anchor",
        "anchor_coefficients",
    ),
    *("anchor_residuals", "anchor_rows", "dampings"),
)
"""The fields of the state before it was nested."""


def test_a_flat_state_is_read_into_a_nested_one() -> None:
    scheme = ccfl(2, 3)
    prepared = scheme.prepare(make_setting())
    state = train(prepared, LearningRate(1.0), 5).progress.state
    nested = record_arrays("state", state)
    names = {path: scheme.formerly.get(path.removeprefix("state."), path.removeprefix("state.")) for path in nested}
    flat = {f"state.{names[path]}": array for path, array in nested.items()}
    assert sorted(flat) == sorted(f"state.{name}" for name in FLAT)
    like = scheme.init(prepared, np.zeros(prepared.model_shape))
    for arrays in (flat, nested):
        back = record_arrays("state", record_from("state", arrays, like, scheme.formerly))
        assert sorted(back) == sorted(nested)
        for path, array in nested.items():
            np.testing.assert_array_equal(back[path], array)
