"""Numerics of the accountants: logarithms of chi-square tails without underflow or cancellation, and roots of monotone functions.

A budget of epsilon = 12,000 needs ``ln SF`` near ``-12,000``, where the survival function itself is zero in floating point.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize, special

from codedfl.typing import FloatArray

_SMALLEST = 1e-280
"""Below this probability, scipy's incomplete gamma functions come close to underflow."""

_LARGEST = 1e300

_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360)
"""``ln Gamma(a + 1) - (a ln a - a + 1/2 ln(2 pi a))`` in powers ``a^-1, a^-3, ...``"""


def x_minus_log1p(x: FloatArray | float) -> FloatArray:
    """Return ``x - ln(1 + x) >= 0`` without cancellation near 0; infinite at ``x = -1``.

    Near 0 it is ``x t - 2 (t^3/3 + t^5/5 + ...)`` with ``t = x / (2 + x)``, from ``ln(1 + x) = 2 artanh(t)``.

    Example:
        >>> float(x_minus_log1p(2e-9))
        1.9999999973333333e-18
    """
    value = np.asarray(x, dtype=np.float64)
    t = np.where(np.abs(value) < 0.3, value / (2 + np.where(value > -1, value, 0.0)), 0.0)
    tail = np.zeros_like(t)
    for odd in range(25, 1, -2):
        tail = (tail + 1 / odd) * t * t
    with np.errstate(divide="ignore"):
        direct = value - np.log1p(value)
    return np.where(np.abs(value) < 0.3, value * t - 2 * t * tail, direct)


def log_difference(larger: FloatArray | float, gap: FloatArray | float) -> FloatArray:
    """Return ``ln(e^larger - e^(larger - gap))`` for ``gap >= 0``.

    Example:
        >>> float(log_difference(-20_000.0, math.log(2))) - math.log(0.5)
        -20000.0
    """
    g = np.asarray(gap, dtype=np.float64)
    with np.errstate(divide="ignore"):
        kept = np.where(g < math.log(2), np.log(-np.expm1(-g)), np.log1p(-np.exp(-g)))
    return np.asarray(larger + kept, dtype=np.float64)


def log_chi_square_sf(x: FloatArray | float, freedom: float) -> FloatArray:
    """Return ``ln P(chi2_freedom > x)``.

    Example:
        >>> float(log_chi_square_sf(10.0, 2))  # exp(-x / 2) for two degrees of freedom
        -5.0
        >>> round(float(log_chi_square_sf(40_000.0, 10_000)), 6)
        -8074.804447
    """
    return _log_tails(x, freedom)[1]


def log_chi_square_cdf(x: FloatArray | float, freedom: float) -> FloatArray:
    """Return ``ln P(chi2_freedom < x)``.

    Example:
        >>> round(float(log_chi_square_cdf(1e-300, 4)), 6)  # (x / 2)^2 / 2 near 0
        -1383.630497
    """
    return _log_tails(x, freedom)[0]


def log_chi_square_density(x: FloatArray | float, freedom: float) -> FloatArray:
    """Return the logarithm of the density of ``chi2_freedom`` at ``x > 0``.

    Example:
        >>> round(float(log_chi_square_density(10.0, 2)), 6)
        -5.693147
    """
    shape, point = freedom / 2, np.asarray(x, dtype=np.float64) / 2
    return np.asarray(_log_term(shape, point) + np.log(shape) - np.log(point) - math.log(2), dtype=np.float64)


def log_chi_square_hazard(x: FloatArray | float, freedom: float, *, upper: bool) -> FloatArray:
    """Return ``ln(density / SF)`` at ``x > 0``, or ``ln(density / CDF)`` if not ``upper``, without cancellation in either tail.

    Example:
        >>> round(float(log_chi_square_hazard(1e30, 2, upper=True)), 6)  # -ln 2: an exponential law has a constant hazard
        -0.693147
    """
    shape, point = freedom / 2, np.clip(np.asarray(x, dtype=np.float64) / 2, 1 / _LARGEST, _LARGEST)
    tail = log_chi_square_sf(2 * point, freedom) if upper else log_chi_square_cdf(2 * point, freedom)
    far = (tail < -500) & ((point > shape) if upper else (point < shape))
    result = np.asarray(log_chi_square_density(2 * point, freedom) - tail, dtype=np.float64)
    fraction = _upper_fraction if upper else _lower_fraction
    result[far] = np.log(fraction(shape, point[far])) - np.log(2 * point[far])
    return result


def _log_tails(x: FloatArray | float, freedom: float) -> tuple[FloatArray, FloatArray]:
    """Return ``ln P(a, x)`` and ``ln Q(a, x)``; the larger of the two through its complement."""
    shape, point = freedom / 2, np.clip(np.asarray(x, dtype=np.float64) / 2, 0, _LARGEST)
    left = point <= shape
    lower, upper = np.zeros_like(point), np.zeros_like(point)
    lower[left], upper[~left] = _log_lower(shape, point[left]), _log_upper(shape, point[~left])
    upper[left], lower[~left] = np.log1p(-np.exp(lower[left])), np.log1p(-np.exp(upper[~left]))
    return lower, upper


