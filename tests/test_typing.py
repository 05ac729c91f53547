from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from codedfl.config import Config
from codedfl.typing import ENTRIES_PER_BLOCK, ShortRepr, row_blocks


@given(rows=st.integers(0, 5000), columns=st.integers(0, 2 * ENTRIES_PER_BLOCK))
def test_blocks_cover_the_rows_in_order_and_stay_small(rows: int, columns: int) -> None:
    blocks = list(row_blocks(rows, columns))
    assert [row for block in blocks for row in range(rows)[block]] == list(range(rows))
    assert all(
        (block.stop - block.start) * columns <= ENTRIES_PER_BLOCK or block.stop - block.start == 1 for block in blocks
    )


@dataclass(frozen=True, repr=False)
class Holder(ShortRepr):
    value: object
    hidden: int = field(default=3, repr=False)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (3, "3"),
        ("a" * 10, repr("a" * 10)),
        (np.zeros((3, 4)), "float64 (3, 4)"),
        (Holder(np.zeros(3)), "Holder(...)"),
        (Config(seed=3), "Config(...)"),
        (("a", "b"), "('a', 'b')"),
        ({"a": 1.5}, "{'a': 1.5}"),
        ([np.zeros(3)] * 4, "<4 in a list>"),
        ({"a": np.zeros(3)}, "<1 in a dict>"),
        (tuple(range(10_000)), "<10000 in a tuple>"),
        (("word " * 30,), "<1 in a tuple>"),
    ],
)
def test_values_are_shown_if_they_are_short(value: object, shown: str) -> None:
    assert repr(Holder(value)) == f"Holder(value={shown})"


def test_long_text_is_cut() -> None:
    assert len(repr(Holder("x" * 100_000))) < 100
