"""Where the randomness of a device comes from.

Whoever knows the projection and the noise of an upload can undo it. So both come from the operating system, and no
file, log or message has them. Noise that is added last is drawn exactly, in integers, from bytes of the operating
system itself (`codedfl.privacy.gaussian_noise_on_grid`), which meets the attack on floating-point noise. Projections
are too many for that, and the noise inside a factor cannot be drawn so. Their generator is numpy's Philox, with key and
counter from the operating system; it is used once and forgotten. It passes statistical tests but is not cryptographic:
the seed cannot be guessed, but that nobody could ever tell its numbers from ideal ones is an assumption. What rounding
on the way is worth is bounded (`codedfl.uploads.Upload.rounding_delta`), not assumed away.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from codedfl.federation._vault import Vault
from codedfl.privacy import ExactNoise, Noise
from codedfl.streams import Streams

BATCH_SECRET = "batches"
_WORDS = 6
"""Words of 64 bits in the key (2) and the counter (4) of Philox."""


class DeviceRandomness(Protocol):
    """The source of everything that a device draws.

    There is no source of Poisson samples: no claim counts on it being secret which rows a batch has, and so no draws have to be
    fresh. A claim of amplification by sampling would need one that draws from the operating system in every round, and not
    `batches`, whose seed is on disk.
    """

    def encoding(self) -> Noise:
        """Return the noise of one upload.

        On a device it is exact. Tests that compare a device with the simulator take the noise of that.
        """

    def update(self, round: int) -> Noise:
        """Return the noise of one private update."""

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
        ...     bool(randomness.encoding().rng.random() == randomness.encoding().rng.random())
        ...     randomness.batches() == randomness.batches(), randomness.batches()
        False
        (True, SecretStreams())
    """

    def __init__(self, vault: Vault) -> None:
        self._vault = vault

    def __repr__(self) -> str:
        return "OperatingSystemRandomness()"

    def encoding(self) -> ExactNoise:
        """Return exact noise whose generator has 384 bits of the operating system as key and counter, stored nowhere."""
        words = np.frombuffer(secrets.token_bytes(8 * _WORDS), dtype=np.uint64)
        return ExactNoise(np.random.Generator(np.random.Philox(key=words[:2], counter=words[2:])))

    def update(self, round: int) -> ExactNoise:  # noqa: ARG002 (nothing here is addressed by rounds)
        """Return a new generator, as for an upload."""
        return self.encoding()

    def batches(self) -> Streams:
        """Return streams with a secret seed of 63 bits, drawn at the first call and kept in the vault.

        The seed is written down, so that a walk through the rows goes on after a restart, and whoever reads the vault
        learns which rows every batch has. No guarantee protects that or rests on it: updates have none, and the noise
        of the upload has nothing to do with this seed.
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
