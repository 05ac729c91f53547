"""The largest count that fits, exactly as floating point sees it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codedfl.typing import BoolArray, FloatArray, IntArray


def largest_fitting(estimate: FloatArray, most: IntArray, fits: Callable[[IntArray], BoolArray]) -> IntArray:
    """Return the largest counts from 0 to ``most`` that fit; 0 always does.

    A quotient such as ``(T - t_D - t_U) / a`` is off by one when rounding falls on the wrong side of an integer, so it
    only starts the search: neighbours are tried until ``fits(count)`` holds and ``fits(count + 1)`` does not. ``fits``
    must be non-increasing in the count, as sums and products of non-negative floats are.

    Example:
        >>> (0.5 - 0.2) / 0.1, 0.2 + 0.1 * 3 <= 0.5
        (2.9999999999999996, True)
        >>> largest_fitting(np.array([3.0 - 1e-15]), np.array([9]), lambda count: 0.2 + 0.1 * count <= 0.5)
        array([3])
    """
    count = np.clip(np.floor(estimate), 0, most).astype(np.int64)
    while (too_many := (count > 0) & ~fits(count)).any():
        count = count - too_many
    while (room := (count < most) & fits(count + 1)).any():
        count = count + room
    return count
