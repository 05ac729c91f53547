"""Bernoulli sampling of batches (Sec. III-B)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import SupportsIndex, overload

import numpy as np

from codedfl.streams import Streams
from codedfl.typing import IntArray

Batch = IntArray | None
"""Indices of the sampled rows; None for all rows."""


def sample_batches(
    streams: Streams,
    purpose: str,
    samples: int,
    batch_size: int,
    steps: int,
    *,
    device: int = 0,
    round: int = 0,
) -> Sequence[Batch]:
    """Sample the batches of the stream (purpose, device, round): the same rows as ``bernoulli_batches``, drawn on demand.

    Example:
        >>> batches = sample_batches(Streams(7), "batch", 6, 2, 2, device=3, round=10)
        >>> same = bernoulli_batches(Streams(7).at("batch", device=3, round=10), 6, 2, 2)
        >>> all(np.array_equal(a, b) for a, b in zip(batches, same, strict=True))
        True
    """
    if batch_size >= samples:
        return [None] * steps
    return BernoulliBatches(streams, purpose, samples, batch_size, steps, device, round)


@dataclass(eq=False)
class BernoulliBatches(Sequence[Batch]):
    """Batches drawn on first access: the compiled kernel draws them itself, from ``key``, ``device`` and ``round``."""

    streams: Streams
    purpose: str
    samples: int
    batch_size: int
    steps: int
    device: int
    round: int

    @property
    def key(self) -> tuple[int, int]:
        """The Philox key of the stream."""
        return self.streams.key(self.purpose)

    @property
    def probability(self) -> float:
        """The probability that a row is in a batch."""
        return self.batch_size / self.samples

    @cached_property
    def _drawn(self) -> list[Batch]:
        rng = self.streams.at(self.purpose, device=self.device, round=self.round)
        return bernoulli_batches(rng, self.samples, self.batch_size, self.steps)

    def __len__(self) -> int:
        return self.steps

    @overload
    def __getitem__(self, step: SupportsIndex) -> Batch: ...

    @overload
    def __getitem__(self, step: slice) -> Sequence[Batch]: ...

    def __getitem__(self, step: SupportsIndex | slice) -> Batch | Sequence[Batch]:
        return self._drawn[step]


def bernoulli_batches(rng: np.random.Generator, samples: int, batch_size: int, steps: int) -> list[Batch]:
    """Sample the batch of each step: every row is in it with probability ``b / l``, independently.

    The diagonal of ``S_{k,u}`` in the paper is Bern(b / l); this returns the indices of its ones. The draws do not depend
    on ``b``, so a larger batch contains a smaller one drawn from the same stream.

    Args:
        rng: the stream of this device and round.
        samples: ``l``, rows to sample from.
        batch_size: ``b``, from 1 to ``l``.
        steps: ``tau``.

    Returns:
        ``steps`` batches; with ``b = l`` every batch is all rows.

    Example:
        >>> bernoulli_batches(np.random.default_rng(0), 6, 3, 2)
        [array([3, 4, 5]), array([0, 1, 2])]
    """
    if batch_size >= samples:
        return [None] * steps
    chosen = rng.random((steps, samples), dtype=np.float32) < batch_size / samples
    return [np.flatnonzero(row) for row in chosen]
