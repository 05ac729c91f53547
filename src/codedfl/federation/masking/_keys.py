"""The public keys that a device announces for a sum-only upload, and signatures with its identity key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from codedfl._messages import shown
from codedfl.errors import InputError
from codedfl.federation.masking._terms import MaskingTerms

_KEY_BYTES = 32
_MOST_SIGNATURE_BYTES = 104
_PROTOCOL = "codedfl sum-only upload 1"
_PROBE = X25519PrivateKey.from_private_bytes(bytes(_KEY_BYTES))


def context(*parts: str | bytes) -> bytes:
    """Return the parts as one string of bytes; different lists of parts never give the same.

    Example:
        >>> context("ab", "c") == context("a", "bc")
        False
    """
    encoded = [part.encode() if isinstance(part, str) else part for part in (_PROTOCOL, *parts)]
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def derive_key(secret: bytes, *purpose: str | bytes) -> bytes:
    """Return a key of 32 bytes for one purpose (HKDF-SHA256)."""
    return HKDF(algorithm=SHA256(), length=_KEY_BYTES, salt=None, info=context(*purpose)).derive(secret)


def masking_key(mask_seed: bytes, federation: str, device: str) -> X25519PrivateKey:
    """Return the private key of a device's pairwise masks."""
    return X25519PrivateKey.from_private_bytes(derive_key(mask_seed, "masking key", federation, device))


def commitment(self_seed: bytes, federation: str, device: str) -> bytes:
    """Return what tells a correctly recovered self-mask seed from a wrong one, and nothing else about it."""
    return derive_key(self_seed, "commitment", federation, device)


@dataclass(frozen=True)
class PublicKeys:
    """What a device announces: two X25519 keys, a commitment to its self-mask seed, and a signature over all three.

    Attributes:
        encryption: Key to which peers encrypt shares.
        masking: Key with which peers agree on pairwise masks.
        commitment: Commitment to the self-mask seed.
        signature: ECDSA-SHA384 with the device's identity key, or empty.
    """

    encryption: bytes
    masking: bytes
    commitment: bytes
    signature: bytes = b""

    @property
    def unsigned(self) -> bytes:
        """Everything but the signature."""
        return self.encryption + self.masking + self.commitment

    def to_bytes(self) -> bytes:
        """Return the keys as one message."""
        return self.unsigned + self.signature

    @classmethod
    def from_bytes(cls, device: str, content: bytes) -> PublicKeys:
        """Read the message of a device.

        Raises:
            InputError: If the length is wrong, or a key is one with which every exchange gives zero.
        """
        signature = content[3 * _KEY_BYTES :]
        if len(content) < 3 * _KEY_BYTES or len(signature) > _MOST_SIGNATURE_BYTES:
            raise InputError(
                f"keys of device {shown(device)}: {len(content)} bytes are not {3 * _KEY_BYTES} bytes of keys "
                f"and a signature of at most {_MOST_SIGNATURE_BYTES}; ask the device again."
            )
        encryption, masking, committed = (
            content[start : start + _KEY_BYTES] for start in range(0, 3 * _KEY_BYTES, _KEY_BYTES)
        )
        for kind, key in (("encryption", encryption), ("masking", masking)):
            try:
                _PROBE.exchange(X25519PublicKey.from_public_bytes(key))
            except ValueError:
                raise InputError(
                    f"keys of device {shown(device)}: the {kind} key is weak (of low order); the device must make new ones."
                ) from None
        return cls(encryption, masking, committed, signature)


def signed_keys(terms: MaskingTerms, device: str, keys: PublicKeys, identity_key: bytes | None) -> PublicKeys:
    """Return the keys with a signature of the device's identity key, or as they are if there is no roster.

    Raises:
        InputError: If the identity key is missing, unreadable, not on the curve P-384, or not the one in the roster.
    """
    signature = signature_of(terms, device, identity_key, _keys_message(terms, device, keys))
    return PublicKeys(keys.encryption, keys.masking, keys.commitment, signature)


def verify_keys(terms: MaskingTerms, device: str, keys: PublicKeys) -> None:
    """Check the signature of a device's keys against the roster; without a roster, check nothing.

    Raises:
        InputError: If the signature is not the device's.
    """
    if not is_signed(terms, device, keys.signature, _keys_message(terms, device, keys)):
        raise InputError(
            f"keys of device {shown(device)}: the signature is not by its key in the roster for federation "
            f"{shown(terms.federation)}; the keys are forged, or the roster is out of date."
        )


def _keys_message(terms: MaskingTerms, device: str, keys: PublicKeys) -> bytes:
    return context("keys", terms.federation, device, keys.unsigned)


def signature_of(terms: MaskingTerms, device: str, identity_key: bytes | None, message: bytes) -> bytes:
    """Return the signature (ECDSA-SHA384) of a message with the device's identity key; nothing if there is no roster.

    Raises:
        InputError: If the identity key is missing, unreadable, not on the curve P-384, or not the one in the roster.
    """
    if terms.roster is None:
        return b""
    if identity_key is None:
        raise InputError(f"identity_key of device {shown(device)} is missing; name the file of its private key.")
    try:
        private = load_pem_private_key(identity_key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(
            f"identity_key of device {shown(device)} is not an unencrypted private key in PEM format."
        ) from None
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise InputError(f"identity_key of device {shown(device)} is not a key on the elliptic curve P-384.")
    if private.public_key() != _roster_key(terms.roster, device):
        raise InputError(f"identity_key of device {shown(device)} does not belong to its public key in the roster.")
    return private.sign(message, ec.ECDSA(SHA384()))


def is_signed(terms: MaskingTerms, device: str, signature: bytes, message: bytes) -> bool:
    """Return whether a message is signed by the device's key in the roster; without a roster, everything is."""
    if terms.roster is None:
        return True
    try:
        _roster_key(terms.roster, device).verify(signature, message, ec.ECDSA(SHA384()))
    except InvalidSignature:
        return False
    return True


def _roster_key(roster: Mapping[str, bytes], device: str) -> ec.EllipticCurvePublicKey:
    try:
        key = load_pem_public_key(roster[device])
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise InputError(f"roster: the key of device {shown(device)} is not a public key in PEM format.") from None
    if not (isinstance(key, ec.EllipticCurvePublicKey) and isinstance(key.curve, ec.SECP384R1)):
        raise InputError(f"roster: the key of device {shown(device)} is not on the elliptic curve P-384.")
    return key
