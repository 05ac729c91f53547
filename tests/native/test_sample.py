from __future__ import annotations

from collections.abc import Sequence

import pytest

from codedfl.streams import MAX_SEED, Streams
from codedfl.training import bernoulli_batches
from codedfl.training.sampling import sample_batches
from codedfl.training.steps import Batch, Batches
from tests.native.needs import needs_kernel

pytestmark = needs_kernel

SIZES = [(2, 1), (3, 1), (7, 6), (8, 3), (9, 4), (301, 7), (1000, 333), (1001, 999), (3000, 64), (65_537, 5)]


def listed(batches: Sequence[Batch]) -> list[list[int] | None]:
    return [None if batch is None else batch.tolist() for batch in batches]


@pytest.mark.parametrize(("samples", "batch_size"), SIZES)
@pytest.mark.parametrize("steps", [1, 2, 5])
@pytest.mark.parametrize("seed", [0, 7, MAX_SEED])
def test_the_rows_are_those_that_numpy_samples(samples: int, batch_size: int, steps: int, seed: int) -> None:
    streams = Streams(seed)
    for device, round in [(0, 0), (1, 0), (0, 1), (19, 999), (2**40, 2**63)]:
        for purpose in ("batch", "server-batch"):
            rng = streams.at(purpose, device=device, round=round)
            expected = bernoulli_batches(rng, samples, batch_size, steps)
            actual = sample_batches(streams, purpose, samples, batch_size, steps, device=device, round=round)
            assert isinstance(actual, Batches)
            assert len(actual) == steps
            assert listed(actual) == listed(expected)


def test_many_devices_and_rounds() -> None:
    streams = Streams(3)
    for k in range(300):
        device, round, samples = k % 23, k, 50 + 13 * k
        batch = 1 + k % 50
        expected = bernoulli_batches(streams.at("batch", device=device, round=round), samples, batch, 3)
        actual = sample_batches(streams, "batch", samples, batch, 3, device=device, round=round)
        assert listed(actual) == listed(expected)


def test_a_full_batch_is_all_rows() -> None:
    assert sample_batches(Streams(0), "batch", 5, 5, 3) == [None, None, None]
    assert sample_batches(Streams(0), "batch", 5, 9, 1) == [None]
