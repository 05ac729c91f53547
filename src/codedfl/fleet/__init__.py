"""The fleet: devices, channel, latency, and who makes the deadline (Sec. II-B, VI-A).

A round of duration T consists of downloading the model, computing on a batch, and uploading the update over a fading
channel. Whoever is not done by T is a straggler.

Example:
    Twenty devices as in Sec. VI-A train a linear model of 2,000 × 10 numbers, with rounds of ten seconds:

    >>> import numpy as np
    >>> from codedfl.fleet import AdaptiveBatchArrivals, Channel, RoundTiming, Workload, draw_fleet
    >>> from codedfl.streams import Streams
    >>> streams = Streams(seed=1)
    >>> fleet = draw_fleet([f"device-{i}" for i in range(20)], streams.at("fleet"))
    >>> workload = Workload.for_linear_model(dimension=2000, outputs=10, local_steps=5)
    >>> timing = RoundTiming(fleet, Channel(), workload, deadline_s=10.0)
    >>> timing.arrival_probability(1)[:3].round(3)
    array([0.973, 0.951, 0.984])
    >>> arrivals = AdaptiveBatchArrivals(timing, samples=np.full(20, 3000), streams=streams)
    >>> attendance = arrivals.attend(round=0)
    >>> attendance.batch_sizes[:3]
    array([64, 56, 59])
    >>> int(attendance.arrived.sum())
    20
"""

from codedfl.fleet._answers import Answers, ArrivalChances, RecordedAnswers, ResponseTimes
from codedfl.fleet._arrivals import (
    AdaptiveBatchArrivals,
    Arrivals,
    CohortArrivals,
    FixedBatchArrivals,
    in_cohorts,
    inverse_batch_of,
)
from codedfl.fleet._fleet_files import is_recording, read_fleet
from codedfl.fleet._measured import AnyFleet, MeasuredFleet, MeasuredTiming, Timing, round_timing
from codedfl.fleet._profiles import Fleet, draw_fleet
from codedfl.fleet._radio import Channel, RoundTiming, bandwidth_for_straggler_ratio
from codedfl.fleet._round import BITS_PER_NUMBER, Attendance, Workload
from codedfl.fleet._round_design import (
    ROUNDS_NEEDED,
    SLOWEST,
    Allocation,
    allocate,
    epoch_seconds,
    expected_return,
    fastest_deadline,
    optimal_loads,
    patient_deadline,
)
from codedfl.fleet._trace import TraceArrivals, read_trace, write_trace

__all__ = [
    "BITS_PER_NUMBER",
    "ROUNDS_NEEDED",
    "SLOWEST",
    "AdaptiveBatchArrivals",
    "Allocation",
    "Answers",
    "AnyFleet",
    "ArrivalChances",
    "Arrivals",
    "Attendance",
    "Channel",
    "CohortArrivals",
    "FixedBatchArrivals",
    "Fleet",
    "MeasuredFleet",
    "MeasuredTiming",
    "RecordedAnswers",
    "ResponseTimes",
    "RoundTiming",
    "Timing",
    "TraceArrivals",
    "Workload",
    "allocate",
    "bandwidth_for_straggler_ratio",
    "draw_fleet",
    "epoch_seconds",
    "expected_return",
    "fastest_deadline",
    "in_cohorts",
    "inverse_batch_of",
    "is_recording",
    "optimal_loads",
    "patient_deadline",
    "read_fleet",
    "read_trace",
    "round_timing",
    "write_trace",
]
