from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from codedfl.typing import ENTRIES_PER_BLOCK, row_blocks


@given(rows=st.integers(0, 5000), columns=st.integers(0, 2 * ENTRIES_PER_BLOCK))
def test_blocks_cover_the_rows_in_order_and_stay_small(rows: int, columns: int) -> None:
    blocks = list(row_blocks(rows, columns))
    assert [row for block in blocks for row in range(rows)[block]] == list(range(rows))
    assert all(
        (block.stop - block.start) * columns <= ENTRIES_PER_BLOCK or block.stop - block.start == 1 for block in blocks
    )
