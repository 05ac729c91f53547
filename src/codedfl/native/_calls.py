"""The kernel's functions, for numpy arrays."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import NamedTuple

import numpy as np

from codedfl.native._library import library
from codedfl.typing import FloatArray, IntArray

MOST_OUTPUTS = 40
"""With more outputs than that, products of gathered rows by BLAS are as fast."""

_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_CACHE_LINE = 64
_MODEL, _PARTY = Struct("@Pdd"), Struct("@PPqqqqqdPPQQQQdqqP")  # as in kernel.c
_local = threading.local()


def suits(features: FloatArray, labels: FloatArray, *models: FloatArray) -> bool:
    """Return whether the kernel can compute gradients of these arrays, and is there."""
    dtype, (samples, d), outputs = features.dtype, features.shape, labels.shape[1]
    return (
        library() is not None
        and dtype in _DTYPES
        and dtype == labels.dtype
        and samples == len(labels)
        and d > 0
        and 0 < outputs <= MOST_OUTPUTS
        and features.flags.c_contiguous
        and labels.flags.c_contiguous
        and all(model.dtype == dtype and model.shape == (d, outputs) and model.flags.c_contiguous for model in models)
    )


class Draws(NamedTuple):
    """Bernoulli batches that the kernel draws itself, the same that ``bernoulli_batches`` finds on this stream.

    Args:
        key: the two words of the Philox key.
        device: third word of its counter.
        round: fourth word of its counter.
        probability: with which a row is in a batch.
        steps: how many batches.
    """

    key: tuple[int, int]
    device: int
    round: int
    probability: float
    steps: int


class Model(NamedTuple):
    """A model to take steps with.

    Args:
        start: ``W_k``, (d, o).
        step_size: ``eta_k``.
        make_up: ``sigma^2`` of the make-up term.
    """

    start: FloatArray
    step_size: float
    make_up: float


class Party(NamedTuple):
    """A device or the server that takes steps (see ``accumulate_gradients``), with arrays that the kernel suits.

    Args:
        features: ``X``, (l, d).
        labels: ``Y``, (l, o).
        batches: the rows of each step, or how to draw them.
        scale: what makes the sampled gradient unbiased.
        models: those that take the steps, one after the other.
    """

    features: FloatArray
    labels: FloatArray
    batches: Draws | Sequence[IntArray]
    scale: float
    models: Sequence[Model]


class Steps:
    """The steps of several parties, which any number of threads take together.

    Args:
        parties: who takes steps; work is balanced best if those with the most to do come first.

    Example:
        >>> X = Y = np.array([[1.0], [2.0]])
        >>> models = [Model(np.zeros((1, 1)), 0.1, 0.0), Model(np.zeros((1, 1)), 0.2, 0.0)]
        >>> steps = Steps([Party(X, Y, [np.array([0, 1])] * 2, 1.0, models)] if suits(X, Y, models[0].start) else [])
        >>> steps.take()
        >>> [total.tolist() for total in steps.totals] in ([[[[-7.5]], [[-5.0]]]], [])
        True
    """

    totals: list[FloatArray]
    """The sums of the gradients of each party, (models, d, o), once every thread is back."""

    def __init__(self, parties: Sequence[Party]) -> None:
        self._parties, self._joined = parties, list[IntArray]()  # kept alive: the kernel knows only where they are
        different = {id(party.models): party.models for party in parties}
        firsts = dict(zip(different, accumulate(map(len, different.values()), initial=0), strict=False))
        self._models = b"".join(
            _MODEL.pack(_address(start), *numbers) for models in different.values() for start, *numbers in models
        )
        self.totals = [
            np.empty((len(party.models), *party.models[0].start.shape), party.labels.dtype) for party in parties
        ]
        self._table = b"".join(
            self._packed(party, firsts[id(party.models)], total)
            for party, total in zip(parties, self.totals, strict=True)
        )
        self._next = ctypes.c_int64(0)

    def _packed(self, party: Party, first: int, totals: FloatArray) -> bytes:
        X, Y, batches, scale, models = party
        if isinstance(batches, Draws):
            (key0, key1), device, round, probability, steps = batches
            which = steps, scale, 0, 0, key0, key1, device, round, probability
        else:
            rows, ends = _joined(batches)
            self._joined += rows, ends
            which = len(batches), scale, _address(rows), _address(ends), 0, 0, 0, 0, 0.0
        data = _address(X), _address(Y), X.itemsize, *X.shape, Y.shape[1]
        return _PARTY.pack(*data, *which, first, len(models), _address(totals))

    def take(self) -> None:
        """Take the steps of parties that no other thread has taken, until none is left.

        Raises:
            IndexError: a row is out of range.
        """
        if not self.totals:
            return
        kernel, parties = library(), (self._table, len(self.totals))
        assert kernel is not None
        workspace = _buffer(kernel.workspace_bytes(*parties))
        refused = kernel.take_steps(*parties, self._models, ctypes.byref(self._next), workspace)
        if refused:
            rows = len(self._parties[refused - 1].features)
            raise IndexError(f"A sampled row is out of range: there are {rows} rows.")


def _joined(batches: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return the rows of all batches in one array, and where each starts and the last one ends."""
    ends = np.zeros(len(batches) + 1, np.int64)
    np.cumsum([batch.size for batch in batches], out=ends[1:])
    return np.concatenate(batches, dtype=np.int64), ends


def _address(array: FloatArray | IntArray) -> int:
    """Return where an array is; the short way is not open to read-only and to empty arrays."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):
        return array.ctypes.data


def _buffer(size: int) -> int:
    """Return the address, at the start of a cache line, of this thread's buffer, which grows when it must and is reused."""
    buffer = getattr(_local, "buffer", None)
    if buffer is None or buffer.size < size + _CACHE_LINE:
        buffer = _local.buffer = np.empty(size + _CACHE_LINE, np.uint8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer.data))
    return address + -address % _CACHE_LINE
