"""Set the share of stragglers in a fleet through the bandwidth."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from scipy import optimize

from codedfl.errors import InputError
from codedfl.fleet._inputs import count_vector
from codedfl.fleet._latency import RoundTiming, outage_exponent


def bandwidth_for_straggler_ratio(timing: RoundTiming, batch: npt.ArrayLike, ratio: float) -> float:
    """Return the bandwidth in Hz at which the mean of 1 - p_i(b_i) is ``ratio``.

    Each device with time left to upload reaches any arrival probability at some bandwidth. The answer lies between the
    least and the greatest of these bandwidths, where the ratio falls as the bandwidth grows. A device whose computation
    alone takes the whole round is a straggler at every bandwidth.

    Args:
        timing: the round; its own bandwidth does not matter.
        batch: b, one for all devices or one per device; 1 for adaptive batches.
        ratio: the target, above 0 and below 1.

    Raises:
        InputError: the ratio is not attainable.

    Example:
        >>> from codedfl.fleet import Channel, Workload, draw_fleet
        >>> fleet = draw_fleet([str(i) for i in range(20)], np.random.default_rng(0))
        >>> timing = RoundTiming(fleet, Channel(), Workload.for_linear_model(2000, 10, 5), deadline_s=10.0)
        >>> timing.channel.bandwidth_hz, round(timing.straggler_ratio(1), 3)
        (180000.0, 0.04)
        >>> round(bandwidth_for_straggler_ratio(timing, batch=1, ratio=0.2))
        47777
    """
    if not 0 < ratio < 1:
        raise InputError(f"fleet.straggler_ratio = {ratio} must be above 0 and below 1.")
    window = timing.upload_window_s(count_vector("batch", batch, timing.fleet.devices))
    open_window = window > 0
    never = np.count_nonzero(~open_window) / window.size
    if ratio <= never:
        remedy = f"choose a ratio above {never:g} and below 1, " if never < 1 else ""
        raise InputError(
            f"fleet.straggler_ratio = {ratio} is not attainable, as {np.count_nonzero(~open_window)} of {window.size} device(s) "
            f"have no time left to upload at any bandwidth: {remedy}give a longer training.deadline_s, smaller batches or a "
            "smaller model."
        )
    attenuation = timing.attenuation[open_window]
    window = window[open_window]
    payload = timing.workload.payload_bits
    missing = (ratio - never) / (1.0 - never)
    arriving = (1.0 - ratio) / (1.0 - never)

    def excess(log_bandwidth: float) -> float:
        exponent = outage_exponent(attenuation, payload, math.exp(log_bandwidth), window)
        # Of the two equivalent differences, the one between small numbers keeps its digits.
        if missing < 0.5:
            return float(np.mean(-np.expm1(-exponent))) - missing
        return arriving - float(np.mean(np.exp(-exponent)))

    target = -math.log(arriving) if missing >= 0.5 else -math.log1p(-missing)
    own_bandwidth = np.log(payload * math.log(2) / window / np.log1p(target / attenuation))
    margin = 1e-6
    low, high = float(own_bandwidth.min()) - margin, float(own_bandwidth.max()) + margin
    return math.exp(float(optimize.brentq(excess, low, high, xtol=1e-14, rtol=1e-15)))
