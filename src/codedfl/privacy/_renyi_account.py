"""Bounds on a composition from Renyi divergences: valid for any numbers, but not tight."""

from __future__ import annotations

import math

import numpy as np
from scipy import special

from codedfl.privacy._gaussian import gaussian_epsilon
from codedfl.privacy._gaussian_curve import log_gaussian_delta
from codedfl.privacy._mechanisms import Merged
from codedfl.privacy._renyi import epsilon_from_renyi, renyi_divergence, useful_orders
from codedfl.typing import FloatArray

_SAMPLED_ORDERS = np.unique(np.rint(np.geomspace(2, 512, 60)))
"""Whole orders at which the divergence on a Poisson sample is a finite sum; others are not amplified."""


def renyi_epsilon(merged: Merged, delta: float) -> float:
    """Return an epsilon that a composition does not exceed, at every ``delta`` between 0 and 1."""
    orders = _orders(merged)
    bound = epsilon_from_renyi(orders, _divergence(merged, orders), delta)
    return bound if merged.coded else min(bound, gaussian_epsilon(_unamplified(merged), delta))


def renyi_log_delta(merged: Merged, epsilon: float) -> float:
    """Return the logarithm of a delta that a composition does not exceed; the inverse of ``epsilon_from_renyi``."""
    orders = _orders(merged)
    divergence = _divergence(merged, orders)
    usable = np.isfinite(divergence)
    a = orders[usable]
    bounds = (a - 1) * (divergence[usable] - epsilon + np.log1p(-1 / a)) - np.log(a)
    best = float(min(bounds, default=0.0))
    mu = _unamplified(merged)
    if not merged.coded and mu > 0:
        best = min(best, float(log_gaussian_delta(mu, np.array([epsilon]))[0]))
    return min(best, 0.0)


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
