"""The rounds of any fleet."""

from __future__ import annotations

from codedfl.fleet._channel import Channel
from codedfl.fleet._latency import RoundTiming
from codedfl.fleet._measured import MeasuredFleet, MeasuredTiming
from codedfl.fleet._profiles import Fleet
from codedfl.fleet._workload import Workload

AnyFleet = Fleet | MeasuredFleet
Timing = RoundTiming | MeasuredTiming


def round_timing(fleet: AnyFleet, channel: Channel, workload: Workload, deadline_s: float) -> Timing:
    """Return the times of a round: by the radio model, or for a measured fleet as measured, whatever the channel.

    Example:
        >>> import numpy as np
        >>> from codedfl.fleet import ArrivalChances
        >>> fleet = MeasuredFleet(("a", "b"), ArrivalChances(np.array([0.9, 0.4])))
        >>> round_timing(fleet, Channel(), Workload.for_linear_model(50, 2, 5), 10.0).straggler_ratio(1)
        0.35
    """
    if fleet.radio:
        return RoundTiming(fleet, channel, workload, deadline_s)
    return MeasuredTiming(fleet, workload, deadline_s)
