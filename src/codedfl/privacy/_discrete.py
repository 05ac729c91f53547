"""Gaussian noise on a grid, drawn exactly in integers, for numbers that leave a real device.

A float64 that a sampler computed has a lattice of values behind it, and which lattice depends on what the noise was added to:
Mironov (2012) reads data from the low bits. Here noise is an integer multiple of a public step, drawn without rounding from the
bits of the operating system, and added to values that are multiples of the step as well. So whatever is sent is a function of
the exact sum, and rounding it further reveals nothing.

References:
    Mironov: On significance of the least significant bits for differential privacy. CCS 2012.
    Canonne, Kamath, Steinke: The discrete Gaussian for differential privacy. NeurIPS 2020.
    Karney: Sampling exactly from the normal distribution. ACM Transactions on Mathematical Software 42, 2016.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from codedfl._validation import require_at_least, require_finite, require_non_negative
from codedfl.errors import InputError
from codedfl.privacy._inputs import require_count, require_number, require_positive_number, shown
from codedfl.typing import BoolArray, FloatArray, IntArray

RandomBytes = Callable[[int], bytes]
"""Returns so many random bytes, as `os.urandom` does."""

Flip = Callable[[IntArray], BoolArray]
"""Flips one coin for each of the places that it is given."""

STEP_BITS = 46
"""The step of the grid is the standard deviation over 2^46 to 2^47."""

MOST_EXCESS = 2.0**-10
"""By how much, relatively, rounding to the grid may raise a sensitivity: less than 0.1%."""

LARGEST_SUM_SCALE = 2**49
"""The largest scale of noise that is added to values: up to 16 deviations of it are exact in a float64."""

LARGEST_SCALE = 2**56
"""The largest scale of discrete noise."""

_SMALLEST_DEVIATION = 2.0**-900
_BLOCK = 2**17
"""Candidates drawn at once, so that their arrays stay in the cache."""


def grid_step(standard_deviation: float) -> float:
    """Return the step ``g`` of the grid of noise: the power of two with ``2^46 <= s / g < 2^47``.

    It is a function of the standard deviation ``s`` alone, so it is as public as that.

    Example:
        >>> grid_step(1.0) == 2.0**-46, grid_step(1.99) == 2.0**-46, grid_step(2.0) == 2.0**-45
        (True, True, True)
    """
    require_positive_number("standard_deviation", standard_deviation)
    if standard_deviation < _SMALLEST_DEVIATION:
        raise InputError(f"standard_deviation = {standard_deviation} must be {_SMALLEST_DEVIATION:.3g} or more.")
    _, exponent = math.frexp(standard_deviation)
    return math.ldexp(1.0, exponent - 1 - STEP_BITS)


def rounded_sensitivity(sensitivity: float, entries: int, step: float, computation_error: float = 0.0) -> float:
    """Return the sensitivity ``Delta + g sqrt(n) + 2 e`` of values that were computed in floats and rounded to a grid.

    Rounding moves each of ``n`` entries by at most ``g / 2``, so a vector by ``g sqrt(n) / 2``, and two neighbouring
    ones apart by twice that. The same holds of the error ``e`` of a computation in floats.

    Args:
        sensitivity: ``Delta``, the largest change of the exact values in Euclidean norm.
        entries: ``n``.
        step: ``g``.
        computation_error: ``e``, the largest error of the computed values in Euclidean norm.

    Example:
        >>> rounded_sensitivity(1.0, entries=10_000, step=2.0**-20)
        1.0000953...
    """
    require_number("sensitivity", sensitivity)
    require_count("entries", entries)
    require_number("step", step)
    require_number("computation_error", computation_error)
    return sensitivity + step * math.sqrt(entries) + 2 * computation_error


def gaussian_noise_on_grid(
    values: FloatArray,
    standard_deviation: float,
    sensitivity: float = math.inf,
    *,
    computation_error: float = 0.0,
    random_bytes: RandomBytes = os.urandom,
) -> FloatArray:
    """Return values with Gaussian noise, both on the grid of step ``g = grid_step(s)``.

    Values are rounded to multiples of ``g``, which raises their sensitivity from ``Delta`` to that of
    `rounded_sensitivity`, and the standard deviation is raised by the same factor: by 0.1% at most, where values are
    computed without error, and by a millionth of that in common cases. Noise is a discrete Gaussian,
    ``P(k g) ~ exp(-(k g)^2 / (2 s'^2))``.

    This is as private as a release of ``f + N(0, s^2 I)`` with sensitivity ``Delta``. A discrete Gaussian has the same
    concentrated differential privacy as the continuous one (Canonne, Kamath, Steinke 2020). And its law is that of continuous
    noise rounded to the grid, up to ``sqrt(n) 2^-92 / 25`` in total variation (`rounding_delta`). So every (epsilon, delta) of
    the continuous one holds with a delta that is larger by ``(1 + e^epsilon)`` times this: by less than 5e-26 for ``n`` of
    2 million and epsilon = 1.

    The sum is exact, or the float64 next to it where it is longer than 53 bits: either way a function of the exact sum.

    Args:
        values: finite numbers.
        standard_deviation: ``s``.
        sensitivity: ``Delta``, the largest change of the exact values by one sample in Euclidean norm. Infinite if no guarantee
            rests on it, as with coded rows, whose projection hides the samples too: then the noise is not raised, and
            `rounding_delta` has what rounding costs.
        computation_error: the largest error of the computed values, in Euclidean norm.
        random_bytes: the source of noise: the operating system, but for tests.

    Returns:
        Multiples of ``g`` in float64, in the shape of the values.

    Raises:
        InputError: a value is not finite, or ``s sqrt(n) / Delta`` is above 2^36, where the grid is too coarse.

    Example:
        >>> noisy = gaussian_noise_on_grid(np.zeros(1000), 2.0, sensitivity=1.0)
        >>> bool((noisy / grid_step(2.0) % 1 == 0).all()), bool(1.5 < noisy.std() < 2.5)
        (True, True)
    """
    step = grid_step(standard_deviation)
    require_finite("values", values)
    require_non_negative("computation_error", computation_error)
    if values.size == 0:
        return np.zeros(values.shape)
    growth = 1.0
    if sensitivity != math.inf:
        require_positive_number("sensitivity", sensitivity)
        if rounded_sensitivity(sensitivity, values.size, step) > (1 + MOST_EXCESS) * sensitivity:
            raise InputError(
                f"standard_deviation = {standard_deviation:g} is too large for {values.size} values of sensitivity "
                f"{sensitivity:g}: lower it, or raise the clip norm."
            )
        growth = rounded_sensitivity(sensitivity, values.size, step, computation_error) / sensitivity
    # One more for the rounding of the product, so that noise is never below what was asked for.
    wanted = standard_deviation / step * growth + 1
    if not wanted <= LARGEST_SUM_SCALE:
        raise InputError(f"computation_error = {shown(computation_error)} is too large: raise the sensitivity.")
    noise = discrete_gaussian(values.size, math.ceil(wanted), random_bytes).reshape(values.shape)
    # Scaling by a power of two is exact, and one addition in IEEE arithmetic is the exact sum, rounded once.
    with np.errstate(over="ignore"):
        whole = np.rint(values.astype(np.float64) / step)
    on_grid = np.where(np.isfinite(whole), whole * step, values)
    noisy: FloatArray = on_grid + noise * step
    return noisy


def rounding_delta(entries: int, error: float, epsilon: float) -> float:
    """Return what is to be added to delta, as a device computes in floats and on a grid.

    An ideal device sends ``A + s Z`` with a real ``A`` and normal ``Z``, and has (epsilon, delta). A real one computes
    ``A'`` instead of ``A``, rounds to the grid of step ``g <= s / 2^46``, and adds discrete noise. The total variation
    between what it sends and what the ideal device would send, rounded to the grid, is at most

    ``t = E||A' - A|| / (s sqrt(2 pi)) + sqrt(n) g / (2 s sqrt(2 pi)) + sqrt(n) (g / s)^2 / 25``:

    - normal laws whose means are ``m`` standard deviations apart have total variation
      ``2 Phi(m / 2) - 1 <= m / sqrt(2 pi)``, and ``A'`` may depend on ``A`` in any way, but not on ``Z``;
    - rounding to the grid moves the mean by at most ``g sqrt(n) / 2``;
    - on a grid, the divergence of discrete noise ``P`` from rounded noise ``Q`` is ``KL(P || Q) <= (g / s)^4 / 320``
      per entry, by ``log cosh z >= z^2 / 2 - z^4 / 12`` and Jensen's inequality, and total variation at most
      ``sqrt(n KL / 2)``.

    So the real device has ``(epsilon, delta + (1 + e^epsilon) t)``. No probability of landing in another cell of a
    coarser grid comes into it: rounding the sum again, to float32 for example, changes nothing.

    Args:
        entries: ``n``, numbers with noise.
        error: ``E||A' - A|| / s``, the error in standard deviations of the noise.
        epsilon: that of the ideal device.

    Example:
        >>> f"{rounding_delta(20_000_000, error=1e-9, epsilon=1.0):.2g}"
        '1.5e-09'
    """
    require_count("entries", entries)
    require_number("error", error)
    require_number("epsilon", epsilon)
    step, root = 2.0**-STEP_BITS, math.sqrt(entries)
    distance = (error + root * step / 2) / math.sqrt(2 * math.pi) + root * step**2 / 25
    try:
        return min((1 + math.exp(epsilon)) * distance, 1.0)
    except OverflowError:
        return 1.0


def discrete_gaussian(count: int, scale: int, random_bytes: RandomBytes = os.urandom) -> IntArray:
    """Draw integers with ``P(y) ~ exp(-y^2 / (2 scale^2))``, exactly: with random bits and comparisons of integers alone.

    By Karney's (2016) decomposition ``|y| = scale k + j``. First ``k``, with ``P(k) ~ exp(-k^2 / 2)``, is a number of
    heads in a row of coins with ``exp(-1/2)``, kept with probability ``exp(-k (k - 1) / 2)``. Then ``j`` is uniform
    below ``scale``, and with ``x = j / scale`` kept with probability ``exp(-x^2 / 2) exp(-x)^k``. A coin with
    ``exp(-p)`` is one with ``p / 1``, then one with ``p / 2``, and so on until tails: the number of flips is odd with
    probability ``exp(-p)`` (von Neumann; Canonne, Kamath, Steinke 2020).

    Args:
        count: how many.
        scale: a whole number from 1 to 2^56, so that 128 times as much still fits into 64 bits.
        random_bytes: the source of bits.

    Example:
        >>> draws = discrete_gaussian(1000, 2**46)
        >>> bool(0.8 < draws.std() / 2**46 < 1.2)
        True
    """
    require_at_least("count", count, 0)
    require_count("scale", scale, LARGEST_SCALE)
    drawn = np.empty(count, np.int64)
    found = 0
    while found < count:
        # About half of all candidates are kept.
        kept = _kept(min(_BLOCK, 2 * (count - found) + 16), scale, random_bytes)[: count - found]
        drawn[found : found + len(kept)] = kept
        found += len(kept)
    return drawn


def _kept(candidates: int, scale: int, source: RandomBytes) -> IntArray:
    """Return those of so many candidates that rejection leaves."""

    def half(places: IntArray) -> BoolArray:
        """Flip coins with probability exp(-1/2)."""
        return _exponential_coins(len(places), lambda among: _below(2, len(among), source) == 0, source)

    whole = np.zeros(candidates, np.int64)
    heads = np.arange(candidates)
    while len(heads):
        heads = heads[half(heads)]
        whole[heads] += 1
    whole = whole[_all_heads(whole * (whole - 1), half)]

    part = _below(scale, len(whole), source)

    def less(places: IntArray) -> BoolArray:
        """Flip coins with probability x."""
        return _below(scale, len(places), source) < part[places]

    def squared(places: IntArray) -> BoolArray:
        """Flip coins with probability x^2 / 2."""
        both: BoolArray = _below(2, len(places), source) == 0
        both[both] = less(places[both])
        both[both] = less(places[both])
        return both

    keep = _exponential_coins(len(whole), squared, source)
    whole, part = whole[keep], part[keep]
    keep = _all_heads(whole, lambda places: _exponential_coins(len(places), lambda among: less(places[among]), source))
    size = whole[keep] * scale + part[keep]
    negative = _below(2, len(size), source) == 1
    once = ~(negative & (size == 0))  # zero has one sign, or it would come twice as often
    signed: IntArray = np.where(negative, -size, size)[once]
    return signed


def _exponential_coins(count: int, flip: Flip, source: RandomBytes) -> BoolArray:
    """Flip coins with probability ``exp(-p)``, given coins with probability ``p <= 1`` for each place."""
    heads = np.zeros(count, np.bool_)
    going = np.arange(count)
    number = 1
    while len(going):
        on = flip(going)
        if number > 1:
            on[on] = _below(number, int(np.count_nonzero(on)), source) == 0
        if number % 2:
            heads[going[~on]] = True
        going = going[on]
        number += 1
    return heads


def _all_heads(times: IntArray, flip: Flip) -> BoolArray:
    """Return where as many flips as ``times`` says all show heads."""
    alive = np.ones(len(times), np.bool_)
    going = np.flatnonzero(times > 0)
    done = 0
    while len(going):
        heads = flip(going)
        alive[going[~heads]] = False
        done += 1
        going = going[heads]
        going = going[times[going] > done]
    return alive


def _below(bound: int, count: int, source: RandomBytes) -> IntArray:
    """Draw uniform integers from 0 to ``bound - 1``: random words below the last multiple of ``bound``, modulo ``bound``."""
    word = np.dtype(np.uint8 if bound <= 16 else np.uint64)

    def words(number: int) -> npt.NDArray[np.unsignedinteger[Any]]:
        return np.frombuffer(bytearray(source(word.itemsize * number)), word)

    numbers = words(count)
    end = 2 ** (8 * word.itemsize) // bound * bound
    if end < 2 ** (8 * word.itemsize):
        beyond = np.flatnonzero(numbers >= word.type(end))
        while len(beyond):
            numbers[beyond] = words(len(beyond))
            beyond = beyond[numbers[beyond] >= word.type(end)]
    numbers %= word.type(bound)
    return numbers.astype(np.int64)
