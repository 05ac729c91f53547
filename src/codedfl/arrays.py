"""Names for the array types that the package passes around."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.floating[Any]]
"""Real numbers: float32 for training, float64 for accounting."""

IntArray = npt.NDArray[np.int64]
"""Indices and counts."""

BoolArray = npt.NDArray[np.bool_]
"""Masks."""
