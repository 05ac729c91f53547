"""The gradient steps of one party in one round, before any model is known, and the models that they are taken with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl import native
from codedfl.arrays import FloatArray
from codedfl.training.steps import Batch, PerColumn, accumulate_gradients


@dataclass(frozen=True, eq=False)
class Models:
    """Models that take the same steps, each with a step size and a make-up term of its own.

    Args:
        models: ``W_k`` of each, (d, o).
        step_sizes: ``eta_k`` of each.
        make_ups: ``sigma^2`` of the make-up term of each.
    """

    models: Sequence[FloatArray]
    step_sizes: Sequence[float]
    make_ups: Sequence[float]

    def __len__(self) -> int:
        return len(self.models)

    @cached_property
    def side_by_side(self) -> FloatArray:
        """All models as columns of one matrix, (d, R o)."""
        return np.hstack(self.models)

    def per_column(self, values: Sequence[float]) -> PerColumn:
        """Spread one value for each model over its columns, unless all have the same."""
        return np.repeat(values, self.models[0].shape[1]) if len(set(values)) > 1 else values[0]


@dataclass(frozen=True, eq=False)
class Work:
    """The steps of a device or of the server: all arguments of `accumulate_gradients` but the model.

    Args:
        features: ``X``, (l, d).
        labels: ``Y``, (l, o).
        batches: the sampled rows of each step.
        scale: what makes the sampled gradient unbiased.

    Example:
        >>> work = Work(np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]]), [None, None], scale=1.0)
        >>> work.update(np.zeros((1, 1)), 0.1)
        array([[-7.5]])
        >>> work.updates(Models([np.zeros((1, 1))] * 2, [0.1, 0.2], [0.0, 0.0]))
        [array([[-7.5]]), array([[-5.]])]
    """

    features: FloatArray
    labels: FloatArray
    batches: Sequence[Batch]
    scale: float

    def update(self, model: FloatArray, step_size: PerColumn, make_up: PerColumn = 0.0) -> FloatArray:
        """Take the steps and return the accumulated gradient."""
        return accumulate_gradients(
            self.features, self.labels, model, self.batches, scale=self.scale, step_size=step_size, make_up=make_up
        )

    def updates(self, models: Models) -> list[FloatArray]:
        """Take the steps with several models and return the accumulated gradient of each.

        Numpy gathers rows once for all models side by side, and multiplies wide matrices faster than narrow ones. The compiled
        kernel is as fast for one narrow model as numpy for many, so where it is used models take their steps one after
        the other.
        """
        if len(models) == 1 or self._suits_kernel(models.models[0]):
            each = zip(models.models, models.step_sizes, models.make_ups, strict=True)
            return [self.update(model, step_size, make_up) for model, step_size, make_up in each]
        steps, make_ups = models.per_column(models.step_sizes), models.per_column(models.make_ups)
        total = self.update(models.side_by_side, steps, make_ups)
        rows, outputs = len(total), self.labels.shape[1]
        # Copied, so that each is contiguous: an aggregation goes over them many times.
        return list(np.ascontiguousarray(total.reshape(rows, len(models), outputs).transpose(1, 0, 2)))

    def _suits_kernel(self, model: FloatArray) -> bool:
        sampled = all(batch is not None for batch in self.batches)
        return sampled and native.suits(self.features, self.labels, model)
