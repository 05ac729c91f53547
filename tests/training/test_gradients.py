"""The steps of many parties at once are those of each alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from codedfl import native
from codedfl.parallel import Workers
from codedfl.streams import Streams
from codedfl.training import _work as work
from codedfl.training._sampling import sample_batches
from codedfl.training._work import Models, Party, Work, take_steps
from codedfl.typing import FloatArray
from tests.native.needs import needs_kernel

STEPS, OUTPUTS = 3, 4
COUNTS = [1, 2, 3, 8]


def models(d: int, count: int, dtype: Any, make_up: float = 0.0) -> Models:
    rng = np.random.default_rng([d, count])
    starts = [rng.standard_normal((d, OUTPUTS)).astype(dtype) for _ in range(count)]
    return Models(starts, [1e-4 * (r + 1) for r in range(count)], [make_up * r for r in range(count)])


def devices(shared: Models, sizes: tuple[int, ...], batch: int) -> list[Party]:
    """Devices that take steps with the same models, on batches drawn from streams of their own."""
    (d, _), dtype = shared.models[0].shape, shared.models[0].dtype
    parties: list[Party] = []
    for device, samples in enumerate(sizes):
        rng = np.random.default_rng([device, samples, d])
        X, Y = (rng.standard_normal((samples, n)).astype(dtype) for n in (d, OUTPUTS))
        batches = sample_batches(Streams(1), "batch", samples, batch, STEPS, device=device, round=7)
        parties.append((Work(X, Y, batches, scale=samples / batch), shared))
    return parties


def everyone() -> list[Party]:
    """A server first, devices of all sizes with one model and with several, and given, full, empty and mostly empty batches."""
    server = devices(models(33, 2, np.float32, make_up=0.2), (900,), 200)
    many = devices(models(33, 5, np.float32), (40, 60, 50, 33, 8, 300), 8)  # the fifth takes all of its rows
    alone = devices(models(20, 1, np.float64), (70, 500), 16)
    sparse = devices(models(7, 2, np.float32), (90, 91, 92), 1)
    (chosen, shared), (none, _) = devices(models(20, 3, np.float64), (30, 40), 10)
    given = Work(chosen.features, chosen.labels, [np.array([3, 29, 0]), np.arange(5)], scale=2.0)
    empty = Work(none.features, none.labels, [np.array([], np.int64)] * 2, scale=2.0)
    return [*server, *many, *alone, *sparse, (given, shared), (empty, shared)]


def one_by_one(parties: list[Party]) -> list[list[FloatArray]]:
    return [
        [steps.update(*each) for each in zip(own.models, own.step_sizes, own.make_ups, strict=True)]
        for steps, own in parties
    ]


def assert_close(ours: list[list[FloatArray]], theirs: list[list[FloatArray]]) -> None:
    for some, others in zip(ours, theirs, strict=True):
        for a, b in zip(some, others, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            # Sums of at most 900 terms, in three steps that hardly amplify: some hundred roundings of the largest entry.
            np.testing.assert_allclose(a, b, rtol=0, atol=500 * np.finfo(a.dtype).eps * max(np.abs(b).max(), 1.0))


def same_bits(ours: list[list[FloatArray]], theirs: list[list[FloatArray]]) -> bool:
    pairs = [pair for some, others in zip(ours, theirs, strict=True) for pair in zip(some, others, strict=True)]
    return all(np.array_equal(a, b) for a, b in pairs)


def test_together_as_one_by_one() -> None:
    parties = everyone()
    assert_close(list(take_steps(parties, Workers(1))), one_by_one(parties))


@needs_kernel
def test_the_kernel_gives_a_party_the_same_bits_alone_and_among_others() -> None:
    parties = [party for party in everyone() if party[0].for_kernel(party[1])]
    assert len(parties) == len(everyone()) - 1
    assert same_bits(list(take_steps(parties, Workers(1))), one_by_one(parties))


@needs_kernel
def test_the_kernel_agrees_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = list(take_steps(everyone(), Workers(1)))
    monkeypatch.setattr(native, "suits", lambda *_: False)
    assert_close(compiled, list(take_steps(everyone(), Workers(1))))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("compiled", [True, False])
def test_any_number_of_workers_gives_the_same_bits(count: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(native, "suits", lambda *_: False)
    expected = list(take_steps(everyone(), Workers(1)))
    with Workers(count) as workers:
        for _ in range(5):
            assert same_bits(list(take_steps(everyone(), workers)), expected)


@pytest.mark.parametrize("count", [1, 2])
def test_portions_change_nothing(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = list(take_steps(everyone(), Workers(1)))
    monkeypatch.setattr(work, "LEAST_A_WORKER", 1)
    for size in (1, 5000, 20_000):
        monkeypatch.setattr(work, "PORTION_BYTES", size)
        with Workers(count) as workers:
            assert same_bits(list(take_steps(iter(everyone()), workers)), expected)


def test_no_more_than_a_portion_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = models(33, 1, np.float32)
    parties = devices(shared, (40,) * 20, 8)
    monkeypatch.setattr(work, "LEAST_A_WORKER", 2)
    monkeypatch.setattr(work, "PORTION_BYTES", 5 * shared.models[0].nbytes)
    asked = 0

    def counted() -> Any:
        nonlocal asked
        for party in parties:
            asked += 1
            yield party

    updates = take_steps(counted(), Workers(1))
    assert asked == 0
    for received, _ in enumerate(updates, start=1):
        assert asked - received < 5
    assert received == 20


@pytest.mark.parametrize("count", COUNTS)
def test_a_row_out_of_range_is_refused_and_the_workers_go_on_working(count: int) -> None:
    parties = everyone()
    (fine, shared), wrong = parties[-2], [np.array([0, 30]), np.array([1])]
    bad = Work(fine.features, fine.labels, wrong, scale=1.0)
    with Workers(count) as workers:
        if native.available():
            with pytest.raises(IndexError, match="there are 30 rows"):
                list(take_steps([*parties, (bad, shared), *parties], workers))
        assert_close(list(take_steps(parties, workers)), one_by_one(parties))


def test_nobody() -> None:
    with Workers(2) as workers:
        assert list(take_steps([], workers)) == []
