"""Mutual-information differential privacy of a coded upload (Sec. IV-B)."""

from __future__ import annotations

import math

from codedfl._validation import require_at_least, require_non_negative, require_positive
from codedfl.errors import InputError


def mi_dp_bits(coded_samples: int, noise_variance: float, interference: float = 0.0) -> float:
    """Return the MI-DP budget of a coded upload, in bits for one entry of the data.

    ``epsilon_i = q_i(sigma_i^2) = 1/2 log2(1 + c / (h^2 + sigma_i^2))``, Theorem 2 of the paper. With ``h = 0`` it needs no
    data and holds for every dataset with entries within [-1, 1]: the universal bound. With ``h^2`` as printed in the theorem
    (:func:`~codedfl.privacy._interference.printed_interference`) it is too optimistic as soon as samples have more than one
    column; :func:`~codedfl.privacy._interference.interference` is the ``h^2`` that makes it true. It covers the coded features
    alone: neither the coded labels nor the updates sent during training.

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


def noise_variance_for_mi_dp(bits: float, coded_samples: int, interference: float = 0.0) -> float:
    """Return the noise variance that gives an MI-DP budget, the inverse of :func:`mi_dp_bits`.

    ``sigma_i^2 = q_i^-1(epsilon_i) = c / (2^(2 epsilon_i) - 1) - h^2``.

    Args:
        bits: ``epsilon_i``, for one entry of the data.
        coded_samples: ``c``.
        interference: ``h^2``, kept fixed; 0 for a bound that holds for all data.

    Returns:
        ``sigma_i^2``.

    Example:
        >>> round(noise_variance_for_mi_dp(7.64, 10_000), 4)
        0.2513
    """
    require_positive("bits", bits)
    require_at_least("coded_samples", coded_samples, 1)
    require_non_negative("interference", interference)
    shrink = -2 * math.log(2) * bits
    hidden = coded_samples * math.exp(shrink) / -math.expm1(shrink)
    if hidden < interference * (1 - 1e-12):
        most = mi_dp_bits(coded_samples, 0.0, interference)
        raise InputError(f"bits = {bits} is a larger budget than no noise at all uses: give {most:.6g} or less.")
    return max(hidden - interference, 0.0)
