"""Multinomial logistic regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import scipy.special

from codedfl.losses._loss import Loss
from codedfl.typing import FloatArray

if TYPE_CHECKING:
    from codedfl.data import Task


@dataclass(frozen=True)
class Softmax(Loss):
    """Cross entropy, ``log sum exp(eta) - y^T eta``, with ``mu = softmax(eta)`` and ``V = diag(mu) - mu mu^T``.

    Boehning's bound is 1/2: two equally likely outputs, with all others far below.
    """

    name: ClassVar[str] = "softmax"
    tasks: ClassVar[tuple[Task, ...]] = ("classification",)
    curvature: ClassVar[float] = 0.5
    logits: ClassVar[bool] = True
    clip_share: ClassVar[float] = 0.45
    noise_share: ClassVar[float] = 0.6

    def value(self, outputs: FloatArray, labels: FloatArray) -> float:
        """Return the cross entropy, summed over rows."""
        logits = outputs.astype(np.float64)
        return float(np.sum(scipy.special.logsumexp(logits, axis=-1)) - np.sum(labels * logits))

    def predictions(self, outputs: FloatArray) -> FloatArray:
        """Return the probabilities of the classes."""
        probabilities: FloatArray = scipy.special.softmax(outputs, axis=-1)
        return probabilities

    def link(self, means: FloatArray) -> FloatArray:
        """Return logarithms; minus infinity for a class that never occurs."""
        with np.errstate(divide="ignore"):
            return np.log(means)

    def curvature_weights(self, outputs: FloatArray) -> FloatArray:
        """Return ``tr V / (K - 1)``: adding the same to all logits changes nothing."""
        probabilities = self.predictions(outputs.astype(np.float64))
        weights: FloatArray = (1.0 - np.sum(probabilities**2, axis=-1)) / max(outputs.shape[-1] - 1, 1)
        return weights


SOFTMAX = Softmax()
