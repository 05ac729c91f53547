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
from scipy import optimize

from codedfl.privacy._exact import exact_epsilon, log_delta
from codedfl.privacy._gaussian import gaussian_epsilon
from codedfl.privacy._gaussian_curve import log_gaussian_delta
from codedfl.privacy._inputs import require_number, require_probability
from codedfl.privacy._loss_pmf import Direction, Loss, coded_loss, gaussian_loss, pmf_of, sampled_loss
from codedfl.privacy._mechanisms import Mechanism, Merged, merge
from codedfl.privacy._renyi_account import renyi_epsilon, renyi_log_delta

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


def delta_of(mechanisms: Sequence[Mechanism], epsilon: float) -> float:
    """Return the delta at which all mechanisms together are (epsilon, delta)-differentially private.

    Args:
        mechanisms: everything that is released from the same data, in any order.
        epsilon: zero or more, in nats.

    Returns:
        Delta; 0 if nothing is released, 1 if something is released without noise.

    Example:
        >>> from codedfl.privacy import GaussianMechanism
        >>> round(delta_of([GaussianMechanism(1.0)], 1.0), 6)
        0.126937
    """
    require_number("epsilon", epsilon)
    return _delta(merge(mechanisms), float(epsilon))


@lru_cache(maxsize=1024)
def _epsilon(merged: Merged, delta: float) -> float:
    if math.isinf(merged.mu):
        return math.inf
    if not merged.sampled and not merged.coded:
        return gaussian_epsilon(merged.mu, delta)
    if merged.mu == 0 and not merged.sampled and len(merged.coded) == 1:
        return exact_epsilon(delta, merged.coded[0][1], merged.coded[0][0])
    bound, slack = renyi_epsilon(merged, delta), _slack(merged)
    if slack < delta / 2 and 0 < bound < math.inf:
        curves = [_composed(merged, direction) for direction in _DIRECTIONS]
        bound = max(_epsilon_for_delta(curve, delta - slack, most=bound) for curve in curves)
    return bound


@lru_cache(maxsize=1024)
def _delta(merged: Merged, epsilon: float) -> float:
    if math.isinf(merged.mu):
        return 1.0
    if not merged.sampled and not merged.coded:
        return math.exp(float(log_gaussian_delta(merged.mu, np.array([epsilon]))[0])) if merged.mu > 0 else 0.0
    if merged.mu == 0 and not merged.sampled and len(merged.coded) == 1:
        return math.exp(log_delta(epsilon, merged.coded[0][1], merged.coded[0][0]))
    bound, slack = math.exp(renyi_log_delta(merged, epsilon)), _slack(merged)
    if bound > slack:
        curves = [_composed(merged, direction) for direction in _DIRECTIONS]
        bound = min(bound, max(_delta_for_epsilon(curve, epsilon) for curve in curves) + slack)
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


def _losses(merged: Merged, direction: Direction) -> list[Loss]:
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
