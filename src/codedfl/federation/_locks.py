"""Locks of files between processes."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from codedfl.errors import InputError
from codedfl.files import PRIVATE


@contextmanager
def locked(path: Path, refusal: Callable[[int], InputError] | None = None, *, flags: int = 0) -> Iterator[int]:
    """Hold the lock of a file and yield its descriptor; the system takes the lock back from a process that dies.

    Args:
        path: the file; made if it is missing.
        refusal: makes the error to raise if another process has the lock, from the descriptor; None to wait for it.
        flags: of `os.open`, besides those for reading, writing and making the file.

    Raises:
        InputError: that of ``refusal``.
        OSError: the file cannot be opened.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | flags, PRIVATE)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if refusal else 0))
        except BlockingIOError as error:
            assert refusal is not None
            raise refusal(descriptor) from error
        yield descriptor
    finally:
        os.close(descriptor)
