"""Who takes part in a sum-only upload, and the keys that any two of them share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, Hash

from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.federation.masking._keys import PublicKeys, context, derive_key, verify_keys
from codedfl.federation.masking._ring import Mask
from codedfl.federation.masking._terms import MaskingTerms

SEED_BYTES = 16
_NONCE_BYTES = 12
_TAG_BYTES = 16
SEALED_BYTES = _NONCE_BYTES + 2 * SEED_BYTES + _TAG_BYTES


@dataclass(frozen=True)
class SharePair:
    """One share of each of a device's two secrets.

    Attributes:
        mask_seed: Share of the seed of its pairwise masks.
        self_seed: Share of the seed of its self mask.
    """

    mask_seed: bytes
    self_seed: bytes


@dataclass(frozen=True)
class Participants:
    """The verified keys of everybody who takes part.

    Every key derived here depends on the transcript: a digest of the terms and of all announced keys. Devices to which a
    server presented different keys or participants cannot read each other's shares, so such a lie ends the upload before
    any masked data is sent.

    Attributes:
        federation: Name of the federation.
        keys: Keys of every participant, in the order of the names.
        transcript: Digest of terms and keys.
    """

    federation: str
    keys: Mapping[str, PublicKeys]
    transcript: bytes

    @classmethod
    def verify(cls, terms: MaskingTerms, published: Mapping[str, bytes]) -> Participants:
        """Check everything that was announced.

        Raises:
            InputError: If there are too few participants, one is not in the federation, or its keys are malformed or forged.
        """
        messages = require_messages("keys", published)
        if strangers := sorted(set(messages) - set(terms.devices)):
            raise InputError(
                f"keys of {listing(map(shown, strangers))}: no such device in federation {shown(terms.federation)}."
            )
        terms.require_enough("keys", len(messages))
        keys = {name: PublicKeys.from_bytes(name, messages[name]) for name in sorted(messages)}
        for name, announced in keys.items():
            verify_keys(terms, name, announced)
        digest = Hash(SHA256())
        digest.update(
            context(terms.federation, str(terms.threshold), str(terms.fraction_bits), context(*sorted(terms.devices)))
        )
        digest.update(context(*(part for name, announced in keys.items() for part in (name, announced.unsigned))))
        return cls(terms.federation, keys, digest.finalize())

    def point(self, device: str) -> int:
        """Return where the shares of a device lie on the polynomial: its rank among the participants, from 1."""
        return list(self.keys).index(device) + 1

    def self_mask(self, self_seed: bytes, device: str, sign: int) -> Mask:
        """Return the mask that a device shares with nobody, times ``sign``."""
        return Mask(derive_key(self_seed, "self mask", self.federation, device, self.transcript), sign)

    def pairwise_mask(self, private: X25519PrivateKey, owner: str, peer: str, of: str, sign: int) -> Mask:
        """Return the mask between two devices as it enters the upload of one of them, times ``sign``.

        Args:
            private: Masking key of ``owner``.
            owner: One of the two devices.
            peer: The other.
            of: The one whose upload the mask enters: with plus for the first of the two names, with minus for the second.
            sign: 1 to add the mask, -1 to remove it.
        """
        first, second = sorted((owner, peer))
        secret = private.exchange(X25519PublicKey.from_public_bytes(self.keys[peer].masking))
        key = derive_key(secret, "pairwise mask", self.federation, first, second, self.transcript)
        return Mask(key, sign if of == first else -sign)

    def seal(
        self,
        private: X25519PrivateKey,
        sender: str,
        receiver: str,
        pair: SharePair,
        random_bytes: Callable[[int], bytes],
    ) -> bytes:
        """Return the shares, encrypted from ``sender`` (whose encryption key is ``private``) to ``receiver``."""
        nonce = random_bytes(_NONCE_BYTES)
        cipher, route = self._cipher(private, receiver, sender, receiver)
        return nonce + cipher.encrypt(nonce, pair.mask_seed + pair.self_seed, route)

    def unseal(self, private: X25519PrivateKey, sender: str, receiver: str, sealed: bytes) -> SharePair:
        """Return the shares that ``sender`` encrypted to ``receiver``, whose encryption key is ``private``.

        Raises:
            InputError: If the message was changed, or made for another sender, receiver, federation or set of participants.
        """
        cipher, route = self._cipher(private, sender, sender, receiver)
        try:
            if len(sealed) != SEALED_BYTES:
                raise InvalidTag
            opened = cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], route)
        except InvalidTag:
            raise InputError(
                f"shares of device {shown(sender)} for {shown(receiver)} do not open: they were changed on the way, "
                "or made for another device, federation or set of participants; leave the sender out or start again."
            ) from None
        return SharePair(opened[:SEED_BYTES], opened[SEED_BYTES:])

    def _cipher(
        self, private: X25519PrivateKey, peer: str, sender: str, receiver: str
    ) -> tuple[ChaCha20Poly1305, bytes]:
        secret = private.exchange(X25519PublicKey.from_public_bytes(self.keys[peer].encryption))
        route = context("shares", self.federation, sender, receiver, self.transcript)
        return ChaCha20Poly1305(derive_key(secret, route)), route


def require_messages(field: str, messages: object) -> dict[str, bytes]:
    """Return the messages by device name.

    Raises:
        InputError: If they are anything but bytes by name.
    """
    if not isinstance(messages, Mapping):
        raise InputError(f"{field}: {shown(type(messages).__name__)} must be a dictionary of bytes by device name.")
    for name, content in messages.items():
        if not isinstance(name, str):
            raise InputError(f"{field}: the device name {shown(name)} must be a text.")
        if not isinstance(content, bytes):
            raise InputError(f"{field} of device {shown(name)}: {shown(type(content).__name__)} must be bytes.")
    return dict(messages)
