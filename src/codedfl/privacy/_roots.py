"""Roots of monotone functions whose whereabouts are known roughly."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import optimize


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
