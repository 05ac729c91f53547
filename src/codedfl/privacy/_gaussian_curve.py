"""Delta of Gaussian mechanisms as a function of epsilon, and the ``mu`` that has a given budget."""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from codedfl.errors import InputError
from codedfl.privacy._gaussian import gaussian_epsilon
from codedfl.privacy._inputs import require_number, require_probability
from codedfl.typing import FloatArray

_TINY = 1e-4
"""Below this ``mu``, a difference of two Mills ratios is taken from their derivative; the error is of relative size mu^2."""

_FAR = -20.0
"""To the left of this point the survival function is 1 to the precision of a number, and Mills ratios overflow."""

_NEVER = 1e150
"""To the right of this point ``ln delta`` is below -1e299 and counts as minus infinity."""


def log_gaussian_delta(mu: float, epsilon: FloatArray) -> FloatArray:
    """Return ``ln delta`` of Gaussian mechanisms at every epsilon, which may be negative.

    ``delta = Phi(-t) - phi(t) R(mu + t)`` with ``t = epsilon / mu - mu / 2`` and the Mills ratio ``R(x) = Phi(-x) / phi(x)``,
    which is ``Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)`` without underflow.

    Args:
        mu: positive and finite; see :func:`codedfl.privacy.gaussian_epsilon`.
        epsilon: in nats.

    Example:
        >>> np.exp(log_gaussian_delta(1.0, np.array([0.0, 4.3772]))).round(8)
        array([3.8292492e-01, 1.0000000e-05])
    """
    epsilon = np.asarray(epsilon, dtype=np.float64)
    with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
        t = epsilon / mu - mu / 2
        near = np.maximum(t, _FAR)
        if mu < _TINY:
            middle = near + mu / 2
            ratio = np.exp(_log_mills(middle))
            slope = np.where(middle > 1e4, 1 / np.square(middle), 1 - middle * ratio)  # -R' = 1 - x R
            gap = mu * slope / ratio
        else:
            gap = _log_mills(near) - _log_mills(mu + near)
        inside = special.log_ndtr(-near) + np.log(-np.expm1(-np.maximum(gap, 1e-300)))
        # Far to the left the first term is 1, and the second is e^epsilon Phi(-mu - t), at most 1.
        right = np.maximum(mu + t, 0)
        second = np.where(
            mu + t > 0,
            -t * t / 2 - 0.5 * math.log(2 * math.pi) + _log_mills(right),
            epsilon + special.log_ndtr(-np.minimum(mu + t, 0)),
        )
        outside = np.log(-np.expm1(np.minimum(second, -1e-300)))
    return np.asarray(np.where(t > _NEVER, -np.inf, np.where(t < _FAR, outside, inside)), dtype=np.float64)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Return the largest ``mu`` of Gaussian differential privacy that has a budget: the inverse of ``gaussian_epsilon``.

    Args:
        epsilon: zero or more, in nats.
        delta: between 0 and 1, both excluded.

    Returns:
        ``mu``, rounded down such that its epsilon does not exceed the given one.

    Example:
        >>> round(1 / gaussian_mu(1.0, 1e-5), 6)
        3.730632
    """
    require_number("epsilon", epsilon)
    require_probability("delta", delta)

    def excess(log_mu: float) -> float:
        return float(log_gaussian_delta(math.exp(log_mu), np.array([epsilon]))[0]) - math.log(delta)

    low = high = math.log(2 * epsilon / (math.sqrt(2 * epsilon - 2 * math.log(delta)) - math.log(delta)) + delta)
    while excess(low) > 0:
        low -= 2.0
    while excess(high) < 0:
        high += 2.0
    root = float(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-14)) if low < high else low
    mu, step = math.exp(root), 1e-14
    while gaussian_epsilon(mu, delta) > epsilon:  # by rounding
        mu *= 1 - step
        step *= 2
        if step > 1e-3:
            raise InputError(
                f"epsilon = {epsilon} and delta = {delta} are too extreme to solve for mu: raise one of them."
            )
    return mu


def _log_mills(x: FloatArray) -> FloatArray:
    """Return ``ln (Phi(-x) / phi(x))`` for ``x`` of ``_FAR`` or more."""
    return np.asarray(np.log(special.erfcx(x / math.sqrt(2))) + 0.5 * math.log(math.pi / 2), dtype=np.float64)
