"""The privacy of a coded upload in closed form: its exact (epsilon, delta) and its Renyi divergence.

The privacy loss depends on the release only through ``T``, the sum of ``c`` squares along the direction of the sample:
``(1 + r) chi2_c`` with the sample and ``chi2_c`` without. ``delta(epsilon) = E_P[(1 - e^(epsilon - loss))_+]`` is then a
difference of two tails.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence

import numpy as np
from scipy import special

from codedfl.errors import InputError
from codedfl.privacy._inputs import (
    MOST,
    Adjacency,
    require_adjacency,
    require_count,
    require_number,
    require_positive_number,
    require_probability,
    require_signal_to_noise,
    shown,
)
from codedfl.privacy._numerics import (
    log_chi_square_cdf,
    log_chi_square_density,
    log_chi_square_hazard,
    log_chi_square_sf,
    log_difference,
    monotone_root,
    x_minus_log1p,
)
from codedfl.typing import FloatArray

_LEAST_EPSILON = 1e-15
"""In units of ``r sqrt(c)``, the scale of the privacy loss; smaller epsilons are rounded up to it."""

_LEAST_RATIO, _LARGEST_RATIO = 1e-300, 1e200
"""Smaller signal-to-noise ratios are raised to the least and larger ones count as no noise: both err on the safe side."""

_FAR = 1e30
"""If epsilon exceeds this multiple of ``r``, then ``ln delta < -1e29`` for every ``c``."""

_LOGS = -700.0, 700.0
"""Range of logarithms of epsilon or ``r`` that are searched."""

_CANCELS = 1e6
"""Differences between tails below ``-1e6`` nats are computed from hazards, as subtraction would leave too few digits."""

_NEGLIGIBLE = 45.0
"""How many nats below its peak an integrand becomes negligible."""

_NODES, _WEIGHTS = (np.polynomial.legendre.leggauss(96)[k] for k in (0, 1))
_UNIT_NODES, _LOG_UNIT_WEIGHTS = (_NODES + 1) / 2, np.log(_WEIGHTS / 2)
"""Gauss-Legendre quadrature on [0, 1]."""


def log_delta(epsilon: float, coded_samples: int, signal_to_noise: float, adjacency: Adjacency = "add-remove") -> float:
    """Return the exact ``ln delta`` of a coded upload at ``epsilon``, for the worst case over datasets.

    With ``w = (c ln(1 + r) + 2 epsilon) / r``, ``tau = (c ln(1 + r) - 2 epsilon) (1 + r) / r`` and chi-square laws of ``c``
    degrees of freedom:

        remove:   delta = SF(w) - e^epsilon SF((1 + r) w)
        add:      delta = CDF(tau) - e^epsilon CDF(tau / (1 + r))
        replace:  delta = E[SF(W) - e^(epsilon') SF((1 + r) W)],  W = 2 epsilon / r + V / (1 + r),  V ~ chi2_c,
                  epsilon' = (r W - c ln(1 + r)) / 2

    Args:
        epsilon: Zero or more, in nats.
        coded_samples: ``c``.
        signal_to_noise: ``r``, see :func:`codedfl.privacy.signal_to_noise`.
        adjacency: Which datasets are neighbours; "add-remove" takes the larger of the two directions.

    Returns:
        ``ln delta``, as delta itself may underflow.

    Example:
        >>> round(math.exp(log_delta(1.0, coded_samples=100, signal_to_noise=0.1)), 6)
        0.04207
        >>> round(log_delta(1e6, coded_samples=100, signal_to_noise=4.0))
        -249556
    """
    require_number("epsilon", epsilon)
    require_count("coded_samples", coded_samples)
    require_adjacency(adjacency)
    require_signal_to_noise(signal_to_noise)
    if signal_to_noise > _LARGEST_RATIO:
        return 0.0
    if signal_to_noise == 0 or epsilon > _FAR * signal_to_noise:
        return -math.inf
    r = max(signal_to_noise, _LEAST_RATIO)
    if adjacency == "replace":
        return min(0.0, _log_replace(epsilon, coded_samples, r))
    worst = -math.inf
    if adjacency != "add":
        threshold = (coded_samples * math.log1p(r) + 2 * epsilon) / r
        worst = float(_log_remove(np.array([threshold]), coded_samples, r)[0])
    if adjacency != "remove":
        worst = max(worst, _log_add(epsilon, coded_samples, r))
    return min(0.0, worst)


def exact_epsilon(
    delta: float, coded_samples: int, signal_to_noise: float, adjacency: Adjacency = "add-remove"
) -> float:
    """Return the smallest epsilon at which the coded upload is (epsilon, delta)-differentially private.

    Args:
        delta: Between 0 and 1, both excluded.
        coded_samples: ``c``.
        signal_to_noise: ``r``, see :func:`codedfl.privacy.signal_to_noise`.
        adjacency: Which datasets are neighbours.

    Returns:
        Epsilon in nats; 0 if delta alone suffices, infinite without noise.

    Example:
        >>> round(exact_epsilon(1e-5, coded_samples=10_000, signal_to_noise=4.0))
        13181
    """
    require_probability("delta", delta)
    require_count("coded_samples", coded_samples)
    require_signal_to_noise(signal_to_noise)

    def shortfall(log_epsilon: float) -> float:
        return math.log(delta) - log_delta(math.exp(log_epsilon), coded_samples, signal_to_noise, adjacency)

    if shortfall(-math.inf) >= 0:
        return 0.0
    scale = math.log(signal_to_noise) + 0.5 * math.log(coded_samples) if signal_to_noise < math.inf else 0.0
    least = math.log(_LEAST_EPSILON) + min(scale, 0.0)
    return math.exp(least if shortfall(least) >= 0 else monotone_root(shortfall, scale, _LOGS))


def largest_signal_to_noise(
    epsilon: float, delta: float, coded_samples: int, adjacency: Adjacency = "add-remove"
) -> float:
    """Return the largest ``r = B^2 / sigma^2`` at which the coded upload is (epsilon, delta)-differentially private.

    Args:
        epsilon: Positive, in nats.
        delta: Between 0 and 1, both excluded.
        coded_samples: ``c``.
        adjacency: Which datasets are neighbours.

    Returns:
        ``r``; at most 1e200, and 0 if no ``r`` above ``e^-700`` keeps the budget.

    Example:
        >>> r = largest_signal_to_noise(1.0, 1e-5, coded_samples=10_000)
        >>> round(exact_epsilon(1e-5, 10_000, r), 9)
        1.0
    """
    require_positive_number("epsilon", epsilon)
    require_probability("delta", delta)
    require_count("coded_samples", coded_samples)

    def excess(log_ratio: float) -> float:
        return log_delta(epsilon, coded_samples, math.exp(log_ratio), adjacency) - math.log(delta)

    root = monotone_root(excess, math.log(epsilon + delta) - 0.5 * math.log(coded_samples), _LOGS)
    return min(math.exp(root), _LARGEST_RATIO)


def most_coded_samples(
    epsilon: float, delta: float, signal_to_noise: float, adjacency: Adjacency = "add-remove"
) -> int:
    """Return the largest number of coded samples that keeps an upload (epsilon, delta)-differentially private.

    Args:
        epsilon: Positive, in nats.
        delta: Between 0 and 1, both excluded.
        signal_to_noise: ``r``, see :func:`codedfl.privacy.signal_to_noise`.
        adjacency: Which datasets are neighbours.

    Returns:
        The number; 0 if even a single coded sample exceeds the budget.

    Raises:
        InputError: If more than ``MOST`` coded samples keep the budget.

    Example:
        >>> most_coded_samples(1.0, 1e-5, signal_to_noise=0.01)
        1319
        >>> most_coded_samples(1.0, 1e-5, signal_to_noise=4.0)
        0
    """
    require_positive_number("epsilon", epsilon)
    require_probability("delta", delta)
    require_positive_number("signal_to_noise", signal_to_noise)

    def keeps(coded_samples: int) -> bool:
        return log_delta(epsilon, coded_samples, signal_to_noise, adjacency) <= math.log(delta)

    most = bisect.bisect_left(range(1, MOST + 1), True, key=lambda coded_samples: not keeps(coded_samples))
    if most == MOST:
        raise InputError(
            f"epsilon = {epsilon} is kept by more than {MOST} coded samples at this noise: "
            "lower the noise, or give coded_samples and solve for something else."
        )
    return most


def _log_remove(threshold: FloatArray, c: int, r: float) -> FloatArray:
    """Return ``ln delta`` of removal for each ``w`` in ``threshold``, that is for each epsilon, which may be negative."""
    near, far = log_chi_square_sf(threshold, c), log_chi_square_sf(threshold * (1 + r), c)
    gap = np.maximum(near - far - 0.5 * (r * threshold - c * math.log1p(r)), 0)
    cancels = far < -_CANCELS
    if cancels.any():
        gap[cancels] = np.maximum(
            math.log1p(r)
            + log_chi_square_hazard(threshold[cancels] * (1 + r), c, upper=True)
            - log_chi_square_hazard(threshold[cancels], c, upper=True),
            0,
        )
    result = log_difference(near, gap)
    close = (gap < 1e-3) & (threshold > c - 10 * math.sqrt(2 * c))
    if close.any():
        w = threshold[close]
        hazard = np.exp(log_chi_square_hazard(w, c, upper=True))
        reach = np.minimum(
            np.maximum(c - w, 0) + 12 * math.sqrt(2 * c) + 80, _NEGLIGIBLE / (r / 2 + np.minimum(hazard, 0.5))
        )
        steps = reach[:, None] * _UNIT_NODES
        integrand = log_chi_square_sf(w[:, None] + steps, c) - steps * (r / 2)
        result[close] = np.log(reach * r / 2) + special.logsumexp(integrand + _LOG_UNIT_WEIGHTS, axis=1)
    return result


def _log_add(epsilon: float, c: int, r: float) -> float:
    """Return ``ln delta`` of addition."""
    s = r / (1 + r)
    threshold = (c * math.log1p(r) - 2 * epsilon) / s
    if threshold <= 0:
        return -math.inf
    near, far = (float(log_chi_square_cdf(x, c)) for x in (threshold, threshold / (1 + r)))
    gap = near - far - epsilon
    if far < -_CANCELS:
        inner, outer = (float(log_chi_square_hazard(x, c, upper=False)) for x in (threshold / (1 + r), threshold))
        gap = inner - outer - math.log1p(r)
    gap = max(gap, 0.0)
    if gap >= 1e-3:
        return float(log_difference(near, gap))
    hazard = math.exp(float(log_chi_square_hazard(threshold, c, upper=False)))
    reach = min(threshold, max(threshold - c, 0) + 12 * math.sqrt(2 * c) + 80, _NEGLIGIBLE / (s / 2 + hazard))
    steps = reach * _UNIT_NODES
    integrand = log_chi_square_cdf(threshold - steps, c) - steps * (s / 2)
    return math.log(reach * s / 2) + float(special.logsumexp(integrand + _LOG_UNIT_WEIGHTS))


def _log_replace(epsilon: float, c: int, r: float) -> float:
    """Return ``ln delta`` of replacement: that of removal, averaged over the energy along the new sample's direction.

    The integral is over ``y = sqrt(V)``, in which the integrand is log-concave with a peak no wider than that of a standard
    normal law.
    """

    def integrand(y: FloatArray) -> FloatArray:
        return (
            math.log(2)
            + np.log(y)
            + log_chi_square_density(y * y, c)
            + _log_remove(2 * epsilon / r + y * y / (1 + r), c, r)
        )

    low, high = 0.0, math.sqrt(c) + 10
    for _ in range(60):
        grid = low + (high - low) * np.linspace(0, 1, 66)[1:-1]
        heights = integrand(grid)
        if heights.max() == -math.inf:
            return -math.inf
        tall = np.flatnonzero(heights >= heights.max() - _NEGLIGIBLE)
        few = len(tall) < 24
        low, high = (
            low if tall[0] == 0 else float(grid[tall[0] - 1]),
            high if tall[-1] == 63 else float(grid[tall[-1] + 1]),
        )
        if not few or high - low < 1e-12 * high:
            break
    values = integrand(low + (high - low) * _UNIT_NODES)
    return math.log(high - low) + float(special.logsumexp(values + _LOG_UNIT_WEIGHTS))


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
