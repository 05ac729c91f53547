"""The privacy sensitivities of the paper's devices."""

from __future__ import annotations

import numpy as np

from codedfl._validation import require_at_least
from codedfl.typing import FloatArray


def printed_sensitivities(devices: int) -> FloatArray:
    """Return ``mu_i = 1 + 0.02 i`` for ``i = 1..N``, as Sec. VI prints them.

    Table lambda was made with :func:`table_sensitivities`; with these its noise variances come out 0.75% larger.

    Example:
        >>> printed_sensitivities(3).round(2).tolist()
        [1.02, 1.04, 1.06]
    """
    require_at_least("devices", devices, 1)
    return 1.0 + 0.02 * np.arange(1, devices + 1)


def table_sensitivities(devices: int) -> FloatArray:
    """Return ``mu_i = 1 + 0.02 (i - 1)`` for ``i = 1..N``, with which Table lambda was made.

    Example:
        >>> table_sensitivities(3).round(2).tolist()
        [1.0, 1.02, 1.04]
    """
    require_at_least("devices", devices, 1)
    return 1.0 + 0.02 * np.arange(devices)
