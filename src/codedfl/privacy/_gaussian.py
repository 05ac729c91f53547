"""The exact (epsilon, delta) of Gaussian mechanisms, without underflow or cancellation."""

from __future__ import annotations

import math

from scipy import optimize, special

from codedfl.errors import InputError
from codedfl.privacy._inputs import require_probability

_TINY = 1e-4
"""Below this ``mu``, a difference of two Mills ratios is taken from their derivative; the error is of relative size mu^2."""

_FAR = -20.0
"""Mills ratios to the left of this point overflow and are computed from the normal distribution."""


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
