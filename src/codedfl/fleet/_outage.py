"""The chance that an upload makes it, in closed form."""

from __future__ import annotations

import math

import numpy as np

from codedfl.typing import FloatArray


def outage_exponent(
    attenuation: FloatArray, payload_bits: float, bandwidth_hz: float, window_s: FloatArray
) -> FloatArray:
    """Return κ (2^(M / (B x)) - 1): an upload succeeds with probability exp(-this).

    M bits fit into x seconds if B log2(1 + fading / κ) >= M / x, and fading is standard exponential. The exponent is
    infinite where no time is left.

    Args:
        attenuation: κ, positive.
        payload_bits: M.
        bandwidth_hz: B.
        window_s: x, the seconds that are left for the upload.

    Example:
        >>> outage_exponent(np.array([0.1, 0.1, 0.1]), 1e6, 1e6, np.array([1.0, 0.5, 0.0]))
        array([0.1, 0.3, inf])
    """
    open_window = window_s > 0
    # An overflow to infinity is the right answer here: the probability exp(-inf) is zero.
    with np.errstate(over="ignore"):
        doublings = payload_bits / bandwidth_hz / np.where(open_window, window_s, 1.0)
        exponent = attenuation * np.expm1(math.log(2) * doublings)
    return np.where(open_window, exponent, np.inf)
