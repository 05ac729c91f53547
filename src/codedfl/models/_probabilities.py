"""Probabilities of classes from the outputs of a linear classifier."""

from __future__ import annotations

import numpy as np

from codedfl.losses import SOFTMAX
from codedfl.typing import FloatArray


def probabilities(outputs: FloatArray, *, logits: bool = False) -> FloatArray:
    r"""Return probabilities of the classes that belong to the outputs of a classifier, (n, k), float64.

    Those of logits ``z`` are ``softmax(z)``. Least-squares outputs are themselves estimates of probabilities, but may leave
    [0, 1]: ``softmax(k z)`` agrees with them to first order where classes are about equally likely, and keeps the order of
    the classes everywhere. Neither is calibrated.

    Args:
        outputs: ``z``, (n, k).
        logits: whether they are logits (`Predictor.logits`).

    Example:
        >>> probabilities(np.array([[0.52, 0.48], [1.5, -0.5]])).round(2)
        array([[0.52, 0.48],
               [0.98, 0.02]])
    """
    scale = 1.0 if logits else float(outputs.shape[1])
    return SOFTMAX.predictions(scale * outputs.astype(np.float64))
