from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from codedfl.streams import MAX_SEED, Streams
from codedfl.training import bernoulli_batches
from codedfl.training.engine._sampling import Batch, sample_batches
from codedfl.typing import IntArray
from tests.gradients import gradient
from tests.native.needs import needs_kernel

pytestmark = needs_kernel

SIZES = [(2, 1), (3, 1), (7, 6), (8, 3), (9, 4), (31, 30), (32, 7), (33, 8), (301, 7), (1000, 333), (1001, 999),
         (3000, 64), (65_537, 5)]  # fmt: skip


def fingerprints(samples: int) -> np.ndarray:
    """Three whole numbers for every row, whose sums over a batch are exact and tell it from other batches."""
    return np.random.default_rng(samples).integers(2**32, size=(samples, 3)).astype(np.float64)


def sum_of_sampled_rows(
    streams: Streams, purpose: str, samples: int, batch: int, steps: int, at: dict[str, int]
) -> list[int]:
    """Let the kernel draw: at W = 0 and Y = -1, a gradient is the sum of the sampled rows."""
    batches = sample_batches(streams, purpose, samples, batch, steps, **at)
    X, Y = fingerprints(samples), -np.ones((samples, 1))
    total = gradient(X, Y, np.zeros((3, 1)), batches, scale=1.0, step_size=0.0)
    return [int(number) for number in total[:, 0]]


def joined(batches: Sequence[Batch]) -> IntArray:
    return np.concatenate([batch for batch in batches if batch is not None])


@pytest.mark.parametrize(("samples", "batch"), SIZES)
@pytest.mark.parametrize("seed", [0, 7, MAX_SEED])
def test_the_rows_are_those_that_numpy_samples(samples: int, batch: int, seed: int) -> None:
    streams, numbers = Streams(seed), fingerprints(samples)
    for at in ({"device": d, "round": r} for d, r in [(0, 0), (1, 0), (0, 1), (19, 999), (2**40, 2**63)]):
        for purpose in ("batch", "server-batch"):
            expected = np.zeros(3)
            for steps, rows in enumerate(bernoulli_batches(streams.at(purpose, **at), samples, batch, 4), start=1):
                expected += numbers[rows].sum(axis=0)
                # Step by step, so that a row in the wrong step does not go unnoticed.
                assert sum_of_sampled_rows(streams, purpose, samples, batch, steps, at) == expected.tolist()


def test_many_devices_and_rounds() -> None:
    streams = Streams(3)
    for k in range(300):
        at, samples, batch = {"device": k % 23, "round": k}, 50 + 13 * k, 1 + k % 50
        rows = joined(bernoulli_batches(streams.at("batch", **at), samples, batch, 3))
        expected = fingerprints(samples)[rows].sum(axis=0)
        assert sum_of_sampled_rows(streams, "batch", samples, batch, 3, at) == expected.tolist()


def test_there_is_room_for_batches_of_almost_all_rows() -> None:
    samples = 20_000
    total = sum_of_sampled_rows(Streams(0), "batch", samples, samples - 1, 7, {})
    rows = joined(bernoulli_batches(Streams(0).at("batch"), samples, samples - 1, 7))
    assert rows.size > 7 * (samples - 10)
    assert total == fingerprints(samples)[rows].sum(axis=0).tolist()


def test_a_full_batch_is_all_rows() -> None:
    assert sample_batches(Streams(0), "batch", 5, 5, 3) == [None, None, None]
    assert sample_batches(Streams(0), "batch", 5, 9, 1) == [None]


def test_batches_of_other_data_are_drawn_as_they_would_be_there() -> None:
    """Ten of the first 50 rows, not of all 80."""
    batches = sample_batches(Streams(0), "batch", 50, 10, 3)
    X, Y = fingerprints(80), -np.ones((80, 1))
    total = gradient(X, Y, np.zeros((3, 1)), batches, scale=1.0, step_size=0.0)
    assert total[:, 0].tolist() == X[joined(batches)].sum(axis=0).tolist()
    with pytest.raises(IndexError, match="there are 20 rows"):
        gradient(X[:20], Y[:20], np.zeros((3, 1)), batches, scale=1.0, step_size=0.0)
