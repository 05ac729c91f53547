"""What a plan is to achieve."""

from __future__ import annotations

import math
from dataclasses import dataclass

from codedfl.errors import InputError


@dataclass(frozen=True)
class Target:
    """Points below the centralised score to get within, or a time by which to get as close as possible.

    Args:
        within: percentage points of accuracy, or hundredths of R2, below the centralised score.
        time_s: simulated seconds, everything charged; None to ask for the shortest time.

    Example:
        >>> Target().within
        0.5
        >>> Target(within=0.0)
        Traceback (most recent call last):
        codedfl.errors.InputError: --within = 0 must be above 0 and at most 100 points.
    """

    within: float = 0.5
    time_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.within <= 100:
            raise InputError(f"--within = {self.within:g} must be above 0 and at most 100 points.")
        if self.time_s is not None and not (math.isfinite(self.time_s) and self.time_s > 0):
            raise InputError(f"--time = {self.time_s:g} must be a positive number of seconds.")
