"""What is missing from a privacy budget, solved from the exact delta."""

from __future__ import annotations

import math
from collections.abc import Callable

from scipy import optimize

from codedfl._validation import require_at_least, require_non_negative, require_positive
from codedfl.errors import InputError
from codedfl.privacy._adjacency import Adjacency
from codedfl.privacy._exact import log_delta

MOST_CODED_SAMPLES = 2**40
"""More coded samples than this are never looked for."""

_LEAST_EPSILON = 1e-15


def exact_epsilon(
    delta: float, coded_samples: int, signal_to_noise: float, adjacency: Adjacency = "add-remove"
) -> float:
    """Return the least epsilon at which the coded upload is (epsilon, delta)-differentially private.

    Args:
        delta: Between 0 and 1, both excluded.
        coded_samples: ``c``.
        signal_to_noise: ``r``, see :func:`codedfl.privacy._exposure.signal_to_noise`.
        adjacency: Which datasets are neighbours.

    Returns:
        Epsilon in nats; 0 if delta alone covers it, infinite without noise.

    Example:
        >>> round(exact_epsilon(1e-5, coded_samples=10_000, signal_to_noise=4.0))
        13181
    """
    require_probability("delta", delta)
    if math.isinf(signal_to_noise):
        return math.inf

    def shortfall(log_epsilon: float) -> float:
        return math.log(delta) - log_delta(math.exp(log_epsilon), coded_samples, signal_to_noise, adjacency)

    if shortfall(-math.inf) >= 0:
        return 0.0
    if shortfall(math.log(_LEAST_EPSILON)) >= 0:
        return _LEAST_EPSILON
    return math.exp(_increasing_root(shortfall, math.log(signal_to_noise * math.sqrt(coded_samples))))


def largest_signal_to_noise(
    epsilon: float, delta: float, coded_samples: int, adjacency: Adjacency = "add-remove"
) -> float:
    """Return the largest ``r = B^2 / sigma^2`` at which the coded upload is (epsilon, delta)-differentially private.

    Example:
        >>> r = largest_signal_to_noise(1.0, 1e-5, coded_samples=10_000)
        >>> round(exact_epsilon(1e-5, 10_000, r), 9)
        1.0
    """
    require_non_negative("epsilon", epsilon)
    require_probability("delta", delta)
    require_at_least("coded_samples", coded_samples, 1)

    def excess(log_ratio: float) -> float:
        return log_delta(epsilon, coded_samples, math.exp(log_ratio), adjacency) - math.log(delta)

    return math.exp(_increasing_root(excess, math.log((epsilon + delta) / math.sqrt(coded_samples))))


def most_coded_samples(
    epsilon: float, delta: float, signal_to_noise: float, adjacency: Adjacency = "add-remove"
) -> int:
    """Return the largest number of coded samples that keeps an upload (epsilon, delta)-differentially private.

    Returns:
        The number; 0 if not even one coded sample keeps the budget.

    Example:
        >>> most_coded_samples(1.0, 1e-5, signal_to_noise=0.01)
        1319
        >>> most_coded_samples(1.0, 1e-5, signal_to_noise=4.0)
        0
    """
    require_non_negative("epsilon", epsilon)
    require_probability("delta", delta)
    require_positive("signal_to_noise", signal_to_noise)

    def keeps(coded_samples: int) -> bool:
        return log_delta(epsilon, coded_samples, signal_to_noise, adjacency) <= math.log(delta)

    if not keeps(1):
        return 0
    enough, too_many = 1, 2
    while keeps(too_many):
        enough, too_many = too_many, 2 * too_many
        if too_many > MOST_CODED_SAMPLES:
            raise InputError(
                f"epsilon = {epsilon} is kept by more than {MOST_CODED_SAMPLES} coded samples at this noise: "
                "lower the noise, or give coded_samples and solve for something else."
            )
    while too_many - enough > 1:
        middle = (enough + too_many) // 2
        enough, too_many = (middle, too_many) if keeps(middle) else (enough, middle)
    return enough


def require_probability(name: str, value: float) -> None:
    """Refuse a value that does not lie strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InputError(f"{name} = {value} must lie between 0 and 1, both excluded.")


def _increasing_root(function: Callable[[float], float], guess: float) -> float:
    """Return where an increasing function crosses 0, looking outwards from ``guess`` in steps that double."""
    low = high = guess
    step = 1.0
    while function(low) > 0:
        low, high, step = low - step, low, 2 * step
    if low == high:
        step = 1.0
        while function(high) <= 0:
            low, high, step = high, high + step, 2 * step
    return float(optimize.brentq(function, low, high, xtol=1e-14, rtol=1e-14))
