"""The followers' equilibrium of the Stackelberg game: the privacy that devices give up for a total reward (Sec. VI-B)."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from codedfl.typing import FloatArray

SMALLEST_SHARE = 1e-12
"""A device with a smaller share of the total is indifferent to leaving, up to rounding: it stays out."""


def free_intensity(sensitivity: FloatArray) -> float:
    """Return ``E / R`` of the equilibrium without caps: the total privacy budget per unit of reward.

    Device i maximises ``U_i = R bits_i / E - mu_i bits_i`` with ``E = sum_j bits_j``. Its best answer obeys
    ``bits_i = E max(1 - mu_i E / R, 0)``. In order of ``mu``, participants join while ``mu_{n+1} < (sum_{j<=n+1} mu_j) / n``;
    summing over the n participants gives ``E / R = (n - 1) / S`` with ``S = sum_{j<=n} mu_j``.

    Example:
        >>> free_intensity(np.array([3.0, 1.0, 1.0]))
        0.5
    """
    ascending = np.sort(sensitivity)
    total = np.cumsum(ascending)
    count = np.arange(2, len(ascending))
    joins = np.concatenate([[True, True], ascending[2:] * count < total[2:]])
    n = int(np.argmin(joins)) if not joins.all() else len(joins)
    intensity = (n - 1) / total[n - 1]
    members = ascending * intensity < 1 - SMALLEST_SHARE
    return float((np.count_nonzero(members) - 1) / ascending[members].sum())


def free_response(total_reward: float, sensitivity: FloatArray) -> FloatArray:
    """Return each device's equilibrium privacy budget without caps, in closed form.

    ``bits_i = ((n-1)/S) (1 - (n-1) mu_i / S) R`` for the n participants of :func:`free_intensity`, 0 for others. The
    equilibrium is unique, has at least two participants, and scales with ``R``.

    Args:
        total_reward: ``R``, positive.
        sensitivity: ``mu_i``, two or more, positive, in any order.

    Returns:
        ``bits_i`` in the order of ``sensitivity``.

    Example:
        >>> free_response(8.0, np.array([3.0, 1.0, 1.0])).tolist()
        [0.0, 2.0, 2.0]
    """
    intensity = free_intensity(sensitivity)
    return intensity * total_reward * _shares(sensitivity, intensity)


def capped_response(total_reward: float, sensitivity: FloatArray, largest_mi_dp_bits: FloatArray) -> FloatArray:
    """Return each device's equilibrium privacy budget when each can give up at most ``largest_mi_dp_bits``.

    The total budget ``E`` is the unique root of ``sum_i clip(1 - mu_i E / R, 0, cap_i / E) = 1``, whose left side falls
    from N to 0 as ``E`` grows; ``bits_i = clip(E (1 - mu_i E / R), 0, cap_i)``. The root is bracketed, found, and
    then made exact: with ``K`` the sum of the capped budgets and ``M`` the sum of the sensitivities of the n interior
    devices, ``M (E/R)^2 - (n - 1) (E/R) - K/R = 0``.

    Args:
        total_reward: ``R``, positive.
        sensitivity: ``mu_i``, two or more, positive, in any order.
        largest_mi_dp_bits: ``cap_i``, positive; infinite for a device without a cap.

    Returns:
        ``bits_i`` in the order of ``sensitivity``.

    Example:
        >>> capped_response(8.0, np.array([3.0, 1.0, 1.0]), np.array([9.0, 0.5, 0.5])).round(4).tolist()
        [0.633, 0.5, 0.5]
    """
    intensity = free_intensity(sensitivity)
    free = intensity * total_reward * _shares(sensitivity, intensity)
    if (free <= largest_mi_dp_bits).all():
        return free
    caps = largest_mi_dp_bits / total_reward

    def excess(t: float) -> float:
        return float(np.clip(1 - sensitivity * t, 0, caps / t).sum()) - 1

    # caps only ever lower the sum at the intensity without caps, where it is 1
    low = high = intensity
    while excess(low) <= 0:
        low, high = low / 2, low
    if low < high:  # otherwise the cap binds only by rounding
        intensity = float(brentq(excess, low, high, xtol=1e-300, rtol=1e-14))
    capped = (1 - sensitivity * intensity) * intensity >= caps
    inside = (_shares(sensitivity, intensity) > 0) & ~capped
    n, slope, fixed = np.count_nonzero(inside), sensitivity[inside].sum(), caps[capped].sum()
    intensity = fixed if n == 0 else ((n - 1) + np.sqrt((n - 1) ** 2 + 4 * slope * fixed)) / (2 * slope)
    bits = intensity * total_reward * _shares(sensitivity, intensity)
    return np.minimum(np.where(capped, largest_mi_dp_bits, bits), largest_mi_dp_bits)


def reward_at_intensity(intensity: float, sensitivity: FloatArray, largest_mi_dp_bits: FloatArray) -> float:
    """Return the total reward whose equilibrium with caps has a given ``E / R``; infinite if there is none.

    ``E / R`` never rises with R, so at ``E / R = 1 / mu_k`` the result is the reward above which device k takes part.
    With ``a_i = max(1 - mu_i E / R, 0)``, the root y of the piecewise linear ``sum_i min(a_i, cap_i y) = 1`` is ``1 / E``.

    Args:
        intensity: ``E / R``, below :func:`free_intensity`.
        sensitivity: ``mu_i``.
        largest_mi_dp_bits: ``cap_i``.

    Example:
        >>> mu, caps = np.array([3.0, 1.0, 1.0]), np.array([9.0, 0.5, 0.5])
        >>> reward_at_intensity(1 / 3, mu, caps)
        3.0
        >>> capped_response(3.0, mu, caps).tolist(), bool(capped_response(3.01, mu, caps)[0] > 0)
        ([0.0, 0.5, 0.5], True)
    """
    wanted = np.maximum(1 - sensitivity * intensity, 0)
    breaks = wanted / largest_mi_dp_bits
    order = np.argsort(breaks)
    below = np.concatenate([[0.0], np.cumsum(wanted[order])])  # sum over the devices before each break
    finite = np.where(np.isfinite(largest_mi_dp_bits), largest_mi_dp_bits, 0.0)[order]
    above = np.cumsum(finite[::-1])[::-1]
    at_break = below[:-1] + breaks[order] * above
    k = int(np.argmax(at_break >= 1)) if (at_break >= 1).any() else len(order) - 1
    y = (1 - below[k]) / above[k] if above[k] > 0 else 0.0
    return float(1 / (intensity * y)) if y > 0 else float("inf")


def _shares(sensitivity: FloatArray, intensity: float) -> FloatArray:
    share = 1 - sensitivity * intensity
    return np.where(share > SMALLEST_SHARE, share, 0.0)
