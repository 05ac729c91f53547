"""Roots of many functions at once, for functions that get cheaper when fewer roots are left to find."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from codedfl.typing import FloatArray, IntArray

Restrict = Callable[[IntArray], Callable[[FloatArray], FloatArray]]
"""Gives, for the numbers of some functions, the one that evaluates each of them at a point of its own."""


def find_roots(restrict: Restrict, low: FloatArray, high: FloatArray, tolerance: float = 1e-15) -> FloatArray:
    """Return a root of each function between ``low`` and ``high``, where its signs differ.

    Chandrupatla's method: inverse quadratic interpolation where that is safe, bisection elsewhere. Unlike
    ``scipy.optimize.elementwise.find_root``, it tells the functions when most of them are done, so that sums over many terms
    are no longer formed for those. A function may jump over zero; then the place of the jump is found. The tolerance is
    relative for roots beyond 1 and absolute for others.

    References:
        T. R. Chandrupatla, "A new hybrid quadratic/bisection algorithm for finding the zero of a nonlinear function without
        using derivatives", Advances in Engineering Software 28(3), 1997.

    Example:
        >>> find_roots(lambda which: lambda x: x**2 - (which + 2), np.zeros(2), np.full(2, 9.0)).round(6).tolist()
        [1.414214, 1.732051]
    """
    roots = np.array(low)
    which = np.arange(low.size)
    function = restrict(which)
    x1, x2 = high, low
    f1, f2 = function(x1), function(x2)
    fraction = np.full(low.size, 0.5)
    looked_for = np.full(low.size, True)
    while looked_for.any():
        x = x1 + fraction * (x2 - x1)
        f = function(x)
        same = np.sign(f) == np.sign(f1)
        x3, f3 = np.where(same, x1, x2), np.where(same, f1, f2)
        x2, f2 = np.where(same, x2, x1), np.where(same, f2, f1)
        x1, f1 = x, f
        best = np.where(np.abs(f1) < np.abs(f2), x1, x2)
        with np.errstate(all="ignore"):
            least_step = tolerance * np.maximum(np.abs(best), 1.0) / np.abs(x2 - x1)
        done = looked_for & ((f == 0) | ~(least_step < 0.5))
        roots[which[done]] = best[done]
        looked_for &= ~done
        if 2 * np.count_nonzero(looked_for) < which.size:
            x1, x2, x3, f1, f2, f3 = (values[looked_for] for values in (x1, x2, x3, f1, f2, f3))
            which, least_step, looked_for = which[looked_for], least_step[looked_for], looked_for[looked_for]
            function = restrict(which)
        fraction = np.where(looked_for, _next_fraction((x1, x2, x3), (f1, f2, f3), least_step), 0.5)
    return roots


def _next_fraction(
    x: tuple[FloatArray, FloatArray, FloatArray], f: tuple[FloatArray, FloatArray, FloatArray], least_step: FloatArray
) -> FloatArray:
    """Return how far from ``x1`` towards ``x2`` to look next."""
    (x1, x2, x3), (f1, f2, f3) = x, f
    with np.errstate(all="ignore"):
        xi, phi = (x1 - x2) / (x3 - x2), (f1 - f2) / (f3 - f2)
        safe = (phi**2 < xi) & ((1 - phi) ** 2 < 1 - xi)
        curved = f1 * f3 / ((f2 - f1) * (f2 - f3)) + (x3 - x1) / (x2 - x1) * f1 * f2 / ((f3 - f1) * (f3 - f2))
        step = np.where(safe & np.isfinite(curved), curved, 0.5)
        return np.clip(step, np.minimum(least_step, 0.5), np.maximum(1 - least_step, 0.5))
