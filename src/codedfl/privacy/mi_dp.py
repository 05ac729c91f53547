"""Mutual-information differential privacy of a coded upload (Sec. IV-B)."""

from __future__ import annotations

import math

from codedfl._checks import require_at_least, require_non_negative


def mi_dp_bits(coded_samples: int, noise_variance: float, interference: float = 0.0) -> float:
    """Return the MI-DP budget of a coded upload, in bits for one entry of the data.

    ``epsilon_i = q_i(sigma_i^2) = 1/2 log2(1 + c / (h^2 + sigma_i^2))``, Theorem 2 of the paper. With ``h = 0`` it needs
    no data and holds for every dataset with entries within [-1, 1]. It covers the coded features alone: neither the coded labels
    nor the updates sent during training.

    Args:
        coded_samples: ``c``, rows that an entry is projected to.
        noise_variance: ``sigma_i^2``.
        interference: ``h^2``, what the device's other samples contribute; 0 for a bound that holds for all data.

    Returns:
        The budget in bits; infinite without noise and interference.

    Example:
        >>> round(mi_dp_bits(10_000, 0.25), 2)
        7.64
        >>> mi_dp_bits(10_000, 0.0)
        inf
    """
    require_at_least("coded_samples", coded_samples, 1)
    require_non_negative("noise_variance", noise_variance)
    require_non_negative("interference", interference)
    hidden = noise_variance + interference
    return 0.5 * math.log1p(coded_samples / hidden) / math.log(2) if hidden > 0 else math.inf
