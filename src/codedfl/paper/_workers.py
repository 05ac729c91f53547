"""Worker processes that never outlive the process that started them."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import Any

from joblib import Parallel, delayed
from joblib.externals.loky import reusable_executor
from joblib.externals.loky.backend import resource_tracker as loky_tracker

POLL_S = 0.5


def call_in_parallel(function: Callable[..., Any], calls: Iterable[tuple[Any, ...]], processes: int) -> Iterator[Any]:
    """Yield the results of calls as they finish, from the workers of the active joblib backend.

    Local workers end when all results are in, when an exception (such as a KeyboardInterrupt) stops the iteration, and when
    this process dies, however it dies.

    Args:
        function: a function of a module, so that other processes can import it.
        calls: the arguments of each call.
        processes: number of parallel processes; -1 for one per core, or for all workers of a cluster.
    """
    parallel = Parallel(
        n_jobs=processes,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch="all",
        initializer=_end_with_parent,
        initargs=(os.getpid(),),
    )
    with _interrupts_held_back():
        results = parallel(delayed(function)(*arguments) for arguments in calls)
    try:
        yield from results
    except BaseException:
        _kill_local_workers()
        raise


@contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Block Ctrl-C while workers start: they inherit that, so it never reaches one, not even one that is still starting."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    for tracker in (resource_tracker, loky_tracker):
        tracker.ensure_running()  # its start would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _end_with_parent(parent: int) -> None:
    """Leave Ctrl-C to the parent, and end this worker soon after the parent has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_after, args=(parent,), daemon=True).start()


def _exit_after(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)


def _kill_local_workers() -> None:
    executor = reusable_executor._executor
    if executor is not None:
        executor.shutdown(wait=True, kill_workers=True)
