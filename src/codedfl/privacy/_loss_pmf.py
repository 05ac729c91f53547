"""Privacy losses of single mechanisms on a grid, rounded such that no delta becomes smaller (Connect the Dots).

The masses are computed here, without the cancellation that large negative losses would bring; dp-accounting composes them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from scipy import special

from codedfl.privacy._exact import log_delta
from codedfl.privacy._gaussian import log_gaussian_delta
from codedfl.typing import FloatArray

Direction = Literal["remove", "add"]
"""Whether the sample is in the data that the release comes from (remove), or in its neighbour (add)."""

_SPACING = 0.02
"""Spacing of the support near the mean, in standard deviations of the loss: rounding adds at most 1e-4 of the variance."""

_CORE = 100
"""Number of points on each side of the mean with that spacing."""

_RATIO = 1.01
"""Beyond those, ratio of the distances of successive points from the mean: rounding adds at most 2.5e-5 of the square."""


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
    spacing = max(1, math.floor(_SPACING * math.sqrt(loss.variance) / interval))
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
        Doroshenko, Ghazi, Kamath, Kumar, Manurangsi: Connect the Dots: Tighter Discrete Approximations of Privacy PrivacyLoss
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
