"""How good a model is: loss, test score, and distance to the centralised optimum."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from sklearn.metrics import r2_score

from codedfl.arrays import FloatArray
from codedfl.coding import Gram
from codedfl.data import Federation
from codedfl.training.setting import Setting

BLOCK_ROWS = 4096


@dataclass(frozen=True)
class Reference:
    """The centralised optimum, in closed form.

    Args:
        model: ``W*``.
        loss: ``f(W*) / m``.
        score: its test accuracy or R2.
    """

    model: FloatArray
    loss: float
    score: float


@dataclass(frozen=True)
class Evaluator:
    """Measures models in a setting.

    Args:
        setting: the data.
    """

    setting: Setting

    @property
    def metric(self) -> Literal["accuracy", "r2"]:
        """What ``score`` is."""
        return "accuracy" if self.setting.federation.task == "classification" else "r2"

    @cached_property
    def gram(self) -> Gram | None:
        """Second moments of the training data, or None where they are too large to hold."""
        return self.setting.known_gram

    @cached_property
    def reference(self) -> Reference | None:
        """The centralised optimum; None where the Gram matrix is too large to hold."""
        if self.gram is None:
            return None
        model = self.gram.optimum
        return Reference(model, self.loss(model), self.scores(model)[0])

    def loss(self, model: FloatArray) -> float:
        """Return ``f(W) / m``, the training loss (1) of the paper for one sample."""
        federation = self.setting.federation
        if self.gram is not None:
            return self.gram.loss(model) / federation.total_samples
        squares = 0.0
        for start in range(0, federation.total_samples, BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            residual = federation.features[part] @ model - federation.labels[part]
            squares += float(np.sum(np.square(residual, dtype=np.float64)))
        return 0.5 * squares / federation.total_samples

    def gap(self, model: FloatArray) -> float:
        """Return ``(f(W) - f(W*)) / m``, NaN without a reference."""
        return self.gram.gap(model) / self.setting.federation.total_samples if self.gram else float("nan")

    def distance(self, model: FloatArray) -> float:
        """Return ``||W - W*||_F / ||W*||_F``, NaN without a reference."""
        if self.reference is None:
            return float("nan")
        return float(np.linalg.norm(model - self.reference.model) / np.linalg.norm(self.reference.model))

    def scores(self, *models: FloatArray) -> tuple[float, ...]:
        """Return the test accuracy or R2 of each model, in one pass over the test data."""
        federation = self.setting.federation
        stacked = np.hstack(models).astype(federation.features.dtype)
        predictions = np.split(federation.test_features @ stacked, len(models), axis=1)
        return tuple(score(federation, prediction) for prediction in predictions)


def score(federation: Federation, predictions: FloatArray) -> float:
    """Return the accuracy of the largest output (classification) or the R2, averaged over outputs (regression)."""
    if not np.isfinite(predictions).all():
        return float("nan")
    if federation.task == "classification":
        hits = predictions.argmax(axis=1) == federation.test_labels.argmax(axis=1)
        return float(hits.mean())
    if len(predictions) < 2:
        return float("nan")
    return float(r2_score(federation.test_labels, predictions))
