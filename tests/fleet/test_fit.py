from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.fleet._fit import largest_fitting


@given(
    limit=st.integers(1, 400),
    start=st.integers(0, 100),
    each=st.integers(1, 30),
    most=st.integers(0, 60),
    guess=st.floats(-5, 100),
)
@settings(deadline=None)
def test_largest_fitting_is_exact_from_any_start(limit: int, start: int, each: int, most: int, guess: float) -> None:
    # tenths are not exact in binary, so limits fall on integers up to rounding
    def fits(count: int) -> bool:
        return start / 10 + each / 10 * count <= limit / 10

    expected = max((b for b in range(1, most + 1) if fits(b)), default=0)
    found = largest_fitting(np.array([guess]), np.array([most]), lambda b: start / 10 + each / 10 * b <= limit / 10)
    assert found.tolist() == [expected]
