"""The steps of many parties at once are those of each alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from codedfl import native
from codedfl.losses import LOSSES, SOFTMAX, Loss
from codedfl.parallel import Workers
from codedfl.streams import Streams
from codedfl.training import Start, Steps, accumulate_gradients
from codedfl.training.engine import _gradients as module
from codedfl.training.engine._kernel import suits
from codedfl.training.engine._sampling import sample_batches
from codedfl.typing import FloatArray
from tests.native.needs import needs_kernel

STEPS, OUTPUTS = 3, 4
COUNTS = [1, 2, 3, 8]


def models(d: int, count: int, dtype: Any, make_up: float = 0.0) -> list[Start]:
    rng = np.random.default_rng([d, count])
    return [Start(rng.standard_normal((d, OUTPUTS)).astype(dtype), 1e-4 * (r + 1), make_up * r) for r in range(count)]


def devices(shared: Sequence[Start], sizes: tuple[int, ...], batch: int) -> list[Steps]:
    """Devices that take steps with the same models, on batches drawn from streams of their own."""
    (d, _), dtype = shared[0].model.shape, shared[0].model.dtype
    parties: list[Steps] = []
    for device, samples in enumerate(sizes):
        rng = np.random.default_rng([device, samples, d])
        X, Y = (rng.standard_normal((samples, n)).astype(dtype) for n in (d, OUTPUTS))
        batches = sample_batches(Streams(1), "batch", samples, batch, STEPS, device=device, round=7)
        parties.append(Steps(X, Y, batches, samples / batch, shared))
    return parties


def everyone() -> list[Steps]:
    """A server first, devices of all sizes with one model and with several, and given, full, empty and mostly empty batches."""
    server = devices(models(33, 2, np.float32, make_up=0.2), (900,), 200)
    many = devices(models(33, 5, np.float32), (40, 60, 50, 33, 8, 300), 8)  # the fifth takes all of its rows
    alone = devices(models(20, 1, np.float64), (70, 500), 16)
    sparse = devices(models(7, 2, np.float32), (90, 91, 92), 1)
    chosen, none = devices(models(20, 3, np.float64), (30, 40), 10)
    given = replace(chosen, batches=[np.array([3, 29, 0]), np.arange(5)], scale=2.0)
    empty = replace(none, batches=[np.array([], np.int64)] * 2, scale=2.0)
    return [*server, *many, *alone, *sparse, given, empty]


def together(parties: Iterable[Steps], workers: Workers | None = None) -> list[Sequence[FloatArray]]:
    return list(accumulate_gradients(parties, workers))


def one_by_one(parties: list[Steps]) -> list[Sequence[FloatArray]]:
    """Every party alone, and every one of its models alone."""
    return [[together([replace(party, starts=[start])])[0][0] for start in party.starts] for party in parties]


def assert_close(ours: list[Sequence[FloatArray]], theirs: list[Sequence[FloatArray]]) -> None:
    for some, others in zip(ours, theirs, strict=True):
        for a, b in zip(some, others, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            # Sums of at most 900 terms, in three steps that hardly amplify: some hundred roundings of the largest entry.
            np.testing.assert_allclose(a, b, rtol=0, atol=500 * np.finfo(a.dtype).eps * max(np.abs(b).max(), 1.0))


def same_bits(ours: list[Sequence[FloatArray]], theirs: list[Sequence[FloatArray]]) -> bool:
    pairs = [pair for some, others in zip(ours, theirs, strict=True) for pair in zip(some, others, strict=True)]
    return all(np.array_equal(a, b) for a, b in pairs)


def test_together_as_one_by_one() -> None:
    parties = everyone()
    assert_close(together(parties), one_by_one(parties))


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_several_models_with_any_loss_are_those_of_each_alone(loss: Loss) -> None:
    """Step by step, as one would write it, for every model by itself; all rows and batches, two steps."""
    for party in devices(models(20, 3, np.float64, make_up=0.3), (30, 40), 10):
        own = replace(party, batches=[np.array([3, 29, 0]), None], scale=1e-2, loss=loss)
        [totals] = together([own])
        for start, total in zip(own.starts, totals, strict=True):
            model, expected = start.model, np.zeros_like(start.model)
            for rows in ([3, 29, 0], slice(None)):
                X, Y = own.features[rows], own.labels[rows]
                expected += 1e-2 * X.T @ (loss.predictions((X @ model).copy()) - Y) - start.make_up * model
                model = start.model - start.step_size * expected
            np.testing.assert_allclose(total, expected, rtol=1e-10)


@needs_kernel
def test_the_kernel_leaves_losses_that_it_does_not_know_to_numpy() -> None:
    known = next(party for party in everyone() if suits(party))
    assert not suits(replace(known, loss=SOFTMAX))
    assert [loss.name for loss in LOSSES.values() if suits(replace(known, loss=loss))] == ["square"]


@needs_kernel
def test_the_kernel_gives_a_party_the_same_bits_alone_and_among_others() -> None:
    parties = [party for party in everyone() if suits(party)]
    assert len(parties) == len(everyone()) - 1
    assert same_bits(together(parties), one_by_one(parties))


@needs_kernel
def test_the_kernel_agrees_with_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = together(everyone())
    monkeypatch.setattr(module, "suits", lambda *_: False)
    assert_close(compiled, together(everyone()))


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("compiled", [True, False])
def test_any_number_of_workers_gives_the_same_bits(count: int, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not compiled:
        monkeypatch.setattr(module, "suits", lambda *_: False)
    expected = together(everyone())
    with Workers(count) as workers:
        for _ in range(5):
            assert same_bits(together(everyone(), workers), expected)


@pytest.mark.parametrize("count", [1, 2])
def test_portions_change_nothing(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = together(everyone())
    monkeypatch.setattr(module, "LEAST_PER_WORKER", 1)
    for size in (1, 5000, 20_000):
        monkeypatch.setattr(module, "PORTION_BYTES", size)
        with Workers(count) as workers:
            assert same_bits(together(iter(everyone()), workers), expected)


def test_no_more_than_a_portion_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    shared = models(33, 1, np.float32)
    parties = devices(shared, (40,) * 20, 8)
    monkeypatch.setattr(module, "LEAST_PER_WORKER", 2)
    monkeypatch.setattr(module, "PORTION_BYTES", 5 * shared[0].model.nbytes)
    asked = 0

    def counted() -> Any:
        nonlocal asked
        for party in parties:
            asked += 1
            yield party

    updates = accumulate_gradients(counted(), Workers(1))
    assert asked == 0
    for received, _ in enumerate(updates, start=1):
        assert asked - received < 5
    assert received == 20


@pytest.mark.parametrize("count", COUNTS)
def test_a_row_out_of_range_is_refused_and_the_workers_go_on_working(count: int) -> None:
    parties = everyone()
    bad = replace(parties[-2], batches=[np.array([0, 30]), np.array([1])], scale=1.0)
    with Workers(count) as workers:
        if native.available():
            with pytest.raises(IndexError, match="there are 30 rows"):
                together([*parties, bad, *parties], workers)
        assert_close(together(parties, workers), one_by_one(parties))


def test_nobody() -> None:
    with Workers(2) as workers:
        assert together([], workers) == []
