"""Evaluation of models: loss, test score, and distance to the centralised optimum."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from codedfl._validation import require_at_least
from codedfl.coding import Gram
from codedfl.data import Task
from codedfl.losses import SQUARE, Loss
from codedfl.setting import Setting
from codedfl.typing import FloatArray, ShortRepr

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
    """Evaluates models in a setting, by one loss.

    Args:
        setting: the data.
        test_samples: number of test rows to score on, drawn at random and the same for all models; None for all.
        loss: what losses, gaps and the reference are those of.
    """

    setting: Setting
    test_samples: int | None = None
    loss: Loss = SQUARE

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

    def minimising(self, loss: Loss) -> Evaluator:
        """Return the evaluator by another loss, on the same rows: always the same one, so that runs share it."""
        return self if loss == self.loss else self._by_loss.setdefault(loss, replace(self, loss=loss))

    @cached_property
    def _by_loss(self) -> dict[Loss, Evaluator]:
        return {}

    @cached_property
    def gram(self) -> Gram | None:
        """Second moments of the training data; None if too large to hold, or if the loss does not follow from them."""
        return self.setting.known_gram if self.loss.quadratic else None

    @cached_property
    def optimum(self) -> FloatArray | None:
        """``W*``; None if the Gram matrix is too large to hold, or if the loss has no closed form."""
        return None if self.gram is None else self.loss.optimum(self.gram)

    @cached_property
    def reference(self) -> Reference | None:
        """The centralised optimum; None if it is not known, see `optimum`."""
        if self.optimum is None:
            return None
        return Reference(self.optimum, self.training_loss(self.optimum), self.scores(self.optimum)[0])

    def training_loss(self, model: FloatArray) -> float:
        """Return ``f(W) / m``, the training loss per sample: (1) of the paper for least squares."""
        return self.losses(model)[0]

    def losses(self, *models: FloatArray) -> tuple[float, ...]:
        """Return the training loss of each model, in one pass over the data or its Gram matrix."""
        federation = self.setting.federation
        if self.gram is not None:
            constant, cross = np.trace(self.gram.labels), self.gram.cross
            doubled = [form - 2 * np.sum(model * cross) + constant for model, form in self._quadratic_forms(models)]
            totals = [0.5 * value for value in doubled]
        else:
            totals = [0.0] * len(models)
            stacked = np.hstack(models)
            for start in range(0, federation.total_samples, BLOCK_ROWS):
                part = slice(start, start + BLOCK_ROWS)
                outputs = np.split(federation.features[part] @ stacked, len(models), axis=1)
                for r, output in enumerate(outputs):
                    totals[r] += self.loss.value(output, federation.labels[part])
        return tuple(float(total) / federation.total_samples for total in totals)

    def gaps(self, *models: FloatArray) -> tuple[float, ...]:
        """Return ``(f(W) - f(W*)) / m`` of each model, NaN without a reference."""
        optimum = self.optimum
        if optimum is None:
            return (float("nan"),) * len(models)
        differences = [model.astype(np.float64) - optimum for model in models]
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
        if self.optimum is None:
            return float("nan")
        return float(np.linalg.norm(model - self.optimum) / np.linalg.norm(self.optimum))

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
