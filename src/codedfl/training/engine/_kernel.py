"""Calls to the compiled kernel, with the arguments laid out as its structs."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from itertools import accumulate

import numpy as np

from codedfl.native import KernelParty, KernelStart, library
from codedfl.training.engine._sampling import BernoulliBatches
from codedfl.training.engine._steps import Steps
from codedfl.typing import FloatArray, IntArray

MOST_OUTPUTS = 40
"""With more outputs, BLAS products of gathered rows are as fast."""

_DTYPES = frozenset({np.dtype(np.float32), np.dtype(np.float64)})
_CACHE_LINE = 64
_local = threading.local()


def suits(steps: Steps) -> bool:
    """Return whether the kernel is available and can take these steps."""
    features, labels = steps.features, steps.labels
    dtype, (samples, d), outputs = features.dtype, features.shape, labels.shape[1]
    return (
        library() is not None
        and steps.private is None
        and steps.loss.in_kernel
        and steps.kernel_batches is not None
        and dtype in _DTYPES
        and dtype == labels.dtype
        and samples == len(labels)
        and d > 0
        and 0 < outputs <= MOST_OUTPUTS
        and features.flags.c_contiguous
        and labels.flags.c_contiguous
        and all(
            start.shift is None
            and start.model.dtype == dtype
            and start.model.shape == (d, outputs)
            and start.model.flags.c_contiguous
            for start in steps.starts
        )
    )


class KernelCall:
    """The steps of several parties, shared among any number of threads.

    Args:
        parties: the steps of each party; the load is balanced best if the longest comes first.
    """

    totals: list[FloatArray]
    """The accumulated gradients of each party, (starts, d, o), once every thread has returned."""

    def __init__(self, parties: Sequence[Steps]) -> None:
        self._parties, self._joined = parties, list[IntArray]()  # kept alive: the kernel knows only their addresses
        different = {id(party.starts): party.starts for party in parties}
        firsts = dict(zip(different, accumulate(map(len, different.values()), initial=0), strict=False))
        starts = [
            KernelStart(_address(start.model), start.step_size, start.make_up)
            for own in different.values()
            for start in own
        ]
        self._starts = (KernelStart * len(starts))(*starts)
        self.totals = [
            np.empty((len(party.starts), *party.starts[0].model.shape), party.labels.dtype) for party in parties
        ]
        self._table = (KernelParty * len(parties))(
            *(
                self._packed(party, firsts[id(party.starts)], total)
                for party, total in zip(parties, self.totals, strict=True)
            )
        )
        self._next = ctypes.c_int64(0)

    def _packed(self, party: Steps, first: int, totals: FloatArray) -> KernelParty:
        """Return a party as a struct; its fields go by position, since names take three times as long."""
        X, Y, batches = party.features, party.labels, party.kernel_batches
        if isinstance(batches, BernoulliBatches):
            key0, key1 = batches.key
            steps, rows, ends = batches.steps, 0, 0
            stream = (key0, key1, batches.device, batches.round, batches.probability)
        else:
            assert batches is not None
            joined, bounds = _joined(batches)
            self._joined += joined, bounds
            steps, rows, ends = len(batches), _address(joined), _address(bounds)
            stream = (0, 0, 0, 0, 0.0)
        data = (_address(X), _address(Y), X.itemsize, *X.shape, Y.shape[1])
        return KernelParty(*data, steps, party.scale, rows, ends, *stream, first, len(party.starts), _address(totals))

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
        refused = kernel.take_steps(*parties, self._starts, ctypes.byref(self._next), workspace)
        if refused:
            rows = len(self._parties[refused - 1].features)
            raise IndexError(f"A sampled row is out of range: there are {rows} rows.")


def _joined(batches: Sequence[IntArray]) -> tuple[IntArray, IntArray]:
    """Return the rows of all batches in one array, with the start of each batch and the end of the last."""
    ends = np.zeros(len(batches) + 1, np.int64)
    np.cumsum([batch.size for batch in batches], out=ends[1:])
    return np.concatenate(batches, dtype=np.int64), ends


def _address(array: FloatArray | IntArray) -> int:
    """Return the address of an array; the fast way fails for read-only and empty arrays."""
    try:
        return ctypes.addressof(ctypes.c_char.from_buffer(array.data))
    except (TypeError, ValueError):
        return array.ctypes.data


def _buffer(size: int) -> int:
    """Return the address, on a cache line, of this thread's reusable buffer of at least ``size`` bytes."""
    buffer = getattr(_local, "buffer", None)
    if buffer is None or buffer.size < size + _CACHE_LINE:
        buffer = _local.buffer = np.empty(size + _CACHE_LINE, np.uint8)
    address = ctypes.addressof(ctypes.c_char.from_buffer(buffer.data))
    return address + -address % _CACHE_LINE
