"""One (epsilon, delta) for everything that a device releases, by closed forms or privacy loss distributions.

A composition of unlike mechanisms is computed on a grid of privacy losses. Rounding to the grid is pessimistic and adds at
most 0.02% to the variance of the loss, and to epsilon less than 0.1%. Where that is out of reach (a delta near the precision
of Fourier transforms, losses so rare or large or releases so many that the grid would not fit into memory), the result is the
better of a coarser grid and a bound from Renyi divergences: still valid, but some percent too large.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from scipy import optimize, special

from codedfl.privacy._exact import exact_epsilon
from codedfl.privacy._gaussian import gaussian_epsilon
from codedfl.privacy._inputs import require_probability
from codedfl.privacy._loss_pmf import Direction, PrivacyLoss, coded_loss, gaussian_loss, pmf_of, sampled_loss
from codedfl.privacy._mechanisms import Mechanism, Merged, merge
from codedfl.privacy._renyi import epsilon_from_renyi, renyi_divergence, useful_orders
from codedfl.typing import FloatArray

_DIRECTIONS: tuple[Direction, ...] = ("remove", "add")

_TAIL = 1e-20
"""Probability of losses beyond the grid, which count as unbounded."""

_SPACING = 0.02
"""Interval of the grid, in units of the loss's standard deviation over the root of the number of releases."""

_MOST_POINTS = 2**18
"""Length of the grid of one release beyond which the interval grows."""

_LEAST_INTERVAL = 1e-100
"""Where the interval is smaller or its inverse larger, no grid is made."""

_MOST_RELEASES = 2**22
"""Of more releases than this, only the bound from Renyi divergences is computed."""

_SAMPLED_ORDERS = np.unique(np.rint(np.geomspace(2, 512, 60)))
"""Whole orders at which the divergence on a Poisson sample is a finite sum; others are not amplified."""

_STAGE = 1000
"""A loss is composed with itself at most so often at a time, as the bounds on its range get loose."""


def epsilon_of(mechanisms: Sequence[Mechanism], delta: float) -> float:
    """Return the epsilon at which all mechanisms together are (epsilon, delta)-differentially private.

    Neighbours differ in one sample that is added or removed. Full-batch Gaussian mechanisms alone have
    ``mu = sqrt(sum count / z^2)``, and coded uploads of one signal-to-noise ratio are one upload: both are exact. Everything
    else is composed by privacy loss distributions, rounded up (see the module).

    Args:
        mechanisms: everything that is released from the same data, in any order.
        delta: between 0 and 1, both excluded.

    Returns:
        Epsilon in nats; 0 if nothing is released, infinite if something is released without noise.

    Example:
        >>> from codedfl.privacy import CodedMechanism, GaussianMechanism
        >>> round(epsilon_of([GaussianMechanism(4.0, count=16)], 1e-5), 4)
        4.3772
        >>> round(epsilon_of([GaussianMechanism(1.0, count=1000, sampling_rate=0.01)], 1e-5), 2)
        1.83
        >>> round(epsilon_of([CodedMechanism(100, 0.02), GaussianMechanism(8.0)], 1e-5), 2)
        0.74
    """
    require_probability("delta", delta)
    return _epsilon(merge(mechanisms), float(delta))


@lru_cache(maxsize=1024)
def _epsilon(merged: Merged, delta: float) -> float:
    if math.isinf(merged.mu):
        return math.inf
    if not merged.sampled and not merged.coded:
        return gaussian_epsilon(merged.mu, delta)
    if merged.mu == 0 and not merged.sampled and len(merged.coded) == 1:
        return exact_epsilon(delta, merged.coded[0][1], merged.coded[0][0])
    bound, slack = _renyi_epsilon(merged, delta), _slack(merged)
    if slack < delta / 2 and 0 < bound < math.inf:
        curves = [_composed(merged, direction) for direction in _DIRECTIONS]
        bound = max(_epsilon_for_delta(curve, delta - slack, most=bound) for curve in curves)
    return bound


def _slack(merged: Merged) -> float:
    """Return an allowance for the error that rounding in Fourier transforms makes in delta.

    Every coefficient has a relative error of a few units in the last place, which composition multiplies by the number of
    releases at worst. This is not proven: tests hold it against closed forms, where errors are ten times smaller or more.
    """
    releases = sum(count for _, _, count in merged.sampled)
    return 2.0**-52 * (releases + 1000)


def _delta_for_epsilon(curve: Any, epsilon: float) -> float:
    """Return delta at epsilon; 1, which is always true, without a curve or where its losses are beyond what it can index."""
    try:
        return 1.0 if curve is None else float(curve.get_delta_for_epsilon(epsilon))
    except OverflowError:
        return 1.0


