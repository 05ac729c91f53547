"""The exact (epsilon, delta) of Gaussian mechanisms, without underflow or cancellation.

The functions ``get_epsilon_gaussian`` and ``get_sigma_gaussian`` of dp-accounting agree to nine digits where ``mu`` lies between
1e-3 and 1e6, forty times slower. They subtract numbers that are nearly equal, so that epsilon is 13% too small at ``mu = 1e-12``
and ``delta = 1e-100``, and by 7e-9 from ``mu = 1e12`` on; at ``epsilon = 0`` and ``delta = 1e-300``, sigma is too small by
a factor of 1e284. And they have no ``delta`` at many epsilons, negative ones included, from which a privacy loss is made.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import optimize, special

from codedfl.errors import InputError
from codedfl.privacy._inputs import require_number, require_probability
from codedfl.privacy._numerics import monotone_root
from codedfl.typing import FloatArray

_TINY = 1e-4
"""Below this ``mu``, a difference of two Mills ratios is taken from their derivative; the error is of relative size mu^2."""

_FAR = -20.0
"""Mills ratios to the left of this point overflow and are computed from the normal distribution, which is 1 there."""

_NEVER = 1e150
"""To the right of this point ``ln delta`` is below -1e299 and counts as minus infinity."""


_LOGS = -800.0, 800.0
"""Range of logarithms of ``mu`` that are searched."""


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Return the smallest epsilon at which Gaussian mechanisms are (epsilon, delta)-differentially private.

    A release of ``f + N(0, s^2 I)`` has ``mu = Delta / s``, ``Delta`` the largest change of ``f`` in Euclidean norm; several
    releases have the root of the sum of squares. Then ``delta(eps) = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu)``.

    Args:
        mu: zero or more, possibly infinite.
        delta: between 0 and 1, both excluded.

    Returns:
        Epsilon in nats; 0 if delta alone suffices, infinite for ``mu = inf``.

    Example:
        >>> round(gaussian_epsilon(1.0, 1e-5), 4)
        4.3772
        >>> gaussian_epsilon(1e-6, 1e-5), gaussian_epsilon(math.inf, 1e-5)
        (0.0, inf)

    References:
        Dong, Roth, Su: Gaussian Differential Privacy. Journal of the Royal Statistical Society B, 2022.
    """
    require_probability("delta", delta)
    if not mu >= 0:
        raise InputError(f"mu = {mu} must be zero or more.")
    if mu == math.inf:
        return math.inf
    if delta >= math.erf(mu / math.sqrt(8)):  # that at epsilon = 0
        return 0.0

    def excess(t: float) -> float:
        return _log_delta(mu, t) - math.log(delta)

    # With epsilon = mu (mu / 2 + t), delta is below Phi(-t), and close to it where mu is large.
    high = float(-special.ndtri(delta))
    step = 1.0
    while (low := max(high - step, -mu / 2)) > -mu / 2 and excess(low) <= 0:
        step *= 2
    if excess(low) <= 0:
        return 0.0  # by rounding
    t = high if excess(high) >= 0 else float(optimize.brentq(excess, low, high, xtol=1e-15, rtol=1e-14))
    return max(mu * (mu / 2 + t), 0.0)


def _log_delta(mu: float, t: float) -> float:
    """Return ``ln delta`` at ``epsilon = mu (mu / 2 + t)``: ``ln Phi(-t)`` plus the logarithm of ``1 - R(mu + t) / R(t)``.

    ``R(x) = Phi(-x) / phi(x)`` is the Mills ratio: since ``phi(mu + t) e^epsilon = phi(t)``, epsilon itself cancels.
    """
    if mu < _TINY:
        middle = t + mu / 2
        ratio = math.exp(_log_mills(middle))
        slope = 1 / middle**2 if middle > 1e4 else 1 - middle * ratio  # -R' = 1 - x R
        gap = mu * slope / ratio
    else:
        gap = _log_mills(t) - _log_mills(mu + t)
    return float(special.log_ndtr(-t)) + math.log(-math.expm1(-max(gap, 1e-300)))


def _log_mills(x: float) -> float:
    """Return ``ln (Phi(-x) / phi(x))``."""
    if x < _FAR:
        return float(special.log_ndtr(-x)) + x * x / 2 + 0.5 * math.log(2 * math.pi)
    return math.log(float(special.erfcx(x / math.sqrt(2)))) + 0.5 * math.log(math.pi / 2)


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
            ratio = np.exp(_log_mills_of(middle))
            slope = np.where(middle > 1e4, 1 / np.square(middle), 1 - middle * ratio)  # -R' = 1 - x R
            gap = mu * slope / ratio
        else:
            gap = _log_mills_of(near) - _log_mills_of(mu + near)
        inside = special.log_ndtr(-near) + np.log(-np.expm1(-np.maximum(gap, 1e-300)))
        # Far to the left the first term is 1, and the second is e^epsilon Phi(-mu - t), at most 1.
        right = np.maximum(mu + t, 0)
        second = np.where(
            mu + t > 0,
            -t * t / 2 - 0.5 * math.log(2 * math.pi) + _log_mills_of(right),
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

    guess = math.log(2 * epsilon / (math.sqrt(2 * epsilon - 2 * math.log(delta)) - math.log(delta)) + delta)
    root = monotone_root(excess, guess, _LOGS, step=2.0, growth=1.0)
    mu, step = math.exp(root), 1e-14
    while gaussian_epsilon(mu, delta) > epsilon:  # by rounding
        mu *= 1 - step
        step *= 2
        if step > 1e-3:
            raise InputError(
                f"epsilon = {epsilon} and delta = {delta} are too extreme to solve for mu: raise one of them."
            )
    return mu


def _log_mills_of(x: FloatArray) -> FloatArray:
    """Return ``ln (Phi(-x) / phi(x))`` for ``x`` of ``_FAR`` or more."""
    return np.asarray(np.log(special.erfcx(x / math.sqrt(2))) + 0.5 * math.log(math.pi / 2), dtype=np.float64)
