"""Spread work over threads without changing the result.

Numpy's matrix products release the interpreter lock, so threads are enough. Each product runs on one BLAS thread and
results are consumed in the order of the items: what comes out is the same, bit for bit, for any number of workers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Generic, TypeVar

from threadpoolctl import LibController, ThreadpoolController

from codedfl._validation import require_at_least

Item = TypeVar("Item")
Result = TypeVar("Result")


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _OneBlasThread:
    """A limit for the whole process: the first holder sets it and the last one lifts it, in whatever threads they are."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._holders = 0
        self._before: list[int] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        with self._lock:
            if self._holders == 0:
                self._before = [library.num_threads for library in _blas_libraries()]
                self._set([1] * len(self._before))
            self._holders += 1
        try:
            yield
        finally:
            with self._lock:
                self._holders -= 1
                if self._holders == 0:
                    self._set(self._before)

    @staticmethod
    def _set(threads: list[int]) -> None:
        for library, count in zip(_blas_libraries(), threads, strict=True):
            # Since version 3.8, threadpoolctl obeys only the first thread that ever set a limit, and silently ignores all others.
            getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


_one_blas_thread = _OneBlasThread()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold every BLAS library of this process to one thread for a ``with`` block, or for a function that it decorates.

    The last bits of a product depend on how many threads compute it, so everything that enters a result runs under this limit.
    Blocks may be nested, and may overlap in several threads: the limit holds until the last of them ends.
    """
    with _one_blas_thread.held():
        yield


@cache
def _blas_libraries() -> list[LibController]:
    """Find the libraries once: looking through everything that is loaded takes far longer than setting a limit."""
    import scipy.linalg  # noqa: F401 (brings a BLAS of its own, which must be found too)

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class Workers:
    """Threads that map a function over items in order; the caller is one of them.

    Threads start at the first `map`. A ``with`` block or `close` ends them.

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
        self._pool: ThreadPoolExecutor | None = None
        self._lock = Lock()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of ``items``, with at most two results per worker held in memory.

        While the next result is still being computed, the caller takes over the last item that no thread has started. A caller
        that only waited would be one thread more than there are cores, and would be woken for every result.
        """
        if self.count == 1:
            yield from map(function, items)
            return
        pool = self._started()
        pending: deque[_Task[Item, Result]] = deque()
        for item in items:
            pending.append(_Task(pool, function, item))
            if len(pending) >= 2 * self.count:
                yield _first(pending)
        while pending:
            yield _first(pending)

    def close(self) -> None:
        """End the threads; a later `map` starts new ones."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.count - 1)
            return self._pool


class _Task(Generic[Item, Result]):
    """A call that a thread of the pool makes, unless the caller gets to it first."""

    def __init__(self, pool: ThreadPoolExecutor, function: Callable[[Item], Result], item: Item) -> None:
        self._future = pool.submit(function, item)
        self._function, self._item = function, item

    @property
    def done(self) -> bool:
        return self._future.done()

    def take_over(self) -> bool:
        """Make the call in this thread, unless it has started elsewhere; return whether it was made."""
        if not self._future.cancel():
            return False
        self._future = _made(self._function, self._item)
        return True

    def result(self) -> Result:
        return self._future.result()


def _made(function: Callable[[Item], Result], item: Item) -> Future[Result]:
    future: Future[Result] = Future()
    try:
        future.set_result(function(item))
    except Exception as error:
        future.set_exception(error)
    return future


def _first(pending: deque[_Task[Item, Result]]) -> Result:
    while not pending[0].done and any(task.take_over() for task in reversed(pending)):
        pass
    return pending.popleft().result()
