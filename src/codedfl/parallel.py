"""Work spread over threads without a trace in the result.

Numpy's matrix products release the interpreter lock, so threads are enough. Each product runs on one BLAS thread and
results are consumed in the order of the items: what comes out is the same, bit for bit, for any number of workers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from codedfl._checks import require_at_least

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def one_blas_thread() -> AbstractContextManager[object]:
    """Hold every BLAS library of this process to one thread for the duration of a ``with`` block."""
    limits: AbstractContextManager[object] = _blas_libraries().limit(limits=1, user_api="blas")
    return limits


@cache
def _blas_libraries() -> ThreadpoolController:
    """Find the libraries once: looking through everything that is loaded takes far longer than setting a limit."""
    import scipy.linalg  # noqa: F401 (brings a BLAS of its own, which must be found too)

    return ThreadpoolController()


class Workers:
    """A pool of threads that maps in order.

    Args:
        count: number of threads; with 1 everything runs in the caller's thread.

    Example:
        >>> with Workers(2) as workers:
        ...     list(workers.map(lambda x: x * x, range(5)))
        [0, 1, 4, 9, 16]
    """

    def __init__(self, count: int = 1) -> None:
        require_at_least("workers", count, 1)
        self.count = count
        self._pool = ThreadPoolExecutor(count) if count > 1 else None

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of ``items``, with at most two results a worker held in memory."""
        if self._pool is None:
            yield from map(function, items)
            return
        pending: deque[Future[Result]] = deque()
        for item in items:
            pending.append(self._pool.submit(function, item))
            if len(pending) >= 2 * self.count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown()
