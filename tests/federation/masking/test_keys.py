from __future__ import annotations

from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from hypothesis import given
from hypothesis import strategies as st

from codedfl.errors import InputError
from codedfl.federation.masking._keys import PublicKeys, commitment, context, masking_key, signed_keys, verify_keys
from codedfl.federation.masking._terms import MaskingTerms
from tests.federation.masking.support import identity_keys

DEVICES = ("a", "b")
PRIVATE, PUBLIC = identity_keys(DEVICES)
TERMS = MaskingTerms("ward", DEVICES, roster=PUBLIC)
X25519 = X25519PrivateKey.from_private_bytes(bytes(range(32))).public_key().public_bytes_raw()
KEYS = PublicKeys(X25519, X25519, bytes(32))


@given(st.lists(st.text() | st.binary()), st.lists(st.text() | st.binary()))
def test_different_parts_have_different_contexts(first: list[str | bytes], second: list[str | bytes]) -> None:
    raw = [[part.encode() if isinstance(part, str) else part for part in parts] for parts in (first, second)]
    assert (context(*first) == context(*second)) == (raw[0] == raw[1])


def test_keys_survive_a_message() -> None:
    keys = signed_keys(TERMS, "a", KEYS, PRIVATE["a"])
    assert PublicKeys.from_bytes("a", keys.to_bytes()) == keys


def test_a_signature_is_of_one_device_federation_and_key() -> None:
    keys = signed_keys(TERMS, "a", KEYS, PRIVATE["a"])
    verify_keys(TERMS, "a", keys)
    wrong = [
        (TERMS, "b", keys),
        (replace(TERMS, federation="lab"), "a", keys),
        (TERMS, "a", replace(keys, encryption=bytes(32))),
        (TERMS, "a", replace(keys, masking=bytes(32))),
        (TERMS, "a", replace(keys, commitment=b"\x01" * 32)),
        (TERMS, "a", replace(keys, signature=b"")),
    ]
    for terms, device, forged in wrong:
        with pytest.raises(InputError, match="the signature is not by its key in the roster"):
            verify_keys(terms, device, forged)


def test_without_a_roster_nothing_is_signed_or_verified() -> None:
    terms = replace(TERMS, roster=None)
    assert signed_keys(terms, "a", KEYS, None) == KEYS
    verify_keys(terms, "a", replace(KEYS, signature=b"anything"))


def test_an_identity_key_that_does_not_fit_is_refused() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    edwards = ed25519.Ed25519PrivateKey.generate()
    pem, pkcs8 = Encoding.PEM, PrivateFormat.PKCS8
    for key, message in (
        (None, "identity_key of device 'a' is missing"),
        (b"nonsense", "not an unencrypted private key in PEM format"),
        (
            other.private_bytes(pem, pkcs8, BestAvailableEncryption(b"x")),
            "not an unencrypted private key in PEM format",
        ),
        (edwards.private_bytes(pem, pkcs8, NoEncryption()), "not a key on the elliptic curve P-384"),
        (other.private_bytes(pem, pkcs8, NoEncryption()), "does not belong to its public key in the roster"),
        (PRIVATE["b"], "does not belong to its public key in the roster"),
    ):
        with pytest.raises(InputError, match=message):
            signed_keys(TERMS, "a", KEYS, key)


def test_a_roster_with_other_keys_is_refused() -> None:
    small = ec.generate_private_key(ec.SECP256R1()).public_key()
    for key, message in (
        (b"nonsense", "roster: the key of device 'a' is not a public key in PEM format"),
        (small.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "not on the elliptic curve P-384"),
    ):
        with pytest.raises(InputError, match=message):
            verify_keys(replace(TERMS, roster={**PUBLIC, "a": key}), "a", KEYS)


def test_secrets_of_a_seed_differ_by_purpose_device_and_federation() -> None:
    seed = bytes(16)
    derived = {
        f(seed, federation, device)
        for f in (commitment, lambda *address: masking_key(*address).private_bytes_raw())
        for federation in ("ward", "lab")
        for device in DEVICES
    }
    assert len(derived) == 8


@given(st.binary(max_size=250))
def test_reading_any_bytes_raises_only_input_errors(content: bytes) -> None:
    try:
        keys = PublicKeys.from_bytes("a", content)
    except InputError:
        return
    assert keys.to_bytes() == content
