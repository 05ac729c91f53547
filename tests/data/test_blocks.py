from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from codedfl.data._blocks import ENTRIES_PER_BLOCK, require_finite_matrix, row_blocks
from codedfl.errors import InputError


@settings(deadline=None)
@given(rows=st.integers(0, 5000), columns=st.integers(0, 2 * ENTRIES_PER_BLOCK))
def test_blocks_cover_the_rows_in_order_and_stay_small(rows: int, columns: int) -> None:
    blocks = list(row_blocks(rows, columns))
    assert [row for block in blocks for row in range(rows)[block]] == list(range(rows))
    assert all(
        (block.stop - block.start) * columns <= ENTRIES_PER_BLOCK or block.stop - block.start == 1 for block in blocks
    )


def test_a_nan_is_refused_with_its_place_in_the_whole_matrix() -> None:
    values = np.zeros((ENTRIES_PER_BLOCK // 64 + 10, 64), dtype=np.float32)
    require_finite_matrix("features", values)
    values[-1, 3] = np.nan
    with pytest.raises(InputError, match=rf"features has 1 value.* at index \({len(values) - 1}, 3\)"):
        require_finite_matrix("features", values)
