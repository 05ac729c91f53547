"""Block products of triangles against plain ones."""

from __future__ import annotations

import numpy as np
import pytest

from codedfl.coding._triangles import BLOCK, multiply_upper, square_upper


@pytest.mark.parametrize("size", [0, 1, 7, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 3])
def test_equals_the_plain_product(size: int) -> None:
    # The error of a sum of n products is at most n eps times the sum of magnitudes, in either order.
    rng = np.random.default_rng(size)
    left, right = (np.triu(rng.standard_normal((size, size))) for _ in range(2))
    for found, first, second in (
        (multiply_upper(left, right), left, right),
        (square_upper(left), left.T, left),
    ):
        bound = 2 * size * np.finfo(float).eps * (np.abs(first) @ np.abs(second))
        assert (np.abs(found - first @ second) <= bound).all()


@pytest.mark.parametrize("size", [5, BLOCK + 5])
def test_nothing_below_the_diagonal(size: int) -> None:
    left = np.triu(np.random.default_rng(1).standard_normal((size, size)))
    product = multiply_upper(left, left)
    assert (product == np.triu(product)).all()


def test_any_layout() -> None:
    left = np.triu(np.random.default_rng(2).standard_normal((BLOCK + 9, BLOCK + 9)))
    assert np.allclose(multiply_upper(np.asfortranarray(left), left), left @ left, rtol=0, atol=1e-9)
