"""A fleet: devices behind home routers, of which every fourth shares a slow line."""

from __future__ import annotations

import numpy as np

from codedfl.fleet import MeasuredFleet, ResponseTimes


def home_routers(names: tuple[str, ...], rng: np.random.Generator) -> MeasuredFleet:
    """Devices that answer within 10 to 20 seconds on average, every fourth three times as slowly."""
    mean = rng.uniform(10.0, 20.0, len(names))
    mean[::4] *= 3.0
    return MeasuredFleet(names, ResponseTimes(mean_s=mean, p95_s=2.5 * mean))
