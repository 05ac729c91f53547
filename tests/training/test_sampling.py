from __future__ import annotations

import numpy as np
import pytest

from codedfl.streams import Streams
from codedfl.training import bernoulli_batches
from codedfl.training.engine import _sampling as sampling
from codedfl.training.engine._sampling import sample_batches


def test_every_row_is_sampled_independently_with_probability_b_over_l() -> None:
    """Over 20,000 steps, the frequency of each of 12 rows and of each of 66 pairs is within 4.5 binomial standard errors."""
    steps, rows, batch = 20_000, 12, 3
    chosen = np.zeros((steps, rows))
    for u, indices in enumerate(bernoulli_batches(np.random.default_rng(0), rows, batch, steps)):
        chosen[u, indices] = 1
    p = batch / rows
    error = np.sqrt(p * (1 - p) / steps)
    assert np.abs(chosen.mean(axis=0) - p).max() < 4.5 * error
    together = chosen.T @ chosen / steps
    pairs = together[np.triu_indices(rows, 1)]
    assert np.abs(pairs - p**2).max() < 4.5 * np.sqrt(p**2 * (1 - p**2) / steps)
    sizes = chosen.sum(axis=1)
    assert abs(sizes.mean() - batch) < 4.5 * np.sqrt(rows * p * (1 - p) / steps)
    assert sizes.std() > 0, "the size of a batch is itself random"


def test_steps_are_independent() -> None:
    batches = bernoulli_batches(np.random.default_rng(1), 4000, 2000, 2)
    assert batches[0] is not None
    assert batches[1] is not None
    common = len(np.intersect1d(batches[0], batches[1]))
    assert abs(common - 1000) < 4.5 * np.sqrt(4000 * 0.25 * 0.75)


def test_a_larger_batch_contains_a_smaller_one_of_the_same_stream() -> None:
    small, large = (bernoulli_batches(np.random.default_rng(2), 50, b, 1)[0] for b in (5, 20))
    assert small is not None
    assert large is not None
    assert set(small) < set(large)


def test_a_full_batch_is_all_rows() -> None:
    assert bernoulli_batches(np.random.default_rng(0), 5, 5, 3) == [None, None, None]


@pytest.mark.parametrize("batch", [1, 17, 50])
def test_a_stream_by_its_address_gives_the_batches_of_its_generator(batch: int) -> None:
    streams = Streams(5)
    by_address = sample_batches(streams, "batch", 50, batch, 4, device=3, round=9)
    by_generator = bernoulli_batches(streams.at("batch", device=3, round=9), 50, batch, 4)
    assert len(by_address) == 4
    for a, b in zip(by_address, by_generator, strict=True):
        assert (a is None) == (b is None)
        assert a is None or a.tolist() == (b.tolist() if b is not None else None)


def test_batches_are_drawn_once_and_only_when_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []

    def counting(rng: np.random.Generator, samples: int, batch_size: int, steps: int) -> list[sampling.Batch]:
        drawn.append(samples)
        return bernoulli_batches(rng, samples, batch_size, steps)

    monkeypatch.setattr(sampling, "bernoulli_batches", counting)
    batches = sample_batches(Streams(5), "batch", 50, 17, 4)
    assert len(batches) == 4
    assert not drawn
    assert batches[-1] is batches[3]
    assert [batch is batches[u] for u, batch in enumerate(batches[1:3], start=1)] == [True, True]
    with pytest.raises(IndexError):
        batches[4]
    assert drawn == [50]
