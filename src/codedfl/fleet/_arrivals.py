"""Arrivals: the protocol that tells the round loop which devices meet the deadline.

A simulated channel, a recorded trace or a real network can implement it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from codedfl.errors import InputError
from codedfl.fleet._inputs import count_vector, whole_number
from codedfl.fleet._measured import Timing
from codedfl.fleet._radio import RoundTiming
from codedfl.fleet._round import Attendance
from codedfl.streams import Streams
from codedfl.typing import FloatArray, IntArray

BATCHES_AT_ONCE = 256
"""Batch sizes whose probabilities are held in memory at the same time."""


class Arrivals(Protocol):
    """Tells the round loop which devices meet the deadline.

    Arrivals whose batches have a law in closed form tell ``E[1 / b_i | arrival]`` as ``inverse_batch``, (N,); see
    `inverse_batch_of`.
    """

    @property
    def probability(self) -> FloatArray:
        """p_i, the probability that a device's update arrives in time, (N,)."""

    @property
    def duration_s(self) -> float:
        """T, the duration of a round."""

    def attend(self, round: int) -> Attendance:
        """Return the attendance of a round, the same at every call."""


@dataclass(frozen=True, eq=False)
class AdaptiveBatchArrivals:
    """Every device takes the largest batch that meets the deadline, and sits out if none does.

    It therefore arrives whenever a single sample fits: p_i = p_i(1).

    Args:
        timing: the times of a round.
        samples: l_i, number of samples of each device, (N,).
        streams: source of the fading.
    """

    timing: RoundTiming
    samples: IntArray
    streams: Streams

    def __post_init__(self) -> None:
        object.__setattr__(self, "samples", count_vector("samples", self.samples, self.timing.fleet.devices))

    @cached_property
    def probability(self) -> FloatArray:
        """p_i(1), and 0 for a device without samples."""
        return read_only(self.timing.arrival_probability(np.minimum(self.samples, 1)))

    @cached_property
    def inverse_batch(self) -> FloatArray:
        """E[1 / b | arrival] = 1 - sum_{n=2}^{l_i} p_i(n) / (n (n - 1) p_i(1)), NaN for a device that never arrives.

        A batch is of n samples or more with probability p_i(n); the rest is summation by parts.
        """
        total = self.probability.copy()
        for first in range(2, int(self.samples.max(initial=0)) + 1, BATCHES_AT_ONCE):
            sizes = np.arange(first, first + BATCHES_AT_ONCE)[:, None]
            at_least = self.timing.arrival_probability(np.broadcast_to(sizes, (len(sizes), len(self.samples))))
            total -= np.sum(np.where(sizes <= self.samples, at_least / (sizes * (sizes - 1.0)), 0.0), axis=0)
        return read_only(given_arrival(total, self.probability))

    @property
    def duration_s(self) -> float:
        """T."""
        return self.timing.deadline_s

    def among(self, devices: IntArray) -> AdaptiveBatchArrivals:
        """Return the arrivals of the devices with these indices."""
        return AdaptiveBatchArrivals(self.timing.among(devices), self.samples[devices], self.streams)

    def attend(self, round: int) -> Attendance:
        """Return b_k^i and who arrived; a device that would miss the deadline sends nothing."""
        fading = self.timing.channel.sample_fading(self.streams, round, self.timing.fleet.devices)
        batch = self.timing.largest_batch(fading, self.samples)
        return Attendance(batch_sizes=batch, arrived=batch > 0, late_bits=np.zeros(batch.shape))


