"""Who takes part in a masked sum: keys and secrets shared between them, and their agreement on who is left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, Hash

from codedfl._messages import listing, shown
from codedfl.errors import InputError
from codedfl.federation.masking._keys import PublicKeys, context, derive_key, is_signed, signature_of, verify_keys
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


@dataclass(frozen=True)
class Agreement:
    """A statement about one upload: who takes part with which keys, whose shares were forwarded, and who survived.

    A device signs one such statement per upload, and helps to remove masks if ``terms.threshold`` devices signed the same.
    ``MaskingTerms`` explains what follows from that.

    Attributes:
        terms: What all parties agree on; without a roster, nothing is signed or verified.
        transcript: Digest of terms and announced keys.
        senders: Whose shares a device received, in the order of the names.
        survivors: Whose masked uploads make up the sum, in the order of the names.

    References:
        Bonawitz et al., Practical Secure Aggregation for Privacy-Preserving Machine Learning, ACM CCS 2017, figure 4, round 3
        (ConsistencyCheck).
    """

    terms: MaskingTerms = field(repr=False)
    transcript: bytes
    senders: tuple[str, ...]
    survivors: tuple[str, ...]

    @classmethod
    def of(
        cls, terms: MaskingTerms, everybody: Participants, senders: Iterable[str], survivors: Iterable[str]
    ) -> Agreement:
        """Return the statement about an upload; the order of the names does not matter."""
        return cls(terms, everybody.transcript, tuple(sorted(senders)), tuple(sorted(survivors)))

    def sign(self, device: str, identity_key: bytes | None) -> bytes:
        """Return the signature of a device; nothing if there is no roster.

        Raises:
            InputError: If there is a roster and the identity key does not fit it.
        """
        return signature_of(self.terms, device, identity_key, self._message(device))

    def verify(self, device: str, signature: bytes) -> None:
        """Check the signature of one device; without a roster, check nothing.

        Raises:
            InputError: If the device is no survivor, or has not signed this statement.
        """
        if self.terms.roster is None:
            return
        if device not in self.survivors:
            raise InputError(
                f"signature of device {shown(device)}: it is none of the survivors {listing(self.survivors)}; leave it out."
            )
        if not is_signed(self.terms, device, signature, self._message(device)):
            raise InputError(
                f"signature of device {shown(device)}: it is not by its key in the roster for the senders and survivors of this "
                "upload; it is forged, or devices were told different ones."
            )

    def require_agreed(self, signatures: Mapping[str, bytes]) -> None:
        """Check that ``terms.threshold`` devices signed this statement; without a roster, check nothing.

        Raises:
            InputError: If there are fewer, or a signature is not over this statement.
        """
        messages = require_messages("signatures", signatures)
        if self.terms.roster is None:
            return
        for device, signature in messages.items():
            self.verify(device, signature)
        self.terms.require_enough("signatures", len(messages))

    def _message(self, device: str) -> bytes:
        return context(
            "agreement",
            self.terms.federation,
            device,
            self.transcript,
            context(*self.senders),
            context(*self.survivors),
        )
