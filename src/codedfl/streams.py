"""Addressable random streams.

Every draw comes from a stream keyed by (seed, purpose, device, round). Results therefore depend neither on the number
of workers nor on the order of devices, all schemes see the same channel and batches (common random numbers), and a
resumed run equals an uninterrupted one. Whoever knows the seed can draw the same noise, so noise from these streams
protects nobody: a device takes its own from the operating system.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b

import numpy as np

from codedfl._messages import shown
from codedfl.errors import InputError

MAX_SEED = 2**63 - 1


@dataclass(frozen=True)
class Streams:
    """Counter-based random streams under one seed.

    The Philox key is a hash of (seed, purpose); device and round are the two high words of its counter, which leaves
    2**128 blocks of draws to each stream.

    Args:
        seed: a non-negative integer below 2**63.

    Example:
        >>> streams = Streams(seed=7)
        >>> a = streams.at("batch", device=3, round=10).random(2)
        >>> b = streams.at("batch", device=3, round=10).random(2)
        >>> c = streams.at("batch", device=4, round=10).random(2)
        >>> bool((a == b).all()), bool((a == c).any())
        (True, False)
    """

    seed: int

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not 0 <= self.seed <= MAX_SEED:
            raise InputError(f"seed = {shown(self.seed, 80)} is out of range: use an integer from 0 to {MAX_SEED}.")

    def at(self, purpose: str, *, device: int = 0, round: int = 0) -> np.random.Generator:
        """Return a generator at the start of the stream (seed, purpose, device, round)."""
        counter = np.array([0, 0, device, round], dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=_key(self.seed, purpose), counter=counter))

    def key(self, purpose: str) -> tuple[int, int]:
        """Return the two words of the Philox key that the streams of a purpose share."""
        return _key_words(self.seed, purpose)

    def child(self, purpose: str) -> Streams:
        """Return independent streams for a nested run, such as a search over step sizes."""
        return Streams(int(_key(self.seed, f"child:{purpose}")[0] >> np.uint64(1)))


@lru_cache(maxsize=256)
def _key(seed: int, purpose: str) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    digest = blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype=np.uint64)


@lru_cache(maxsize=256)
def _key_words(seed: int, purpose: str) -> tuple[int, int]:
    low, high = _key(seed, purpose)
    return int(low), int(high)