@dataclass(frozen=True, eq=False)
class FixedBatchArrivals:
    """Every device computes on a batch of fixed size and arrives if it is quick enough: p_i = p_i(b_i).

    Args:
        timing: the times of a round.
        batch_sizes: b_i, (N,); 0 keeps a device out of every round.
        streams: source of the fading, or of the answers of a measured fleet.

    Example:
        >>> from codedfl.fleet import Channel, Fleet, Workload
        >>> fleet = Fleet(("a", "b"), np.array([1.2e6, 1.5e6]), np.array([15.0, 15.0]))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=8.0)
        >>> FixedBatchArrivals(timing, np.array([32, 32]), Streams(seed=1)).probability.round(3)
        array([0.472, 0.68 ])
    """

    timing: Timing
    batch_sizes: IntArray
    streams: Streams

    def __post_init__(self) -> None:
        batch = count_vector("batch_sizes", self.batch_sizes, self.timing.fleet.devices)
        object.__setattr__(self, "batch_sizes", batch)

    @cached_property
    def probability(self) -> FloatArray:
        """p_i(b_i)."""
        return read_only(self.timing.arrival_probability(self.batch_sizes))

    @cached_property
    def inverse_batch(self) -> FloatArray:
        """1 / b_i, NaN for a device that never arrives."""
        return read_only(given_arrival(self.probability / np.maximum(self.batch_sizes, 1), self.probability))

    @property
    def duration_s(self) -> float:
        """T."""
        return self.timing.deadline_s

    def among(self, devices: IntArray) -> FixedBatchArrivals:
        """Return the arrivals of the devices with these indices."""
        return FixedBatchArrivals(self.timing.among(devices), self.batch_sizes[devices], self.streams)

    def attend(self, round: int) -> Attendance:
        """Return who arrived, and what late devices sent."""
        return self.timing.attend(self.batch_sizes, self.streams, round)


@dataclass(frozen=True, eq=False)
class CohortArrivals:
    """Only a cohort of n devices is asked in each round, drawn uniformly without replacement.

    Each update counts N / n times, which leaves its expectation unchanged. Fading is drawn for the cohort alone, so the
    time and memory of a round do not depend on N.

    Args:
        everyone: the arrivals if all devices were asked.
        cohort: n, from 1 to N.

    Example:
        >>> from codedfl.fleet import Channel, Fleet, Workload
        >>> fleet = Fleet(tuple("abcde"), np.full(5, 1.5e6), np.full(5, 20.0))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=10.0)
        >>> arrivals = CohortArrivals(AdaptiveBatchArrivals(timing, np.full(5, 100), Streams(seed=1)), cohort=2)
        >>> attendance = arrivals.attend(0)
        >>> attendance.devices, attendance.weight
        (array([0, 4]), 2.5)
    """

    everyone: AdaptiveBatchArrivals | FixedBatchArrivals
    cohort: int

    def __post_init__(self) -> None:
        devices = self.everyone.timing.fleet.devices
        if whole_number("cohort", self.cohort, 1) > devices:
            raise InputError(f"cohort = {self.cohort} exceeds the {devices} device(s) of the fleet: lower it.")

    @property
    def probability(self) -> FloatArray:
        """p_i of a device that is asked, (N,)."""
        return self.everyone.probability

    @property
    def inverse_batch(self) -> FloatArray:
        """E[1 / b_i | arrival] of a device that is asked, (N,)."""
        return self.everyone.inverse_batch

    @property
    def duration_s(self) -> float:
        """T."""
        return self.everyone.duration_s

    def attend(self, round: int) -> Attendance:
        """Return the attendance of the round's cohort."""
        devices = self.everyone.timing.fleet.devices
        rng = self.everyone.streams.at("cohort", round=whole_number("round", round, 0))
        asked = rng.choice(devices, self.cohort, replace=False, shuffle=False)
        asked.sort()
        return replace(self.everyone.among(asked).attend(round), devices=asked, weight=devices / self.cohort)


def inverse_batch_of(arrivals: Arrivals) -> FloatArray | None:
    """Return ``E[1 / b_i | arrival]``, (N,), NaN for a device that never arrives; None if it has no closed form."""
    known: FloatArray | None = getattr(arrivals, "inverse_batch", None)
    return known


def given_arrival(joint: FloatArray, probability: FloatArray) -> FloatArray:
    """Divide E[x; arrival] by P(arrival), NaN where that is zero."""
    ratio: FloatArray = np.divide(joint, probability, out=np.full(joint.shape, np.nan), where=probability > 0)
    return ratio


def read_only(array: FloatArray) -> FloatArray:
    array.setflags(write=False)
    return array


def in_cohorts(everyone: AdaptiveBatchArrivals | FixedBatchArrivals, cohort: int | None) -> Arrivals:
    """Return the arrivals when a random cohort is asked in each round; None asks all devices."""
    return everyone if cohort is None else CohortArrivals(everyone, cohort)
