"""The Renyi divergence between the coded uploads of neighbouring datasets in closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from codedfl.errors import InputError
from codedfl.privacy._inputs import (
    Adjacency,
    require_adjacency,
    require_count,
    require_positive_number,
    require_probability,
    require_signal_to_noise,
    shown,
)
from codedfl.privacy._tails import x_minus_log1p
from codedfl.typing import FloatArray


def renyi_divergence(
    orders: Sequence[float] | FloatArray | float,
    coded_samples: int,
    signal_to_noise: float,
    adjacency: Adjacency = "add-remove",
) -> FloatArray:
    """Return the Renyi divergence of order ``a`` between the coded uploads of neighbours, in the worst case over datasets.

    Along the direction of the sample, a coded row has variance ``1 + r`` with it and 1 without it. With ``f(x) = x - ln(1 + x)``:

        remove:   D_a = c/2 [f(r) + f(-(a - 1) r) / (a - 1)],   infinite for a >= 1 + 1/r
        add:      D_a = c/2 [f(-s) + f((a - 1) s) / (a - 1)],   s = r / (1 + r)
        replace:  the sum of the two, as the new sample may be orthogonal to the old one

    These are ``c / (2 (a - 1)) [a ln(1 - s) - ln(1 - a s)]`` and ``c / (2 (a - 1)) [a ln(1 + r) - ln(1 + a r)]``, without
    cancellation. Replacement at any angle is no worse: the two covariances have only two generalised eigenvalues other than
    1, within ``[1, 1 + r]`` and ``[1 / (1 + r), 1]``, and a pair of Gaussians with a ratio of variances nearer to 1 is a
    noisy copy of the extreme pair.

    Args:
        orders: ``a >= 1``; 1 is the Kullback-Leibler divergence.
        coded_samples: ``c``.
        signal_to_noise: ``r``, see :func:`codedfl.privacy.signal_to_noise`.
        adjacency: Which datasets are neighbours; "add-remove" takes the larger of the two directions.

    Returns:
        The divergence in nats at every order, in the shape of ``orders``.

    Example:
        >>> renyi_divergence([1.0, 2.0, 1e9], coded_samples=100, signal_to_noise=0.1).round(4)
        array([0.2345, 0.5025,    inf])
    """
    require_count("coded_samples", coded_samples)
    require_adjacency(adjacency)
    require_signal_to_noise(signal_to_noise)
    excess = np.asarray(orders, dtype=np.float64) - 1
    if not (excess >= 0).all():
        raise InputError(f"orders = {shown(orders)} must all be 1 or more.")
    with np.errstate(over="ignore"):
        remove = coded_samples * _one_direction(excess, signal_to_noise)
        add = coded_samples * _one_direction(excess, -_shrinkage(signal_to_noise))
        both = remove + add if adjacency == "replace" else np.maximum(remove, add)
    return remove if adjacency == "remove" else add if adjacency == "add" else both


def useful_orders(signal_to_noise: float, count: int = 400) -> FloatArray:
    """Return orders that fill the range ``1 < a < 1 + 1/r`` in which the divergence is finite, denser near its ends.

    Args:
        signal_to_noise: ``r``, positive and finite.
        count: Number of orders.

    Example:
        >>> useful_orders(4.0, count=3).round(4)
        array([1.    , 1.0027, 1.2483])
    """
    require_positive_number("signal_to_noise", signal_to_noise)
    return np.asarray(1 + special.expit(np.linspace(-14, 5, count)) / max(signal_to_noise, 1e-300), dtype=np.float64)


def epsilon_from_renyi(orders: FloatArray, divergences: FloatArray, delta: float) -> float:
    """Convert a Renyi curve to the smallest epsilon that it proves at ``delta``.

    ``epsilon = min_a D_a + ln(1 - 1/a) - (ln delta + ln a) / (a - 1)``, the conversion that dp-accounting uses.

    Args:
        orders: Renyi orders ``a``; those of 1 or less are ignored.
        divergences: ``D_a``; infinite ones are ignored.
        delta: Between 0 and 1, both excluded.

    Returns:
        Epsilon in nats; infinite if no order is usable.

    References:
        The Discrete Gaussian for Differential Privacy. C. Canonne, G. Kamath, T. Steinke. NeurIPS 2020. Proposition 12.

    Example:
        >>> orders = useful_orders(0.01)
        >>> round(epsilon_from_renyi(orders, renyi_divergence(orders, 100, 0.01), delta=1e-5), 3)
        0.311
    """
    require_probability("delta", delta)
    a, divergence = (np.asarray(values, dtype=np.float64) for values in (orders, divergences))
    usable = (a > 1) & np.isfinite(divergence)
    if not usable.any():
        return math.inf
    a, divergence = a[usable], divergence[usable]
    return max(0.0, float(np.min(divergence + np.log1p(-1 / a) - (math.log(delta) + np.log(a)) / (a - 1))))


def _shrinkage(signal_to_noise: float) -> float:
    """Return ``s = r / (1 + r)``."""
    return signal_to_noise / (1 + signal_to_noise) if math.isfinite(signal_to_noise) else 1.0


def _one_direction(excess: FloatArray, change: float) -> FloatArray:
    """Return ``D_a(N(0, 1 + v) || N(0, 1)) = 1/2 [f(v) + f(-(a - 1) v) / (a - 1)]`` for ``v = change > -1``, one row."""
    if not -1 < change < math.inf:
        return np.full_like(excess, np.inf)
    product = excess * change
    finite = np.where(product < 1, product, 0.0)
    tilted = np.divide(x_minus_log1p(-finite), excess, out=np.zeros_like(excess), where=excess > 0)
    return np.where(product < 1, 0.5 * (x_minus_log1p(change) + tilted), np.inf)
