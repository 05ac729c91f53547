"""Where the randomness of a device comes from.

Whoever knows the projection and the noise of an upload can undo it. So a device seeds the generator of its upload with bits of
the operating system, uses it once and forgets it. The generators are those of numpy, which pass statistical tests but are not
cryptographic: the seed cannot be guessed, but that nobody could ever tell the numbers from ideal ones is an assumption, as it is
that rounding to float32 gives nothing away. The guarantees in `codedfl.privacy` are proved for ideal Gaussian numbers.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from codedfl.flower._vault import Vault
from codedfl.streams import Streams

BATCH_SECRET = "batches"
_WORDS = 6
"""Words of 64 bits in the key (2) and the counter (4) of Philox."""


class DeviceRandomness(Protocol):
    """The source of everything that a device draws."""

    def encoding(self) -> np.random.Generator:
        """Return the generator of one upload: its projection and its noise."""

    def batches(self) -> Streams:
        """Return the streams from which batches are sampled: the same ones after a restart."""


class OperatingSystemRandomness:
    """Randomness that nobody but the device has.

    Args:
        vault: keeps the seed of the batches, so that a walk through the rows goes on after a restart.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     randomness = OperatingSystemRandomness(Vault(folder))
        ...     bool(randomness.encoding().random() == randomness.encoding().random())
        ...     randomness.batches() == randomness.batches(), randomness.batches()
        False
        (True, SecretStreams())
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def __repr__(self) -> str:
        return "OperatingSystemRandomness()"

    def encoding(self) -> np.random.Generator:
        """Return a new generator, with 384 bits of the operating system as key and counter, which are stored nowhere."""
        words = np.frombuffer(secrets.token_bytes(8 * _WORDS), dtype=np.uint64)
        return np.random.Generator(np.random.Philox(key=words[:2], counter=words[2:]))

    def batches(self) -> Streams:
        """Return streams with a secret seed of 63 bits, drawn at the first call and kept in the vault.

        Which rows a batch has is no secret that a guarantee rests on: the noise of the upload is, and it has nothing to do with
        this seed.
        """
        return SecretStreams(int.from_bytes(self._vault.secret(BATCH_SECRET, 8), "little") >> 1)


@dataclass(frozen=True, repr=False)
class SecretStreams(Streams):
    """Streams whose seed is not shown, so that no log can hold it."""

    def __repr__(self) -> str:
        return "SecretStreams()"

    def child(self, purpose: str) -> Streams:
        """Return independent streams for a nested run, as secret as these."""
        return SecretStreams(super().child(purpose).seed)