def _log_lower(shape: float, point: FloatArray) -> FloatArray:
    """Return ``ln P(a, x)`` for ``x <= a``; by scipy unless it underflows or truncates its series too early (large ``a``)."""
    lower = special.gammainc(shape, point)
    own = lower < _SMALLEST
    if shape > 1e4:
        own |= point < shape - 4 * math.sqrt(shape)
    with np.errstate(divide="ignore"):
        result = np.log(lower)
    if own.any():
        result[own] = _log_term(shape, point[own]) + math.log(shape) - np.log(_lower_fraction(shape, point[own]))
    return np.asarray(result, dtype=np.float64)


def _log_upper(shape: float, point: FloatArray) -> FloatArray:
    """Return ``ln Q(a, x)`` for ``x > a``; by scipy unless it underflows."""
    upper = special.gammaincc(shape, point)
    own = upper < _SMALLEST
    with np.errstate(divide="ignore"):
        result = np.log(upper)
    if own.any():
        result[own] = _log_term(shape, point[own]) + math.log(shape) - np.log(_upper_fraction(shape, point[own]))
    return np.asarray(result, dtype=np.float64)


def _log_term(shape: float, point: FloatArray) -> FloatArray:
    """Return ``ln(x^a e^-x / Gamma(a + 1))``; for large ``a`` in the form ``-a (u - ln(1 + u)) - ...``, ``u = (x - a) / a``."""
    if shape < 15:
        return np.asarray(special.xlogy(shape, point) - point - special.gammaln(shape + 1), dtype=np.float64)
    correction = sum(value / shape ** (2 * k + 1) for k, value in enumerate(_STIRLING))
    with np.errstate(divide="ignore"):  # 1 + u has no digits left when x is far below a
        height = np.where(
            point < 1e-3 * shape,
            (point - shape) / shape - np.log(point / shape),
            x_minus_log1p((point - shape) / shape),
        )
    return -shape * height - 0.5 * math.log(2 * math.pi * shape) - correction


def _upper_fraction(shape: float, point: FloatArray) -> FloatArray:
    """Return the fraction in ``Q = x^a e^-x / Gamma(a) / (x + 1 - a - 1 (1 - a) / (x + 3 - a - 2 (2 - a) / ...))``."""
    return _continued_fraction(point + 1 - shape, lambda i: i * (shape - i), 2)


def _lower_fraction(shape: float, point: FloatArray) -> FloatArray:
    """Return the fraction in ``P = x^a e^-x / Gamma(a) / (a - x + 1 x / (a + 1 - x + 2 x / ...))``."""
    return _continued_fraction(shape - point, lambda i: i * point, 1)


def _continued_fraction(first: FloatArray, numerator: Callable[[int], FloatArray | float], step: int) -> FloatArray:
    """Return ``b_0 + a_1 / (b_1 + a_2 / (b_2 + ...))`` with ``b_i = first + step i`` by Lentz's method."""
    b, c, d = first.copy(), first.copy(), np.zeros_like(first)
    value = first.copy()
    for i in range(1, 100_000):
        a = numerator(i)
        b = b + step
        c = b + a / c
        d = 1 / (b + a * d)
        value = value * (c * d)
        if (np.abs(c * d - 1) < 1e-15).all():
            break
    return value


def monotone_root(
    function: Callable[[float], float],
    guess: float,
    limits: tuple[float, float],
    *,
    rising: bool = True,
    step: float = 1.0,
    growth: float = 2.0,
    xtol: float = 1e-14,
    rtol: float = 1e-14,
) -> float:
    """Return where a monotone function crosses 0 within limits, by Brent's method on a bracket that grows from a guess.

    `scipy.optimize.elementwise.bracket_root` widens brackets as well, but on both sides at once, which doubles the number of
    evaluations (some take a tenth of a second), and it only approaches a limit and never tries it.

    Args:
        function: it rises, or it falls.
        guess: where to begin.
        limits: the range.
        rising: whether it rises.
        step: by which the bracket grows first.
        growth: factor by which each step is larger than the one before.
        xtol: absolute precision.
        rtol: relative precision.

    Returns:
        The root; minus infinity if the function is beyond its root at the lower limit, infinity if it never gets there.

    Example:
        >>> round(monotone_root(lambda x: x**3 - 8, 0.5, (-100, 100)), 9)
        2.0
        >>> monotone_root(lambda x: x, 7.0, (1, 10)), monotone_root(lambda x: -1 - x, 7.0, (1, 10), rising=False)
        (-inf, -inf)
    """
    near = min(max(guess, limits[0]), limits[1])
    positive = function(near) > 0
    outwards = -1.0 if positive == rising else 1.0
    while True:
        far = min(max(near + outwards * step, limits[0]), limits[1])
        if (function(far) > 0) != positive:
            low, high = sorted((near, far))
            return float(optimize.brentq(function, low, high, xtol=xtol, rtol=rtol))
        if far == near:
            return outwards * math.inf
        near, step = far, growth * step
