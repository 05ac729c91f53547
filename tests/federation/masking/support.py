"""A whole sum-only upload in memory, for tests."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from random import Random

import numpy as np
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from codedfl.federation.masking._device import Masker
from codedfl.federation.masking._ring import RingArray
from codedfl.federation.masking._server import MaskedSum
from codedfl.federation.masking._state import DeviceState
from codedfl.federation.masking._terms import MaskingTerms
from codedfl.typing import FloatArray

PHASES = ("announce", "share", "upload", "agree", "answer")

Upload = tuple[FloatArray, FloatArray]


def names(count: int) -> tuple[str, ...]:
    return tuple(f"device-{index}" for index in range(count))


def make_uploads(devices: Collection[str], rows: int = 5, columns: int = 4, outputs: int = 2) -> dict[str, Upload]:
    rng = np.random.default_rng(7)
    return {
        name: (
            rng.normal(scale=30.0, size=(rows, columns)),
            rng.normal(size=(rows, outputs)).astype(np.float32),
        )
        for name in devices
    }


def identity_keys(devices: Collection[str]) -> tuple[dict[str, bytes], dict[str, bytes]]:
    """Return private and public keys (PEM) by device."""
    keys = {name: ec.generate_private_key(ec.SECP384R1()) for name in devices}
    private = {name: key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) for name, key in keys.items()}
    public = {
        name: key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        for name, key in keys.items()
    }
    return private, public


class Play:
    """All devices and the server, phase by phase; devices can be missing from any phase on.

    Attributes:
        masked: Everything that devices uploaded, also what came too late.
    """

    def __init__(
        self,
        terms: MaskingTerms,
        uploads: Mapping[str, Upload],
        private: Mapping[str, bytes] | None = None,
        seed: int = 0,
    ) -> None:
        self.terms = terms
        self.data = uploads
        self.maskers = {
            name: Masker(terms, name, (private or {}).get(name), random_bytes=Random(f"{seed} {name}").randbytes)
            for name in terms.devices
        }
        features, labels = uploads[terms.devices[0]]
        self.server = MaskedSum(terms, len(features), features.shape[1], labels.shape[1])
        self.states: dict[str, DeviceState] = {}
        self.masked: dict[str, tuple[RingArray, RingArray]] = {}

    def run(
        self, until: str = "answer", missing: Mapping[str, Collection[str]] | None = None, late: Collection[str] = ()
    ) -> None:
        """Go through all phases up to one, without the devices that are missing from each."""
        absent = missing or {}
        for phase in PHASES[: PHASES.index(until) + 1]:
            if phase == "upload":
                self.upload(absent.get(phase, ()), late)
            else:
                getattr(self, phase)(absent.get(phase, ()))

    def announce(self, missing: Collection[str] = ()) -> dict[str, bytes]:
        for name, masker in self.maskers.items():
            if name not in missing:
                self.states[name] = masker.begin()
                self.server.add_keys(name, self.states[name].published)
        return self.server.close_keys()

    def share(self, missing: Collection[str] = ()) -> tuple[str, ...]:
        published = self.server.close_keys()
        for name in published:
            if name not in missing:
                self.states[name], sealed = self.maskers[name].share(self.states[name], published)
                self.server.add_shares(name, sealed)
        return self.server.close_shares()

    def upload(self, missing: Collection[str] = (), late: Collection[str] = ()) -> tuple[str, ...]:
        for name in self.server.close_shares():
            if name not in missing:
                shares = self.server.shares_for(name)
                self.states[name], self.masked[name] = self.maskers[name].mask(
                    self.states[name], shares, *self.data[name]
                )
                if name not in late:
                    self.server.add(name, *self.masked[name])
        return self.server.close_uploads()

    def agree(self, missing: Collection[str] = ()) -> dict[str, bytes]:
        survivors = self.server.close_uploads()
        for name in survivors:
            if name not in missing:
                self.states[name], signature = self.maskers[name].agree(self.states[name], survivors)
                self.server.add_agreement(name, signature)
        return self.server.close_agreement()

    def answer(self, missing: Collection[str] = ()) -> None:
        survivors, signatures = self.server.close_uploads(), self.server.close_agreement()
        for name in survivors:
            if name not in missing:
                self.states[name], shares = self.maskers[name].unmask(self.states[name], survivors, signatures)
                self.server.add_answer(name, shares)
