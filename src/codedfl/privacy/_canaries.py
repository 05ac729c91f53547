"""Canaries: samples made so that their presence is as easy to detect as the bounds on samples allow."""

from __future__ import annotations

import numpy as np

from codedfl.privacy._inputs import require_count, require_norm_bound
from codedfl.typing import FloatArray, IntArray

_MOST = 10**6


def make_canaries(
    count: int, dimension: int, outputs: int, norm_bound: float, label_bound: float, rng: np.random.Generator
) -> tuple[FloatArray, FloatArray]:
    """Return features and labels of samples that stand out of each other and reach the bounds on their norms.

    The features are random orthogonal vectors of norm ``B``. More than ``d`` of them are several orthogonal bases, and
    each basis has a class of its own, so that the gradients ``x y^T`` at the model 0 stay orthogonal up to ``d o``
    canaries. Labels are one-hot times ``B_Y``, of a random class where one basis suffices; a single output is ``B_Y``
    or ``-B_Y`` at random.

    Args:
        count: ``m``.
        dimension: ``d``.
        outputs: ``o``.
        norm_bound: ``B``.
        label_bound: ``B_Y``.
        rng: the source of directions, classes and signs.

    Returns:
        Features (m, d) and labels (m, o).

    Example:
        >>> X, Y = make_canaries(3, 8, 2, norm_bound=2.0, label_bound=1.0, rng=np.random.default_rng(0))
        >>> np.allclose(X @ X.T, 4 * np.eye(3)), Y.sum(axis=1)
        (True, array([1., 1., 1.]))
    """
    for name, value in (("count", count), ("dimension", dimension), ("outputs", outputs)):
        require_count(name, value, _MOST)
    require_norm_bound("norm_bound", norm_bound)
    require_norm_bound("label_bound", label_bound)
    bases = [_orthonormal(min(dimension, count - first), dimension, rng) for first in range(0, count, dimension)]
    features = norm_bound * np.concatenate(bases)
    if outputs == 1:
        return features, label_bound * rng.choice([-1.0, 1.0], size=(count, 1))
    classes: IntArray = (
        rng.integers(outputs, size=count) if len(bases) == 1 else np.arange(count) // dimension % outputs
    )
    return features, label_bound * np.eye(outputs)[classes]


def _orthonormal(count: int, dimension: int, rng: np.random.Generator) -> FloatArray:
    basis: FloatArray = np.linalg.qr(rng.standard_normal((dimension, count)))[0].T
    return basis
