"""Who took part in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codedfl.typing import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class Attendance:
    """The devices that took part in one round.

    Args:
        batch_sizes: samples that each device computes on in every local step, (n,); 0 if it sits the round out.
        arrived: whose update reached the server in time, (n,).
        late_bits: bits sent by devices that missed the deadline, (n,); 0 for all others.
        devices: indices of the n devices that were asked; None for all, in order.
        weight: factor on every update that makes up for devices that were not asked, N / n.
        probability: p_i as it was estimated before this round, (N,); None for the probabilities of the arrivals themselves.
    """

    batch_sizes: IntArray
    arrived: BoolArray
    late_bits: FloatArray
    devices: IntArray | None = None
    weight: float = 1.0
    probability: FloatArray | None = None

    def arrivals(self) -> list[tuple[int, int]]:
        """Return the index and batch size of every device whose update arrived, in device order."""
        places = np.flatnonzero(self.arrived)
        devices = places if self.devices is None else self.devices[places]
        return list(zip(devices.tolist(), self.batch_sizes[places].tolist(), strict=True))
