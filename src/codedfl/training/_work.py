"""The gradient steps of a party in a round, before any model is known, and how those of many are taken with their models."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from codedfl import native
from codedfl.parallel import Workers
from codedfl.training._sampling import Batch
from codedfl.training._steps import PerColumn, accumulate_gradients, for_kernel
from codedfl.typing import FloatArray

PORTION_BYTES = 2**24
"""Updates that are computed before they are combined: some megabytes stay in the cache until then."""

LEAST_A_WORKER = 8
"""Parties that a worker has at least before everyone waits for the last of them, even if their updates are large."""


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

    @cached_property
    def for_kernel(self) -> list[native.Model]:
        """All models as the compiled kernel takes them."""
        return list(map(native.Model, self.models, self.step_sizes, self.make_ups))

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
        """Take the steps with several models side by side, and return the accumulated gradient of each.

        Numpy then gathers rows once for all models, and multiplies wide matrices faster than narrow ones.
        """
        if len(models) == 1:
            return [self.update(models.models[0], models.step_sizes[0], models.make_ups[0])]
        steps, make_ups = models.per_column(models.step_sizes), models.per_column(models.make_ups)
        total = self.update(models.side_by_side, steps, make_ups)
        rows, outputs = len(total), self.labels.shape[1]
        # Copied, so that each is contiguous: an aggregation goes over them many times.
        return list(np.ascontiguousarray(total.reshape(rows, len(models), outputs).transpose(1, 0, 2)))

    def for_kernel(self, models: Models) -> native.Party | None:
        """Return the steps with several models as the compiled kernel takes them; None if it is not there or not made for them.

        The kernel is as fast for one narrow model as numpy for many side by side, so it takes one model after the other.
        """
        batches = for_kernel(self.batches, len(self.features))
        if batches is None or not native.suits(self.features, self.labels, *models.models):
            return None
        return native.Party(self.features, self.labels, batches, self.scale, models.for_kernel)


Party = tuple[Work, Models]
"""A device or the server: its steps, and the models that take them."""


def take_steps(parties: Iterable[Party], workers: Workers) -> Iterator[list[FloatArray]]:
    """Yield the accumulated gradients of each party, one for each of its models, in the order of the parties.

    Parties are balanced over the workers best if those with the most to do come first.

    Example:
        >>> work = Work(np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]]), [None, None], scale=1.0)
        >>> models = Models([np.zeros((1, 1))] * 2, [0.1, 0.2], [0.0, 0.0])
        >>> list(take_steps([(work, models)] * 2, Workers(1)))
        [[array([[-7.5]]), array([[-5.]])], [array([[-7.5]]), array([[-5.]])]]
    """
    for some in _portions(parties, workers):
        yield from _taken(some, workers)


def _portions(parties: Iterable[Party], workers: Workers) -> Iterator[list[Party]]:
    """Cut parties into portions, so that the updates of all need not be held at once."""
    portion, size = list[Party](), 0
    for work, models in parties:
        portion.append((work, models))
        size += sum(model.nbytes for model in models.models)
        if size >= PORTION_BYTES and len(portion) >= LEAST_A_WORKER * workers.count:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _taken(parties: Sequence[Party], workers: Workers) -> list[list[FloatArray]]:
    """Let every worker take one party after the other that no one else has taken, until none is left.

    For those of the compiled kernel a worker calls it once, and leaves the interpreter to the others.
    """
    by_kernel = [work.for_kernel(models) for work, models in parties]
    compiled = native.Steps([party for party in by_kernel if party])
    by_numpy = {place: party for place, party in enumerate(parties) if not by_kernel[place]}
    updates: dict[int, list[FloatArray]] = {}
    remaining = iter(by_numpy.items())

    def take(_: int) -> None:
        # A diverging run overflows until the loop notices; each thread has warnings of its own to silence.
        with np.errstate(over="ignore", invalid="ignore"):
            for place, (work, models) in remaining:
                updates[place] = work.updates(models)
        compiled.take()

    for _ in workers.map(take, range(min(workers.count, len(parties)))):
        pass
    totals = iter(compiled.totals)
    return [updates[place] if place in by_numpy else list(next(totals)) for place in range(len(parties))]
