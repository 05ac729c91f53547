"""Arrivals over a network: who met the deadline, as it happened."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from codedfl.errors import InputError
from codedfl.fleet import Attendance, TraceArrivals
from codedfl.typing import BoolArray, FloatArray, IntArray


class NetworkArrivals:
    """The rounds of a real federation, in the form in which the simulator knows them.

    A device's probability is estimated from the rounds before: ``p_i = (1 + a_i) / (1 + k)`` after ``a_i`` arrivals in ``k``
    rounds. The 1 stands for the upload that it sent in time before training. The estimate of a round never uses who arrives in
    it, so weights ``1 / p_i`` do not depend on the outcome that they correct for.

    Args:
        devices: ``N``.
        duration_s: ``T``, the deadline.

    Example:
        >>> arrivals = NetworkArrivals(2, 30.0)
        >>> arrivals.record({0: 10, 1: 10}, {0: 10}).probability
        array([1., 1.])
        >>> arrivals.probability
        array([1. , 0.5])
    """

    def __init__(self, devices: int, duration_s: float) -> None:
        self._duration_s = duration_s
        self._batch_sizes = np.zeros((0, devices), np.int64)
        self._arrived = np.zeros((0, devices), np.bool_)

    @property
    def duration_s(self) -> float:
        """``T``."""
        return self._duration_s

    @property
    def rounds(self) -> int:
        """Rounds recorded so far."""
        return len(self._arrived)

    @property
    def probability(self) -> FloatArray:
        """``p_i`` as estimated from all rounds so far, (N,)."""
        return self._estimate(self.rounds)

    def _estimate(self, rounds: int) -> FloatArray:
        estimate: FloatArray = (1.0 + self._arrived[:rounds].sum(axis=0)) / (1.0 + rounds)
        return estimate

    def missed_in_a_row(self, device: int) -> int:
        """Return how many times a device was late since it last arrived; rounds without a request do not count."""
        arrived = self._arrived[self._batch_sizes[:, device] > 0, device]
        return int(np.argmax(arrived[::-1])) if arrived.any() else len(arrived)

    def record(self, asked: Mapping[int, int], arrived: Mapping[int, int]) -> Attendance:
        """Add a round.

        Args:
            asked: rows that each device was asked for, by device; others were not reached.
            arrived: rows that each device whose update arrived computed on.

        Returns:
            The attendance of the round, with the estimates in force in it.
        """
        devices = self._arrived.shape[1]
        batch, here = np.zeros(devices, np.int64), np.zeros(devices, np.bool_)
        for device, rows in {**asked, **arrived}.items():
            batch[device] = rows
        here[list(arrived)] = True
        self._batch_sizes = np.vstack([self._batch_sizes, batch])
        self._arrived = np.vstack([self._arrived, here])
        return self.attend(self.rounds - 1)

    def attend(self, round: int) -> Attendance:
        """Return a recorded round, with the probabilities as they were estimated before it."""
        if not 0 <= round < self.rounds:
            raise InputError(f"round = {round} has not taken place: {self.rounds} round(s) are recorded.")
        nothing = np.zeros(self._arrived.shape[1])
        return Attendance(self._batch_sizes[round], self._arrived[round], nothing, probability=self._estimate(round))

    def trace(self) -> TraceArrivals:
        """Return all rounds as a trace that the simulator replays."""
        return TraceArrivals.record(self, self.rounds)

    def arrays(self) -> dict[str, IntArray | BoolArray]:
        """Return what a checkpoint keeps."""
        return {"batch_sizes": self._batch_sizes, "arrived": self._arrived}

    def restore(self, batch_sizes: IntArray, arrived: BoolArray) -> None:
        """Take up the rounds of a checkpoint."""
        if batch_sizes.shape != arrived.shape or arrived.shape[1:] != self._arrived.shape[1:]:
            raise ValueError(f"arrivals of shape {arrived.shape} and {batch_sizes.shape} do not fit")
        self._batch_sizes, self._arrived = batch_sizes.astype(np.int64), arrived.astype(np.bool_)
