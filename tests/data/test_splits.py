from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.data._splits import split_rows
from codedfl.errors import InputError


@settings(deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=2, max_size=60),
    fraction=st.floats(0.001, 0.999),
    stratify=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_a_split_covers_all_rows_once(labels: list[int], fraction: float, stratify: bool, seed: int) -> None:
    classes = np.array(labels) if stratify else None
    train, test = split_rows(len(labels), fraction, classes, np.random.default_rng(seed))
    assert len(train) >= 1
    assert len(test) == min(max(round(fraction * len(labels)), 1), len(labels) - 1)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert (np.diff(train) > 0).all()


def test_a_stratified_split_keeps_the_mix_of_classes() -> None:
    labels = np.repeat([0, 1, 2], [100, 50, 10])
    _, test = split_rows(len(labels), 0.2, labels, np.random.default_rng(0))
    assert np.bincount(labels[test]).tolist() == [20, 10, 2]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_a_fraction_out_of_range_is_refused(fraction: float) -> None:
    with pytest.raises(InputError, match=r"data\.test_fraction = .* must be more than 0 and less than 1"):
        split_rows(10, fraction, None, np.random.default_rng(0))


def test_a_single_row_cannot_be_split() -> None:
    with pytest.raises(InputError, match=r"data\.dataset has 1 row.*data\.test_file"):
        split_rows(1, 0.5, None, np.random.default_rng(0))
