"""Pace: how many rows to ask of a device, so that it answers before the deadline."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from codedfl.typing import FloatArray

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
