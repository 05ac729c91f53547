"""The design of a round: its deadline, and how many samples each device and the server process.

Longer rounds have fewer stragglers and larger batches, short ones are many: `fastest_deadline` weighs the two, `patient_deadline`
waits for nearly everybody. The load allocation of CodedFedL and CFL-FB gives each device the load with the greatest expected
return, since a device that takes on more samples returns more if it arrives but arrives less often; the server's coded samples
make up for the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy import optimize

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.fleet._inputs import count_vector, counts, whole_number
from codedfl.fleet._measured import Timing
from codedfl.fleet._radio import RoundTiming
from codedfl.typing import BoolArray, FloatArray, IntArray

ROUNDS_NEEDED = 15.0
"""Rounds that training takes even if every gradient is exact."""

CANDIDATES = 2.0 ** np.arange(-4.0, 6.1, 0.5)
"""Deadlines to choose from, in units of the one that is set."""

SLOWEST = 1000.0
"""A device that takes longer for its rows than this many times the fastest median is given up, and counts as taking that long."""

MOST_DEVICES = 512
"""Devices that the choice looks at; of more, evenly spaced ones."""

LATE = 0.02
"""Share of the updates that may be late. Every update costs privacy, so rounds are long enough for nearly all of them."""

_RELATIVE_TOLERANCE = 1e-6
_MOST_DOUBLINGS = 40


def epoch_seconds(timing: Timing, samples: IntArray) -> FloatArray:
    """Return the mean time in which each device gets through as many rows as it has: ``T l_i / E[b_k^i]``, (N,)."""
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        seconds = timing.deadline_s * samples / timing.expected_batch(samples)
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


def expected_return(timing: Timing, loads: npt.ArrayLike) -> FloatArray:
    """Return E[R_i(T; l)] = l P(T_i(l) <= T), the expected return of each device in samples."""
    size = counts("loads", loads, timing.fleet.devices)
    return size * timing.arrival_probability(size)


def optimal_loads(timing: Timing, samples: npt.ArrayLike) -> IntArray:
    """Return the load with the greatest expected return, from 0 to l_i, for each device.

    ln E[R_i] = ln l - κ (2^(M / (B x)) - 1), x = T - t_D - a l, is concave, with its only stationary point where
    (T - t_D - x) κ (M / B) ln 2 · 2^(M / (B x)) = x². The integers beside that point are found by bisection on the sign
    of the slope, in logarithms, and compared. The load is 0 where nothing can arrive.

    A measured device takes as long as it takes, so the more it returns the better: the load is its usual batch.

    Example:
        >>> from codedfl.fleet import Channel, Fleet, Workload
        >>> fleet = Fleet(("near", "far"), np.array([1.5e6, 1.5e6]), np.array([25.0, 15.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
        >>> optimal_loads(timing, samples=3000)
        array([289, 231])
    """
    most = count_vector("samples", samples, timing.fleet.devices)
    if not timing.radio:
        usual = timing.fleet.usual_batch(most)
        return np.where(timing.arrival_probability(usual) > 0, usual, 0)
    low, high = np.zeros_like(most), most + 1
    while (high - low > 1).any():
        middle = (low + high) // 2
        rising = (middle > low) & _return_rises(timing, np.maximum(middle, 1))
        low, high = np.where(rising, middle, low), np.where(rising, high, np.maximum(middle, low + 1))
    above = np.minimum(low + 1, most)
    best = np.where(expected_return(timing, above) > expected_return(timing, low), above, low)
    return np.where(expected_return(timing, best) > 0, best, 0)


def _return_rises(timing: RoundTiming, loads: IntArray) -> BoolArray:
    """Whether d ln E[R] / dl = 1 / l - a κ (M / B) ln 2 · 2^(M / (B x)) / x² is at least zero."""
    window = timing.upload_window_s(loads)
    open_window = window > 0
    x = np.where(open_window, window, 1.0)
    scale = timing.workload.payload_bits / timing.channel.bandwidth_hz * math.log(2)
    with np.errstate(over="ignore"):
        growth = scale / x
    log_cost = np.log(timing.seconds_per_sample * timing.attenuation * scale) + growth - 2 * np.log(x)
    return np.asarray(open_window & (np.log(loads) + log_cost <= 0))


@dataclass(frozen=True, eq=False)
class Allocation:
    """The loads of the devices and of the server in one round.

    Args:
        deadline_s: t*, the duration of a round.
        loads: l_i*, samples per device, (N,).
        arrival_probability: P(T_i(l_i*) <= t*), (N,).
        server_load: coded samples for the server.
        expected_return: expected samples returned in time, including the server's.
    """

    deadline_s: float
    loads: IntArray
    arrival_probability: FloatArray
    server_load: int
    expected_return: float


def allocate(
    timing: Timing,
    samples: npt.ArrayLike,
    *,
    server_mac_rate: float,
    coded_samples: int,
    deadline: Literal["fixed", "free"],
) -> Allocation:
    """Choose the loads for the deadline of ``timing``, or jointly with the shortest deadline that returns all samples.

    With a free deadline the total expected return, sum_i E[R_i(t; l_i*(t))] + min(c, floor(t MACR_s / N_MAC)), must
    reach the number of samples. It never falls as t grows, so t* is found by doubling and bisection, to one part in a
    million from above.

    Args:
        timing: the round, with one local step.
        samples: l_i, number of samples of each device.
        server_mac_rate: MACR_s, in MAC per second.
        coded_samples: c.
        deadline: ``"fixed"`` or ``"free"``.

    Raises:
        InputError: no deadline, however long, returns all samples, or arrivals are known for one deadline alone.

    Example:
        >>> from codedfl.fleet import Channel, Fleet, Workload
        >>> fleet = Fleet(("near", "far"), np.array([1.5e6, 1.5e6]), np.array([25.0, 15.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 1), deadline_s=10.0)
        >>> best = allocate(timing, 300, server_mac_rate=1.5e7, coded_samples=200, deadline="free")
        >>> round(best.deadline_s, 1), best.loads, best.server_load
        (9.7, array([278, 220]), 200)
    """
    most = count_vector("samples", samples, timing.fleet.devices)
    coded = whole_number("coded_samples", coded_samples, 0)
    if timing.workload.local_steps != 1:
        raise InputError(
            f"workload.local_steps = {timing.workload.local_steps} must be 1: load allocation is for schemes with one "
            "gradient step per round."
        )

    def with_deadline(deadline_s: float) -> Allocation:
        return _at_deadline(replace(timing, deadline_s=deadline_s), most, server_mac_rate, coded)

    if deadline == "fixed":
        return with_deadline(timing.deadline_s)
    if deadline != "free":
        raise InputError(f"deadline = {shown(deadline)} must be 'fixed' or 'free'.")

    if timing.fixed_deadline:
        raise InputError(
            "deadline = 'free' is not possible with 'arrival_probability', which holds for a deadline of "
            f"{timing.deadline_s:g} s alone: give response times ('mean_s' and 'p95_s'), or use deadline = 'fixed'."
        )
    target = int(most.sum())
    if target == 0 or coded == 0:
        raise InputError(
            f"deadline = 'free' is not possible with {target} sample(s) at the devices and coded_samples = {coded}: "
            "devices alone never return all of their samples, so give both, or use deadline = 'fixed'."
        )
    low, high = 0.0, timing.deadline_s
    best = with_deadline(high)
    for _ in range(_MOST_DOUBLINGS):
        if best.expected_return >= target:
            break
        low, high = high, 2 * high
        best = with_deadline(high)
    else:
        raise InputError(
            f"deadline = 'free' is not possible with coded_samples = {coded}: a round of {high:.3g} s still returns only "
            f"{best.expected_return:.6g} of {target} samples, so raise coded_samples or use deadline = 'fixed'."
        )
    while high - low > _RELATIVE_TOLERANCE * high:
        middle = (low + high) / 2
        trial = with_deadline(middle)
        if trial.expected_return >= target:
            high, best = middle, trial
        else:
            low = middle
    return best


def _at_deadline(timing: Timing, samples: IntArray, server_mac_rate: float, coded_samples: int) -> Allocation:
    loads = optimal_loads(timing, samples)
    probability = timing.arrival_probability(loads)
    server_load = timing.server_capacity(server_mac_rate, coded_samples)
    return Allocation(
        deadline_s=timing.deadline_s,
        loads=loads,
        arrival_probability=probability,
        server_load=server_load,
        expected_return=float(np.sum(loads * probability)) + server_load,
    )
