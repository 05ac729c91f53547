"""Evaluation of models: loss, test score, and distance to the centralised optimum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from codedfl._short_repr import ShortRepr
from codedfl._validation import require_at_least
from codedfl.coding import Gram
from codedfl.data import Task
from codedfl.training._setting import Setting
from codedfl.typing import FloatArray

BLOCK_ROWS = 4096


@dataclass(frozen=True, repr=False)
class Reference(ShortRepr):
    """The centralised optimum, in closed form.

    Args:
        model: ``W*``.
        loss: ``f(W*) / m``.
        score: its test accuracy or R2.
    """

    model: FloatArray
    loss: float
    score: float


@dataclass(frozen=True, repr=False)
class Evaluator(ShortRepr):
    """Evaluates models in a setting.

    Args:
        setting: the data.
        test_samples: number of test rows to score on, drawn at random and the same for all models; None for all.
    """

    setting: Setting
    test_samples: int | None = None

    def __post_init__(self) -> None:
        if self.test_samples is not None:
            require_at_least("training.evaluation_samples", self.test_samples, 1)

    @cached_property
    def test_data(self) -> tuple[FloatArray, FloatArray]:
        """Features and labels of the test rows that models are scored on."""
        federation = self.setting.federation
        features, labels = federation.test_features, federation.test_labels
        if self.test_samples is None or self.test_samples >= len(labels):
            return features, labels
        rng = self.setting.streams.at("evaluation")
        rows = np.sort(rng.choice(len(labels), self.test_samples, replace=False))
        return features[rows], labels[rows]

    @property
    def metric(self) -> Literal["accuracy", "r2"]:
        """The metric that ``score`` reports."""
        return "accuracy" if self.setting.federation.task == "classification" else "r2"

    @cached_property
    def gram(self) -> Gram | None:
        """Second moments of the training data; None if too large to hold."""
        return self.setting.known_gram

    @cached_property
    def reference(self) -> Reference | None:
        """The centralised optimum; None if the Gram matrix is too large to hold."""
        if self.gram is None:
            return None
        model = self.gram.optimum
        return Reference(model, self.loss(model), self.scores(model)[0])

    def loss(self, model: FloatArray) -> float:
        """Return ``f(W) / m``, the training loss (1) of the paper per sample."""
        return self.losses(model)[0]

    def losses(self, *models: FloatArray) -> tuple[float, ...]:
        """Return the training loss of each model, in one pass over the data or its Gram matrix."""
        federation = self.setting.federation
        if self.gram is not None:
            constant, cross = np.trace(self.gram.labels), self.gram.cross
            doubled = [form - 2 * np.sum(model * cross) + constant for model, form in self._quadratic_forms(models)]
        else:
            doubled = [0.0] * len(models)
            stacked = np.hstack(models)
            for start in range(0, federation.total_samples, BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                predictions = np.split(federation.features[part] @ stacked, len(models), axis=1)
                for r, prediction in enumerate(predictions):
                    residual = prediction - federation.labels[part]
                    doubled[r] += float(np.sum(np.square(residual, dtype=np.float64)))
        return tuple(float(0.5 * value) / federation.total_samples for value in doubled)

    def gaps(self, *models: FloatArray) -> tuple[float, ...]:
        """Return ``(f(W) - f(W*)) / m`` of each model, NaN without a reference."""
        if self.gram is None:
            return (float("nan"),) * len(models)
        differences = [model.astype(np.float64) - self.gram.optimum for model in models]
        total = self.setting.federation.total_samples
        return tuple(float(0.5 * form) / total for _, form in self._quadratic_forms(differences))

    def gap(self, model: FloatArray) -> float:
        """Return ``(f(W) - f(W*)) / m``, NaN without a reference."""
        return self.gaps(model)[0]

    def _quadratic_forms(self, models: Sequence[FloatArray]) -> Iterator[tuple[FloatArray, float]]:
        """Yield each model in float64, with ``tr(W^T H W)``."""
        assert self.gram is not None
        stacked = np.hstack(models).astype(np.float64)
        parts = (np.split(matrix, len(models), axis=1) for matrix in (stacked, self.gram.features @ stacked))
        return ((W, np.sum(W * product)) for W, product in zip(*parts, strict=True))

    def distance(self, model: FloatArray) -> float:
        """Return ``||W - W*||_F / ||W*||_F``, NaN without a reference."""
        if self.reference is None:
            return float("nan")
        return float(np.linalg.norm(model - self.reference.model) / np.linalg.norm(self.reference.model))

    def scores(self, *models: FloatArray) -> tuple[float, ...]:
        """Return the test accuracy or R2 of each model, in one pass over the test data."""
        features, labels = self.test_data
        stacked = np.hstack(models).astype(features.dtype)
        predictions = np.split(features @ stacked, len(models), axis=1)
        return tuple(score(self.setting.federation.task, labels, prediction) for prediction in predictions)


def score(task: Task, labels: FloatArray, predictions: FloatArray) -> float:
    """Return the accuracy of the largest output (classification) or the R2, averaged over outputs (regression)."""
    if not np.isfinite(predictions).all():
        return float("nan")
    if task == "classification":
        hits = predictions.argmax(axis=1) == labels.argmax(axis=1)
        return float(hits.mean())
    if len(predictions) < 2:
        return float("nan")
    from sklearn.metrics import r2_score

    return float(r2_score(labels, predictions))
