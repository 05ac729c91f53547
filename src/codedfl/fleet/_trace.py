"""Recorded rounds, replayed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl._validation import require_positive
from codedfl.errors import InputError
from codedfl.fleet._arrivals import Attendance, given_arrival, read_only
from codedfl.fleet._inputs import counts, float_vector, whole_number
from codedfl.typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class TraceArrivals:
    """Replay K recorded rounds.

    Args:
        batch_sizes: (K, N).
        arrived: (K, N).
        probability: p_i, (N,).
        duration_s: T.

    Example:
        >>> trace = TraceArrivals(np.array([[8, 8], [8, 0]]), np.array([[True, False], [True, False]]),
        ...                       probability=np.array([0.9, 0.4]), duration_s=10.0)
        >>> trace.attend(0).arrived
        array([ True, False])
    """

    batch_sizes: IntArray
    arrived: BoolArray
    probability: FloatArray
    duration_s: float

    def __post_init__(self) -> None:
        require_positive("trace.duration_s", self.duration_s)
        probability = float_vector("trace.probability", self.probability)
        if not ((probability >= 0) & (probability <= 1)).all():
            raise InputError("trace.probability must lie from 0 to 1 for every device.")
        batch = np.array(counts("trace.batch_sizes", self.batch_sizes, probability.size))
        arrived = np.array(self.arrived)
        if batch.ndim != 2 or arrived.shape != batch.shape or arrived.dtype != np.bool_:
            raise InputError(
                f"trace.batch_sizes has shape {batch.shape} and trace.arrived is {arrived.dtype} of shape "
                f"{arrived.shape}: give whole numbers and booleans, one row a round and {probability.size} column(s)."
            )
        if (arrived & (batch == 0)).any():
            first = tuple(int(i) for i in np.argwhere(arrived & (batch == 0))[0])
            raise InputError(
                f"trace.arrived is true at (round, device) = {first}, where trace.batch_sizes = 0 says that the device "
                "sat the round out: correct one of them."
            )
        for name, array in (("batch_sizes", batch), ("arrived", arrived), ("probability", probability)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)

    @cached_property
    def inverse_batch(self) -> FloatArray:
        """The mean of 1 / b_i over the recorded rounds in which the update arrived, NaN where it never did."""
        inverse = np.where(self.arrived, 1.0 / np.maximum(self.batch_sizes, 1), 0.0)
        return read_only(given_arrival(inverse.mean(axis=0), self.arrived.mean(axis=0)))

    def attend(self, round: int) -> Attendance:
        """Return a recorded round; what late devices sent is not on record and counts as nothing."""
        rounds, devices = self.batch_sizes.shape
        if whole_number("round", round, 0) >= rounds:
            raise InputError(
                f"round = {round} is beyond the trace, which has {rounds} round(s): record more or run fewer."
            )
        return Attendance(self.batch_sizes[round], self.arrived[round], late_bits=np.zeros(devices))