def _epsilon_for_delta(curve: Any, delta: float, most: float) -> float:
    """Return the smallest epsilon of a probability mass function, or ``most`` if it is larger.

    dp-accounting's own inverse walks through the grid in Python, and overflows where losses exceed 700.
    """

    def excess(epsilon: float) -> float:
        return math.log(max(_delta_for_epsilon(curve, epsilon), 1e-300)) - math.log(delta)

    if excess(most) > 0:
        return most
    if excess(0.0) <= 0:
        return 0.0
    found = float(optimize.brentq(excess, 0.0, most, xtol=1e-300, rtol=1e-9))
    while excess(found) > 0:
        found = min(found * (1 + 1e-9), most)
    return found


@lru_cache(maxsize=8)
def _composed(merged: Merged, direction: Direction) -> Any:
    """Return the probability mass function of the sum of all losses in one direction; None where no grid can be made."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        losses = _losses(merged, direction)
        releases = sum(loss.count for loss in losses)
        variance = math.fsum(loss.count * loss.variance for loss in losses)
        longest = max(loss.high - loss.low for loss in losses)
        interval = max(_SPACING * math.sqrt(variance / releases), longest / _MOST_POINTS)
        if releases > _MOST_RELEASES or not _LEAST_INTERVAL < interval < 1 / _LEAST_INTERVAL:
            return None
        # A power of two, so that a search over noise multipliers meets the same grid again.
        interval = 2.0 ** math.floor(math.log2(interval))
        parts = [_self_composed(pmf_of(loss, interval), loss.count) for loss in losses]
        return reduce(lambda total, part: total.compose(part, _TAIL), parts)


def _losses(merged: Merged, direction: Direction) -> list[PrivacyLoss]:
    tail = _TAIL / max(1, sum(count for _, _, count in merged.sampled))
    full = [gaussian_loss(merged.mu, tail)] if merged.mu > 0 else []
    sampled = [sampled_loss(noise, rate, count, direction, tail) for noise, rate, count in merged.sampled]
    return [*full, *sampled, *(coded_loss(ratio, rows, direction, tail) for ratio, rows in merged.coded)]


def _self_composed(pmf: Any, count: int) -> Any:
    if count == 1:
        return pmf
    if count <= 4 * _STAGE:
        return pmf.self_compose(count, _TAIL)
    stages, rest = divmod(count, _STAGE)
    total = _self_composed(pmf.self_compose(_STAGE, _TAIL / stages), stages)
    return total.compose(pmf.self_compose(rest, _TAIL), _TAIL) if rest else total


def _renyi_epsilon(merged: Merged, delta: float) -> float:
    """Return an epsilon that a composition does not exceed, at every ``delta`` between 0 and 1."""
    orders = _orders(merged)
    bound = epsilon_from_renyi(orders, _divergence(merged, orders), delta)
    return bound if merged.coded else min(bound, gaussian_epsilon(_unamplified(merged), delta))


def _unamplified(merged: Merged) -> float:
    """Return ``mu`` if every sample were in every batch: a Poisson sample reveals no more."""
    return math.hypot(merged.mu, *(math.sqrt(count) / noise for noise, _, count in merged.sampled))


def _orders(merged: Merged) -> FloatArray:
    ratios = [useful_orders(ratio) for ratio, _ in merged.coded]
    return np.unique(np.concatenate([1 + np.geomspace(1e-9, 1e9, 500), _SAMPLED_ORDERS, *ratios]))


def _divergence(merged: Merged, orders: FloatArray) -> FloatArray:
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = orders * (merged.mu * merged.mu / 2)
        for noise, rate, count in merged.sampled:
            total = total + count * _sampled_divergence(noise, rate, orders)
        for ratio, rows in merged.coded:
            total = total + renyi_divergence(orders, rows, ratio)
    return np.asarray(np.where(np.isnan(total), np.inf, total))


def _sampled_divergence(noise: float, rate: float, orders: FloatArray) -> FloatArray:
    """Return ``ln sum_k C(a, k) (1 - q)^(a-k) q^k e^(k (k-1) / (2 z^2)) / (a - 1)`` at whole orders, else ``a / (2 z^2)``.

    The sum is that of removal, which is the larger of both directions.

    References:
        Mironov, Talwar, Zhang: Renyi Differential Privacy of the Sampled Gaussian Mechanism. 2019.
    """
    half = 0.5 / noise / noise
    result = orders * half
    for i in np.flatnonzero(np.isin(orders, _SAMPLED_ORDERS)):
        a = float(orders[i])
        k = np.arange(a + 1)
        binomial = special.gammaln(a + 1) - special.gammaln(k + 1) - special.gammaln(a - k + 1)
        # Terms k = 0 and 1 carry almost all of the mass where q is small, so that the sum is taken relative to 1.
        excess = np.log(np.expm1(np.minimum(k * (k - 1) * half, 600))) if half > 0 else np.full_like(k, -np.inf)
        excess = np.where(k * (k - 1) * half > 600, k * (k - 1) * half, excess)
        logs = (binomial + (a - k) * math.log1p(-rate) + k * math.log(rate) + excess)[2:]
        result[i] = min(result[i], float(np.logaddexp(0.0, special.logsumexp(logs))) / (a - 1))
    return result
