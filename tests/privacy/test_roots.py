"""Roots of monotone functions against what their inverses say, and at the limits of a range."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.privacy._roots import monotone_root


@given(root=st.floats(-300, 300), guess=st.floats(-1000, 1000), rising=st.booleans())
def test_it_finds_the_root_from_wherever_it_begins(root: float, guess: float, rising: bool) -> None:
    sign = 1.0 if rising else -1.0
    found = monotone_root(lambda x: sign * math.sinh((x - root) / 100), guess, (-700.0, 700.0), rising=rising)
    assert found == pytest.approx(root, rel=1e-12, abs=1e-9)


@pytest.mark.parametrize("rising", [True, False])
def test_without_a_root_it_says_on_which_side_it_would_be(rising: bool) -> None:
    tried: list[float] = []

    def function(x: float) -> float:
        tried.append(x)
        return (1.0 if rising else -1.0) * (x - 20.0)

    assert monotone_root(function, 3.0, (-10.0, 10.0), rising=rising) == math.inf
    assert max(tried) == 10.0, "the limit itself is tried"
    assert monotone_root(lambda x: -function(-x), 3.0, (-10.0, 10.0), rising=rising) == -math.inf
    assert -10.0 <= min(tried) <= max(tried) <= 10.0
