"""Work spread over threads without a trace in the result.

Numpy's matrix products release the interpreter lock, so threads are enough. Each product runs on one BLAS thread and
results are consumed in the order of the items: what comes out is the same, bit for bit, for any number of workers.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
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
    """A limit for the whole process, set by the first who needs it and lifted by the last, in whatever threads they are."""

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
            # From 3.8 on threadpoolctl obeys only the first thread that has ever set a limit, and ignores all others silently.
            getattr(library, "_real_set_num_threads", library.set_num_threads)(count)


_one_blas_thread = _OneBlasThread()


def one_blas_thread() -> AbstractContextManager[None]:
    """Hold every BLAS library of this process to one thread for the duration of a ``with`` block.

    Blocks may be nested, and may overlap in several threads: the limit holds until the last of them ends.
    """
    return _one_blas_thread.held()


@cache
def _blas_libraries() -> list[LibController]:
    """Find the libraries once: looking through everything that is loaded takes far longer than setting a limit."""
    import scipy.linalg  # noqa: F401 (brings a BLAS of its own, which must be found too)

    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class Workers:
    """Threads that map in order; the caller is one of them.

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
        self._pool = self._new_pool()

    def _new_pool(self) -> ThreadPoolExecutor | None:
        """Return a pool, which starts its threads when there is work for them."""
        return ThreadPoolExecutor(self.count - 1) if self.count > 1 else None

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of ``items``, with at most two results a worker held in memory.

        While the result that is due is still in the making, the caller takes over the last item that nobody has begun. A caller
        that only waited would be one thread more than there are cores, and be woken for every result.
        """
        if self._pool is None:
            yield from map(function, items)
            return
        pending: deque[_Task[Item, Result]] = deque()
        for item in items:
            pending.append(_Task(self._pool, function, item))
            if len(pending) >= 2 * self.count:
                yield _first(pending)
        while pending:
            yield _first(pending)

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *_: object) -> None:
        """End the threads; work that comes later starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = self._new_pool()


class _Task(Generic[Item, Result]):
    """A call that a thread of the pool makes, unless the caller is there first."""

    def __init__(self, pool: ThreadPoolExecutor, function: Callable[[Item], Result], item: Item) -> None:
        self._future = pool.submit(function, item)
        self._function, self._item = function, item

    @property
    def done(self) -> bool:
        return self._future.done()

    def take_over(self) -> bool:
        """Make the call here and now, unless it has begun."""
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
