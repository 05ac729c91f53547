"""Arrivals over a network: who met the deadline, as it happened, and how many rows each can do before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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


SHARE_OF_DEADLINE = 0.7
"""Share of a round that a device is asked to fill: the rest is for variation."""

MEMORY = 0.5
"""Weight of what was known before against a new measurement."""

LEAST_SHARE = 1 / 64
"""Least share of its usual request that a device is asked for after repeated misses."""


@dataclass(frozen=True, eq=False)
class Pace:
    """The measured speed of every device.

    Args:
        row_s: seconds for one row in one local step, (N,); NaN until measured.
        overhead_s: seconds of a round that do not depend on the rows: network, queues, start-up, (N,).
        share: what repeated misses have reduced the request to, (N,); 1 without.

    Example:
        >>> pace = Pace.unknown(1).answered(0, rows=100, steps=5, compute_s=5.0, elapsed_s=7.0)
        >>> pace.request(0, samples=10_000, steps=5, deadline_s=30.0)
        380
        >>> pace.missed(0).request(0, samples=10_000, steps=5, deadline_s=30.0)
        190
    """

    row_s: FloatArray
    overhead_s: FloatArray
    share: FloatArray

    @classmethod
    def unknown(cls, devices: int) -> Pace:
        """Return the pace before the first round."""
        return cls(np.full(devices, np.nan), np.zeros(devices), np.ones(devices))

    def request(self, device: int, samples: int, steps: int, deadline_s: float, first: int = 0) -> int:
        """Return the rows to ask of a device: ``b = (0.7 T - overhead) / (tau t_row)``, within 1 and ``l_i``.

        Args:
            device: its index.
            samples: ``l_i``.
            steps: ``tau``.
            deadline_s: ``T``.
            first: rows to ask for as long as its speed is unknown; 0 for all.
        """
        if np.isnan(self.row_s[device]):
            wanted = float(first or samples)
        else:
            left_s = max(SHARE_OF_DEADLINE * deadline_s - self.overhead_s[device], 0.0)
            wanted = left_s / max(steps * self.row_s[device], 1e-12)
        return int(min(max(self.share[device] * wanted, 1.0), samples))

    def answered(self, device: int, rows: int, steps: int, compute_s: float, elapsed_s: float) -> Pace:
        """Return the pace after an answer that took ``elapsed_s``, ``compute_s`` of it for the steps."""
        compute_s = min(compute_s, elapsed_s)  # a device's own clock is not to be trusted further
        row_s, overhead_s = compute_s / (rows * steps), elapsed_s - compute_s
        if not np.isnan(self.row_s[device]):
            row_s = MEMORY * self.row_s[device] + (1 - MEMORY) * row_s
            overhead_s = MEMORY * self.overhead_s[device] + (1 - MEMORY) * overhead_s
        return replace(
            self,
            row_s=_with(self.row_s, device, row_s),
            overhead_s=_with(self.overhead_s, device, overhead_s),
            share=_with(self.share, device, min(1.0, 2 * self.share[device])),
        )

    def missed(self, device: int) -> Pace:
        """Return the pace after a device that was asked did not answer in time."""
        return replace(self, share=_with(self.share, device, max(self.share[device] / 2, LEAST_SHARE)))


def _with(values: FloatArray, place: int, value: float) -> FloatArray:
    changed = values.copy()
    changed[place] = value
    return changed
