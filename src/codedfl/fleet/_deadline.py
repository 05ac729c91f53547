"""The deadline at which training is predicted to be fastest: longer rounds have fewer stragglers and larger batches."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
from scipy import optimize

from codedfl.fleet._timing import Timing
from codedfl.typing import FloatArray, IntArray

ROUNDS_NEEDED = 15.0
"""Rounds that training takes even if every gradient is exact."""

CANDIDATES = 2.0 ** np.arange(-4.0, 6.1, 0.5)
"""Deadlines to choose from, in units of the one that is set."""

SLOWEST = 1000.0
"""A device that takes longer for its rows than this many times the fastest median is given up, and counts as taking that long."""

MOST_DEVICES = 512
"""Devices that the choice looks at; of more, evenly spaced ones."""

QUADRATURE_POINTS = 65


def expected_batch(timing: Timing, samples: IntArray) -> FloatArray:
    """Return ``E[b_k^i]``, the mean of the largest batch that meets the deadline, 0 in rounds that a device misses.

    A batch has ``n`` rows or more with probability ``p_i(n)``, so this is ``sum_{n=1}^{l_i} p_i(n)``, here by quadrature. In a
    measured fleet batches do not adapt: it is the usual batch times ``p_i``.

    Args:
        timing: the times of a round.
        samples: ``l_i``, (N,).

    Example:
        >>> from codedfl.fleet import Channel, Fleet, RoundTiming, Workload
        >>> fleet = Fleet(("a", "b"), np.array([1.2e6, 1.5e6]), np.array([15.0, 25.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
        >>> expected_batch(timing, np.array([3000, 3000])).round()
        array([185., 309.])
    """
    if not timing.radio:
        return timing.expected_batch(samples)
    share = np.linspace(0.0, 1.0, QUADRATURE_POINTS)
    # Beyond the rows that fit without any upload the probability is zero, so points there would be wasted.
    room = np.maximum(timing.deadline_s - timing.download_s, 0.0) / timing.seconds_per_sample
    most = np.maximum(np.minimum(samples, room), 1.0)
    sizes = 1.0 + share[:, None] * (most - 1.0)
    window = np.maximum(timing.deadline_s - timing.download_s - sizes * timing.seconds_per_sample, 0.0)
    arrives = np.exp(-timing.outage_exponents(window))
    mean = np.trapezoid(arrives, sizes, axis=0) + 0.5 * (arrives[0] + arrives[-1] * (most >= samples))
    return np.where(samples > 0, np.minimum(mean, samples), 0.0)


def epoch_seconds(timing: Timing, samples: IntArray) -> FloatArray:
    """Return the mean time in which each device gets through as many rows as it has: ``T l_i / E[b_k^i]``, (N,)."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        seconds = timing.deadline_s * samples / expected_batch(timing, samples)
    return np.where(samples > 0, seconds, 0.0)


def fastest_deadline(timing: Timing, samples: IntArray) -> float:
    """Return the deadline at which training is predicted to be fastest, among `CANDIDATES` times that of ``timing``.

    The prediction is `ROUNDS_NEEDED` rounds, plus the mean time in which a device gets through its rows. Short rounds leave slow
    devices behind, long ones are few. If arrivals are known for one deadline alone, it is that one.

    Args:
        timing: the times of a round, with the deadline that is set.
        samples: ``l_i``, (N,).

    Example:
        A channel on which most devices need longer than the deadline:

        >>> from codedfl.fleet import Channel, Fleet, RoundTiming, Workload
        >>> fleet = Fleet(tuple("abc"), np.full(3, 1.5e6), np.array([15.0, 17.0, 20.0]))
        >>> slow = RoundTiming(fleet, Channel(bandwidth_hz=20e3), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
        >>> slow.straggler_ratio(1) > 0.5, round(fastest_deadline(slow, np.full(3, 3000)), 1)
        (True, 28.3)
    """
    has_rows = np.flatnonzero(samples > 0)
    if has_rows.size == 0 or timing.fixed_deadline:
        return timing.deadline_s
    looked_at = has_rows[np.unique(np.linspace(0, has_rows.size - 1, MOST_DEVICES).astype(np.int64))]
    part, rows = timing.among(looked_at), samples[looked_at]
    deadlines = timing.deadline_s * CANDIDATES
    epochs = np.array([epoch_seconds(replace(part, deadline_s=float(deadline)), rows) for deadline in deadlines])
    longest = SLOWEST * float(np.min(np.median(epochs, axis=1)))
    if not np.isfinite(longest):
        return timing.deadline_s
    predicted = ROUNDS_NEEDED * deadlines + np.mean(np.minimum(epochs, longest), axis=1)
    return float(deadlines[int(np.argmin(predicted))])


LATE = 0.02
"""Share of the updates that may be late. Every update costs privacy, so rounds are long enough for nearly all of them."""


def patient_deadline(timing: Timing, batch_sizes: IntArray) -> float:
    """Return the least deadline at which a share `LATE` of the updates or fewer are late on average.

    If more than that never arrive however long a round lasts, it is the deadline beyond which nobody else arrives.

    Args:
        timing: fleet, channel and workload.
        batch_sizes: rows that each device computes on, (N,); 0 for a device without any.

    Example:
        >>> from codedfl.fleet import Channel, Fleet, RoundTiming, Workload
        >>> fleet = Fleet(("a", "b"), np.array([1.2e6, 1.5e6]), np.array([15.0, 25.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
        >>> round(patient_deadline(timing, np.array([3000, 3000])), 1)
        121.9
    """
    taking_part = batch_sizes > 0
    if not taking_part.any():
        return timing.deadline_s

    def excess(log_deadline: float) -> float:
        patient = replace(timing, deadline_s=math.exp(log_deadline))
        return float(np.mean(1 - patient.arrival_probability(batch_sizes)[taking_part])) - LATE

    longest_s = timing.longest_s(batch_sizes)
    if math.isfinite(longest_s) and excess(math.log(longest_s)) > 0:
        return longest_s
    low = high = math.log(timing.shortest_s(batch_sizes))
    while excess(high) > 0:
        high += 1.0
    if high == low:
        return math.exp(high)
    enough = float(optimize.brentq(excess, low, high, xtol=1e-9)) + 1e-9
    while excess(enough) > 0:  # recorded answers come in steps
        enough += 1e-9
    return math.exp(enough)
