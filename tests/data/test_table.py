from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.data._table import Table, as_float32
from codedfl.errors import InputError

TABLE = Table(Path("t.csv"), np.array([[1, 2], [3, 4]], dtype=np.float32), ("a", "b"), pd.DataFrame({"y": [0, 1]}))


def test_features_come_in_the_order_asked_for() -> None:
    assert TABLE.with_features(("a", "b")) is TABLE.features
    np.testing.assert_array_equal(TABLE.with_features(("b", "a")), [[2, 1], [4, 3]])


def test_other_features_are_named() -> None:
    with pytest.raises(InputError, match=r"'t\.csv' lack the feature\(s\) c and have the extra feature\(s\) b"):
        TABLE.with_features(("a", "c"))


@settings(deadline=None)
@given(values=st.lists(st.floats() | st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_numbers_become_finite_float32_or_are_refused(values: list[float]) -> None:
    try:
        converted = as_float32("column 'a'", np.array(values))
    except InputError:
        assert max(map(abs, values)) > 3e38 or np.isnan(values).any()
    else:
        assert converted.dtype == np.float32
        assert np.isfinite(converted).all()


def test_missing_and_huge_values_are_counted() -> None:
    with pytest.raises(InputError, match=r"x has 2 missing value\(s\)"):
        as_float32("x", np.array([np.nan, 1, np.nan]))
    with pytest.raises(InputError, match=r"x has 2 value\(s\) that are infinite or beyond 3\.4e\+38"):
        as_float32("x", np.array([1e300, np.inf, 0]))
