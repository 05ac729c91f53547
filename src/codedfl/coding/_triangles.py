"""Products of upper triangles, block by block, so that nothing is multiplied by the zeros below the diagonal."""

from __future__ import annotations

import numpy as np

from codedfl.typing import FloatArray

BLOCK = 512
"""Columns of a block: large enough for a matrix product near its peak, small enough to skip most of the zeros."""


def multiply_upper(left: FloatArray, right: FloatArray) -> FloatArray:
    """Return ``L R`` of two upper triangles in ``n^3 / 6`` multiplications, where a full product takes ``n^3``.

    Example:
        >>> multiply_upper(np.array([[1.0, 2.0], [0.0, 3.0]]), np.array([[4.0, 5.0], [0.0, 6.0]])).tolist()
        [[4.0, 17.0], [0.0, 18.0]]
    """
    size = len(left)
    product = np.zeros((size, size), np.result_type(left, right))
    for top in range(0, size, BLOCK):
        rows = slice(top, top + BLOCK)
        for start in range(top, size, BLOCK):
            columns, between = slice(start, start + BLOCK), slice(top, start + BLOCK)
            product[rows, columns] = left[rows, between] @ right[between, columns]
    return product


def square_upper(triangle: FloatArray) -> FloatArray:
    """Return the symmetric ``R^T R`` of an upper triangle in ``n^3 / 6`` multiplications.

    Example:
        >>> square_upper(np.array([[1.0, 2.0], [0.0, 3.0]])).tolist()
        [[1.0, 2.0], [2.0, 13.0]]
    """
    size = len(triangle)
    square = np.zeros((size, size), triangle.dtype)
    for start in range(0, size, BLOCK):
        columns, above = slice(start, start + BLOCK), slice(0, start + BLOCK)
        strip = triangle[above, columns].T @ triangle[above, start:]
        square[columns, start:] = strip
        square[start:, columns] = strip.T
    return square
