"""One (epsilon, delta) for everything that a device releases, by closed forms or privacy loss distributions.

A composition of unlike mechanisms is computed on a grid of privacy losses. Rounding to the grid is pessimistic (Connect the Dots:
no delta becomes smaller) and adds at most 0.02% to the variance of the loss, and to epsilon less than 0.1%. Where that is out of
reach (a delta near the precision of Fourier transforms, losses so rare or large or releases so many that the grid would not fit
into memory), the result is the better of a coarser grid and a bound from Renyi divergences: still valid, but some percent too
large. The masses on the grid are computed here, without the cancellation that large negative losses would bring; dp-accounting
composes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial, reduce
from typing import Any, Literal

import numpy as np
from scipy import optimize, special

from codedfl.privacy._coded import epsilon_from_renyi, exact_epsilon, log_delta, renyi_divergence, useful_orders
from codedfl.privacy._gaussian import gaussian_epsilon, log_gaussian_delta
from codedfl.privacy._inputs import require_probability
from codedfl.privacy._mechanisms import Mechanism, Merged, merge
from codedfl.typing import FloatArray

Direction = Literal["remove", "add"]
"""Whether the sample is in the data that the release comes from (remove), or in its neighbour (add)."""

_SUPPORT_SPACING = 0.02
"""Spacing of the support near the mean, in standard deviations of the loss: rounding adds at most 1e-4 of the variance."""

_CORE = 100
"""Number of points on each side of the mean with that spacing."""

_RATIO = 1.01
"""Beyond those, ratio of the distances of successive points from the mean: rounding adds at most 2.5e-5 of the square."""

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


@dataclass(frozen=True)
class PrivacyLoss:
    """The privacy loss of one mechanism in one direction.

    Args:
        log_delta: ``ln delta`` at every epsilon, which is zero or more.
        log_delta_reversed: the same in the other direction.
        mean: of the loss, roughly.
        variance: of the loss, roughly: it only sets the grid.
        low: a loss that is exceeded except with negligible probability.
        high: a loss that is exceeded with negligible probability.
        count: number of independent copies.
    """

    log_delta: Callable[[FloatArray], FloatArray]
    log_delta_reversed: Callable[[FloatArray], FloatArray]
    mean: float
    variance: float
    low: float
    high: float
    count: int = 1


def gaussian_loss(mu: float, tail: float) -> PrivacyLoss:
    """Return the loss of full-batch Gaussian mechanisms, ``N(mu^2 / 2, mu^2)`` in both directions.

    Args:
        mu: of all of them together, positive and finite.
        tail: probability that counts as negligible.
    """
    mean, reach = mu * mu / 2, -float(special.ndtri(tail)) * mu
    curve = partial(log_gaussian_delta, mu)
    return PrivacyLoss(curve, curve, mean, mu * mu, mean - reach, mean + reach)


def sampled_loss(noise_multiplier: float, rate: float, count: int, direction: Direction, tail: float) -> PrivacyLoss:
    """Return the loss of a Gaussian mechanism on a Poisson sample.

    The pair is ``(1 - q) N(0, 1) + q N(mu, 1)`` and ``N(0, 1)``, ``mu = 1 / z``. At ``epsilon = ln(1 + q (e^t - 1))``, delta of
    removal is ``q`` times that of the Gaussian mechanism at ``t``. At ``epsilon = -ln(1 + q (e^-t - 1))``, delta of addition is
    ``1 - (1 - q) e^epsilon`` times it, and 0 for every ``epsilon >= -ln(1 - q)``.

    Args:
        noise_multiplier: ``z``, positive and finite.
        rate: ``q < 1``.
        count: number of releases.
        direction: of the change.
        tail: probability that counts as negligible.
    """
    mu = 1 / noise_multiplier
    shift, reach = mu * mu / 2, -mu * float(special.ndtri(tail))
    normal = np.linspace(-9, 9, 3001)
    weights = special.softmax(-np.square(normal) / 2)
    curves = partial(_log_remove, mu, rate), partial(_log_add, mu, rate)
    if direction == "add":
        losses = -amplified(mu * normal - shift, rate)
        low, high = (-float(amplified(loss, rate)) for loss in (reach - shift, -reach - shift))
        curves = curves[::-1]
    else:
        weights = np.concatenate([(1 - rate) * weights, rate * weights])
        losses = amplified(np.concatenate([mu * normal - shift, mu * normal + shift]), rate)
        low, high = (float(amplified(loss, rate)) for loss in (-reach - shift, reach + shift))
    mean = float(weights @ losses)
    return PrivacyLoss(*curves, mean, float(weights @ np.square(losses - mean)), low, high, count)


def _log_remove(mu: float, rate: float, epsilon: FloatArray) -> FloatArray:
    far = epsilon > 30
    near = np.log1p(np.expm1(np.where(far, 0.0, epsilon)) / rate)
    return math.log(rate) + log_gaussian_delta(
        mu, np.where(far, np.logaddexp(epsilon, math.log(rate)) - math.log(rate), near)
    )


def _log_add(mu: float, rate: float, epsilon: FloatArray) -> FloatArray:
    odds = np.expm1(-epsilon) / rate
    inside = odds > -1
    # 1 - (1 - q) e^epsilon = q e^epsilon (1 + odds)
    log_odds = np.log1p(np.where(inside, odds, 0.0))
    curve = math.log(rate) + epsilon + log_odds + log_gaussian_delta(mu, -log_odds)
    return np.where(inside, curve, -np.inf)


def coded_loss(signal_to_noise: float, rows: int, direction: Direction, tail: float) -> PrivacyLoss:
    """Return the loss of coded uploads: ``r V / 2 - (c/2) ln(1 + r)``, or ``(c/2) ln(1 + r) - s V / 2``, ``V ~ chi2_c``.

    Here ``s = r / (1 + r)``, and delta is that of :func:`codedfl.privacy.log_delta`.

    Args:
        signal_to_noise: ``r``, positive and finite.
        rows: ``c``, of all uploads together.
        direction: of the change.
        tail: probability that counts as negligible.
    """
    half, s = rows / 2 * math.log1p(signal_to_noise), signal_to_noise / (1 + signal_to_noise)
    least, most = 2 * float(special.gammaincinv(rows / 2, tail)), 2 * float(special.gammainccinv(rows / 2, tail))
    remove: Direction = "remove"
    add: Direction = "add"
    curves = partial(_log_coded, signal_to_noise, rows, remove), partial(_log_coded, signal_to_noise, rows, add)
    if direction == "remove":
        r = signal_to_noise
        return PrivacyLoss(*curves, r * rows / 2 - half, r * r * rows / 2, r * least / 2 - half, r * most / 2 - half)
    return PrivacyLoss(*curves[::-1], half - s * rows / 2, s * s * rows / 2, half - s * most / 2, half - s * least / 2)


def _log_coded(signal_to_noise: float, rows: int, direction: Direction, epsilon: FloatArray) -> FloatArray:
    return np.array([log_delta(one, rows, signal_to_noise, direction) for one in epsilon.tolist()])


def amplified(loss: FloatArray | float, rate: float) -> FloatArray:
    """Return ``ln(1 + q (e^t - 1))``, the loss on a Poisson sample where the whole data has loss ``t``."""
    t = np.asarray(loss, dtype=np.float64)
    near = np.log1p(rate * np.expm1(np.minimum(t, 1.0)))
    return np.where(t <= 1, near, np.logaddexp(math.log1p(-rate), math.log(rate) + t))


def support(loss: PrivacyLoss, interval: float) -> FloatArray:
    """Return the multiples of ``interval`` that carry a loss: evenly spaced near its mean, fewer and fewer further away."""
    spacing = max(1, math.floor(_SUPPORT_SPACING * math.sqrt(loss.variance) / interval))
    centre = round(loss.mean / interval)
    low, high = math.floor(loss.low / interval), math.ceil(loss.high / interval)
    farthest = max(high - centre, centre - low, 1)
    beyond = math.ceil(math.log(max(farthest / (_CORE * spacing), 1)) / math.log(_RATIO))
    offsets = spacing * np.concatenate([np.arange(_CORE), _CORE * _RATIO ** np.arange(beyond + 1)])
    offsets = np.rint(offsets)
    points = np.unique(np.concatenate([centre - offsets, centre + offsets, [low, 0, high]]))
    return points[(points >= low) & (points <= high)]


def masses(loss: PrivacyLoss, epsilon: FloatArray) -> tuple[FloatArray, float]:
    """Return the probability masses at the losses ``epsilon`` and at infinity whose deltas agree with those of ``loss``.

    Between the given losses, ``delta`` becomes linear in ``e^epsilon``, which is never below the convex truth. With
    ``g = delta`` at positive losses and ``g = delta - 1 + e^epsilon`` (``e^epsilon`` times that of the other direction) at
    negative ones, the mass at ``epsilon_i`` is

        (g_i - g_(i-1)) / (e^(epsilon_(i-1) - epsilon_i) - 1) + (g_(i+1) - g_i) / (e^(epsilon_(i+1) - epsilon_i) - 1),

    plus 1 at 0: the part that was left out is linear.

    Args:
        loss: one copy of it counts.
        epsilon: increasing; it contains 0 if it has negative and positive entries.

    References:
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: Connect the Dots: Tighter Discrete Approximations of Privacy Loss
        Distributions. PoPETs 2022. Algorithm 1.
    """
    negative = epsilon < 0
    g = np.empty_like(epsilon)
    g[~negative] = np.exp(loss.log_delta(epsilon[~negative]))
    g[negative] = np.exp(epsilon[negative] + loss.log_delta_reversed(-epsilon[negative]))
    change, gap = np.diff(g), np.diff(epsilon)
    below = np.concatenate([[-g[0]], change / np.expm1(-gap)])
    above = np.concatenate([change / np.expm1(gap), [0.0]])
    probabilities = below + above
    probabilities[np.count_nonzero(negative) if negative[-1:].sum() == 0 else -1] += 1.0
    at_infinity = g[-1] - math.expm1(epsilon[-1]) if negative[-1] else g[-1]
    return np.maximum(probabilities, 0.0), float(min(max(at_infinity, 0.0), 1.0))


def pmf_of(loss: PrivacyLoss, interval: float) -> Any:
    """Return the ``dp_accounting`` probability mass function of one copy of a loss on multiples of ``interval``."""
    from dp_accounting.pld import pld_pmf

    points = support(loss, interval)
    probabilities, at_infinity = masses(loss, points * interval)
    dense = np.zeros(int(points[-1] - points[0]) + 1)
    dense[(points - points[0]).astype(np.int64)] = probabilities
    return pld_pmf.DensePLDPmf(interval, int(points[0]), dense, at_infinity, pessimistic_estimate=True)


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
