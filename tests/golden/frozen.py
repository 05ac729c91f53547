"""A process without chance: clocks that stand still, and an operating system whose random bytes depend on who asks for them.

Everything is replaced in the standard library, before the package is imported, so that it does not matter where in the package
time and randomness are used.
"""

from __future__ import annotations

import datetime
import importlib
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import shake_256
from typing import Any

EPOCH_S = 1_700_000_000.0
THIRD_PARTY = (
    "numpy",
    "scipy.stats",
    "pandas",
    "sklearn.datasets",
    "pydantic",
    "matplotlib.figure",
    "cryptography.x509",
    "flwr.app",
)
"""Imported with the real clocks and the real datetime."""


class Clock:
    """Time that passes when somebody sleeps, and not otherwise."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Bytes:
    """Random bytes whose address is who asks for how many, and how often that has happened: the same in every process."""

    def __init__(self) -> None:
        self.process, self.device = "process", "server"
        self._asked: Counter[tuple[str, str, int]] = Counter()
        self._lock = threading.Lock()

    def __call__(self, size: int) -> bytes:
        address = (self.process, self.device, size)
        with self._lock:
            self._asked[address] += 1
            return shake_256(repr((*address, self._asked[address])).encode()).digest(size)

    def begin(self, process: str) -> None:
        """Begin a process of a name: it draws what another one of that name draws."""
        self.process = process
        self._asked.clear()

    @contextmanager
    def of(self, device: str) -> Iterator[None]:
        """Draw for a device."""
        before, self.device = self.device, device
        try:
            yield
        finally:
            self.device = before


CLOCK, SYSTEM = Clock(), Bytes()


class FrozenTime(datetime.datetime):
    """A date and time whose present never passes."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> FrozenTime:
        return cls.fromtimestamp(EPOCH_S, tz)


def freeze() -> None:
    """Replace the clocks and the randomness of this process."""
    _replace({os: {"urandom": SYSTEM}, random: {"_urandom": SYSTEM}})  # from which secrets draws
    for name in THIRD_PARTY:
        importlib.import_module(name)
    clocks: dict[str, Any] = {
        "time": lambda: EPOCH_S,
        "time_ns": lambda: int(EPOCH_S) * 10**9,
        "monotonic": CLOCK,
        "perf_counter": CLOCK,
        "process_time": CLOCK,
        "sleep": CLOCK.sleep,
    }
    _replace({time: clocks, datetime: {"datetime": FrozenTime}})


def _replace(modules: dict[Any, dict[str, Any]]) -> None:
    for module, names in modules.items():
        for name, value in names.items():
            setattr(module, name, value)
