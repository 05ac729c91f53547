"""Asking only some devices in a round, so that a round costs what its cohort costs and not what the fleet would."""

from __future__ import annotations

from dataclasses import dataclass, replace

from codedfl.errors import InputError
from codedfl.fleet._arrivals import AdaptiveBatchArrivals, Attendance, FixedBatchArrivals
from codedfl.fleet._inputs import whole_number
from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class CohortArrivals:
    """In every round a cohort of n devices is drawn uniformly, without replacement, and only it is asked.

    An update then counts N / n times, which leaves its expectation what it was with every device. Fading is drawn for the
    cohort alone: neither time nor memory of a round depends on N.

    Args:
        everyone: who would arrive if all were asked.
        cohort: n, from 1 to N.

    Example:
        >>> import numpy as np
        >>> from codedfl.fleet import Channel, Fleet, RoundTiming, Workload
        >>> from codedfl.streams import Streams
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
    def duration_s(self) -> float:
        """T."""
        return self.everyone.duration_s

    def attend(self, round: int) -> Attendance:
        """Return who of the round's cohort takes part."""
        devices = self.everyone.timing.fleet.devices
        rng = self.everyone.streams.at("cohort", round=whole_number("round", round, 0))
        asked = rng.choice(devices, self.cohort, replace=False, shuffle=False)
        asked.sort()
        return replace(self.everyone.among(asked).attend(round), devices=asked, weight=devices / self.cohort)
