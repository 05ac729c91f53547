"""A predicted learning curve: seconds, everything charged, against points below the centralised score."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from codedfl.typing import FloatArray


@dataclass(frozen=True, eq=False)
class Curve:
    """Points below the centralised score over time.

    Args:
        rounds: rounds completed, (k,).
        seconds: simulated time with everything charged, (k,).
        below: points below the centralised score, infinite once training has run away, (k,).
        error: one standard error of ``below``, by the draw of held-out and test rows, (k,).
    """

    rounds: FloatArray
    seconds: FloatArray
    below: FloatArray
    error: FloatArray

    def first_within(self, points: float, errors: float = 0.0) -> float | None:
        """Return the time at which the curve first comes within some points; None if it never does.

        Args:
            points: how far below the centralised score the curve may be.
            errors: standard errors to add to the curve; negative ones to subtract.

        Example:
            >>> steps = np.arange(3.0)
            >>> curve = Curve(steps, 10 * steps, np.array([4.0, 2.0, 1.0]), np.full(3, 0.5))
            >>> curve.first_within(1.5), curve.first_within(1.5, errors=1.0), curve.first_within(0.5)
            (15.0, 20.0, None)
        """
        with np.errstate(invalid="ignore"):
            values = self.below + errors * np.where(np.isfinite(self.error), self.error, 0.0)
        reached = np.flatnonzero(values <= points + 1e-12)
        if reached.size == 0:
            return None
        end = int(reached[0])
        if end == 0 or not math.isfinite(values[end - 1]):
            return float(self.seconds[end])
        before, after = values[end - 1], values[end]
        share = (before - points) / (before - after) if before > after else 1.0
        return float(self.seconds[end - 1] + share * (self.seconds[end] - self.seconds[end - 1]))

    def below_at(self, seconds: float) -> float:
        """Return the points below the centralised score at a time; infinite before there is a model."""
        if seconds < self.seconds[0]:
            return math.inf
        place = int(np.searchsorted(self.seconds, seconds, side="right")) - 1
        if place + 1 >= len(self.seconds) or not math.isfinite(self.below[place + 1]):
            return float(self.below[place])
        return float(np.interp(seconds, self.seconds, self.below))

    @property
    def best(self) -> int:
        """The place of the lowest point."""
        return int(np.argmin(self.below))

    @property
    def runs_away(self) -> bool:
        """Whether the curve ends far above its lowest point."""
        return not self.below[-1] <= self.below[self.best] + 5.0
