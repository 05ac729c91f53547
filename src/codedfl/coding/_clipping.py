"""Clipping: what a sample is scaled down to, so that it changes a sum by a known amount at most."""

from __future__ import annotations

import numpy as np

from codedfl.coding._geometry import Geometry
from codedfl.typing import FloatArray


def clip_weights(norms: FloatArray, bound: float) -> FloatArray:
    """Return ``min(1, B / ||z||)`` for the norms of vectors ``z``.

    Example:
        >>> clip_weights(np.array([0.5, 4.0]), 1.0)
        array([1.  , 0.25])
    """
    weights: FloatArray = bound / np.maximum(norms, bound)
    return weights


def clipped_total(features: FloatArray, bound: float) -> FloatArray:
    """Return ``sum x min(1, B / ||x||)``, (d,): one sample changes it by at most ``B``.

    Example:
        >>> clipped_total(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        array([0.6, 1.3])
    """
    total: FloatArray = clip_weights(Geometry().norms(features), bound).astype(features.dtype) @ features
    return total


def clipped_labels(labels: FloatArray, bound: float) -> FloatArray:
    """Return ``y min(1, B_Y / ||y||)`` of every sample.

    Args:
        labels: ``y``, (l, o).
        bound: ``B_Y``.

    Example:
        >>> clipped_labels(np.array([[3.0, 4.0], [0.0, 0.5]]), 1.0)
        array([[0.6, 0.8],
               [0. , 0.5]])
    """
    weights = clip_weights(np.linalg.norm(labels, axis=1), bound).astype(labels.dtype)
    return np.ascontiguousarray(weights[:, None] * labels)
