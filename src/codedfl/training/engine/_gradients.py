"""Gradient steps: the one computation that devices and the server run in a round."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from codedfl.parallel import Workers
from codedfl.training.engine._kernel import KernelCall, suits
from codedfl.training.engine._steps import Start, Steps
from codedfl.typing import FloatArray, IntArray

PORTION_BYTES = 2**24
"""Updates computed before they are combined; a few megabytes stay in the cache until then."""

LEAST_PER_WORKER = 8
"""Parties per worker in a portion, even if their updates are large: all workers wait for the last party of a portion."""


def accumulate_gradients(parties: Iterable[Steps], workers: Workers | None = None) -> Iterator[Sequence[FloatArray]]:
    """Take the steps of every party and yield the accumulated gradients ``sum_u g_u``, one per start.

    Devices, the server, the simulator and a real federation all call this function. It uses the compiled kernel where
    possible and numpy elsewhere; both sample the same rows and agree up to rounding.

    Args:
        parties: the steps of each party; the load is balanced best if the longest comes first.
        workers: threads to spread the parties over; the result does not depend on their number.

    Yields:
        For each party, in order, the accumulated gradient of each of its starts.

    Example:
        >>> from codedfl.training import Start
        >>> X, Y = np.array([[1.0], [2.0]]), np.array([[1.0], [2.0]])
        >>> starts = [Start(np.zeros((1, 1)), 0.1), Start(np.zeros((1, 1)), 0.2)]
        >>> [gradients] = accumulate_gradients([Steps(X, Y, [None, None], 1.0, starts)])
        >>> [gradient.tolist() for gradient in gradients]
        [[[-7.5]], [[-5.0]]]
    """
    workers = workers or Workers(1)
    for portion in _portions(parties, workers):
        yield from _accumulate(portion, workers)


def _portions(parties: Iterable[Steps], workers: Workers) -> Iterator[list[Steps]]:
    """Split parties into portions, so that not all updates are held at once."""
    portion, size = list[Steps](), 0
    for party in parties:
        portion.append(party)
        size += sum(start.model.nbytes for start in party.starts)
        if size >= PORTION_BYTES and len(portion) >= LEAST_PER_WORKER * workers.count:
            yield portion
            portion, size = [], 0
    if portion:
        yield portion


def _accumulate(parties: Sequence[Steps], workers: Workers) -> list[Sequence[FloatArray]]:
    """Let every worker take one party after another until none is left.

    A worker calls the compiled kernel once for all of its parties, which releases the interpreter to the others.
    """
    by_kernel = [suits(party) for party in parties]
    call = KernelCall([party for party, fits in zip(parties, by_kernel, strict=True) if fits])
    by_numpy = {place: party for place, party in enumerate(parties) if not by_kernel[place]}
    gradients: dict[int, Sequence[FloatArray]] = {}
    remaining = iter(by_numpy.items())

    def take(_: int) -> None:
        # A diverging run overflows until the loop notices; numpy keeps its warnings per thread.
        with np.errstate(over="ignore", invalid="ignore"):
            for place, party in remaining:
                gradients[place] = _with_numpy(party)
        call.take()

    for _ in workers.map(take, range(min(workers.count, len(parties)))):
        pass
    totals: Iterator[Sequence[FloatArray]] = iter([list(total) for total in call.totals])
    return [gradients[place] if place in by_numpy else next(totals) for place in range(len(parties))]


def _with_numpy(party: Steps) -> Sequence[FloatArray]:
    """Take the steps of all starts side by side: rows are gathered once, and wide products are faster than narrow ones."""
    features, labels, starts = party.features, party.labels, party.starts
    if party.private is not None:
        (batch,) = party.batches
        return [
            party.private.release(features, labels, batch, start.model, party.scale, party.loss) for start in starts
        ]
    outputs = labels.shape[1]
    model = starts[0].model if len(starts) == 1 else np.hstack([start.model for start in starts])
    number = model.dtype.type
    step_size = _per_column([start.step_size for start in starts], outputs, model.dtype)
    make_up = _per_column([start.make_up for start in starts], outputs, model.dtype)
    shift = _shifts(starts)
    total = np.zeros_like(model)
    local = model
    for u, batch in enumerate(party.batches):
        if u > 0:
            local = model - step_size * total
        sampled, targets = (features, labels) if batch is None else (_gather(features, batch), labels[batch])
        side_by_side = (sampled @ local).reshape(len(sampled), len(starts), outputs)
        residual = party.loss.residuals(side_by_side, targets[:, None, :]).reshape(len(sampled), local.shape[1])
        residual *= number(party.scale)
        total += sampled.T @ residual
        if make_up.any():
            total -= make_up * local
        if shift is not None:
            total += shift
    if len(starts) == 1:
        return [total]
    # Copied, so that each gradient is contiguous: an aggregation reads it many times.
    return list(np.ascontiguousarray(total.reshape(len(total), len(starts), outputs).transpose(1, 0, 2)))


def _shifts(starts: Sequence[Start]) -> FloatArray | None:
    """Return what is added to every gradient, side by side; None if nothing is."""
    if all(start.shift is None for start in starts):
        return None
    return np.hstack([np.zeros_like(start.model) if start.shift is None else start.shift for start in starts])


def _per_column(values: Sequence[float], outputs: int, dtype: np.dtype[np.floating]) -> FloatArray:
    """Spread one value per start over its columns, unless all starts have the same."""
    return np.asarray(np.repeat(values, outputs) if len(set(values)) > 1 else values[0], dtype)


_buffers = threading.local()


def _gather(features: FloatArray, rows: IntArray) -> FloatArray:
    """Copy rows into this thread's buffer, which is reused: page faults of a fresh array cost more than the copy itself."""
    size = rows.size * features.shape[1]
    buffer: FloatArray | None = getattr(_buffers, "rows", None)
    if buffer is None or buffer.size < size or buffer.dtype != features.dtype:
        buffer = _buffers.rows = np.empty(size + size // 2, features.dtype)
    out = buffer[:size].reshape(rows.size, features.shape[1])
    # mode="clip" because numpy's default mode buffers the whole output; the indices are within range.
    return np.take(features, rows, axis=0, out=out, mode="clip")
