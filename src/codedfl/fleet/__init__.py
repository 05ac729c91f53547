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

from codedfl.fleet._allocation import Allocation, allocate, expected_return, optimal_loads
from codedfl.fleet._answer_files import is_recording
from codedfl.fleet._answers import Answers, ArrivalChances, ResponseTimes
from codedfl.fleet._arrivals import (
    AdaptiveBatchArrivals,
    Arrivals,
    CohortArrivals,
    FixedBatchArrivals,
    asking,
    inverse_batch_of,
)
from codedfl.fleet._attendance import Attendance
from codedfl.fleet._channel import Channel
from codedfl.fleet._deadline import (
    ROUNDS_NEEDED,
    SLOWEST,
    epoch_seconds,
    expected_batch,
    fastest_deadline,
    patient_deadline,
)
from codedfl.fleet._latency import RoundTiming
from codedfl.fleet._measured import MeasuredFleet, MeasuredTiming
from codedfl.fleet._profile_files import read_fleet
from codedfl.fleet._profiles import Fleet, draw_fleet
from codedfl.fleet._recorded import RecordedAnswers
from codedfl.fleet._stragglers import bandwidth_for_straggler_ratio
from codedfl.fleet._timing import AnyFleet, Timing, round_timing
from codedfl.fleet._trace import TraceArrivals, read_trace, write_trace
from codedfl.fleet._workload import BITS_PER_NUMBER, Workload

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
    "asking",
    "bandwidth_for_straggler_ratio",
    "draw_fleet",
    "epoch_seconds",
    "expected_batch",
    "expected_return",
    "fastest_deadline",
    "inverse_batch_of",
    "is_recording",
    "optimal_loads",
    "patient_deadline",
    "read_fleet",
    "read_trace",
    "round_timing",
    "write_trace",
]
