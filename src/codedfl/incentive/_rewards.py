"""The least rewards at which devices take the item meant for them (Theorem 3)."""

from __future__ import annotations

import numpy as np

from codedfl.errors import InputError
from codedfl.typing import FloatArray


def optimal_rewards(sensitivity: FloatArray, epsilon: FloatArray) -> FloatArray:
    """Return the optimal rewards of Theorem 3.

    ``r_N = mu_N eps_N`` and ``r_i = r_{i+1} + mu_i (eps_i - eps_{i+1})``. The most sensitive device is left with nothing, and
    every other one is indifferent between its item and the next.

    Args:
        sensitivity: ``mu_i``, ascending.
        epsilon: ``eps_i``, non-increasing.

    Returns:
        ``r_i``, non-increasing.

    Example:
        >>> optimal_rewards(np.array([1.0, 2.0]), np.array([5.0, 3.0])).tolist()
        [8.0, 6.0]
    """
    if (np.diff(sensitivity) < 0).any() or (np.diff(epsilon) > 0).any():
        raise InputError("epsilon must not increase with the sensitivity: sort the devices by sensitivity first.")
    steps = sensitivity * (epsilon - np.append(epsilon[1:], 0.0))
    return np.asarray(np.cumsum(steps[::-1])[::-1])


def marginal_rewards(sensitivity: FloatArray) -> FloatArray:
    """Return what one more bit of each device's budget adds to the total reward, ``w_i = i mu_i - (i - 1) mu_{i-1}``.

    Its own ``mu_i``, and the difference ``mu_i - mu_{i-1}`` to each of the ``i - 1`` less sensitive devices.

    Example:
        >>> marginal_rewards(np.array([1.0, 2.0, 2.0])).tolist()
        [1.0, 3.0, 2.0]
    """
    before = np.append(sensitivity[:1], sensitivity[:-1])
    return sensitivity + np.arange(sensitivity.size) * (sensitivity - before)
