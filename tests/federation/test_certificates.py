"""Certificates that TLS accepts where it should and refuses where it should, and keys that Flower takes."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key
from cryptography.x509.oid import ExtendedKeyUsageOID

from codedfl.errors import InputError
from codedfl.federation._certificates import (
    CertifiedKey,
    make_authority,
    make_key_pair,
    make_server_certificate,
)

HOSTS = ["192.0.2.7", "fl.example.org", "[2001:db8::7]"]


@pytest.fixture(scope="module")
def authority() -> CertifiedKey:
    return make_authority()


@pytest.fixture(scope="module")
def server(authority: CertifiedKey) -> CertifiedKey:
    return make_server_certificate(authority, HOSTS)


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Let nothing but the code itself keep files private."""
    before = os.umask(0)
    yield
    os.umask(before)


def greet(folder: Path, server: CertifiedKey, trusted: CertifiedKey, host: str) -> bytes:
    """Return what a client that trusts one authority reads from a server on loopback, which it takes for ``host``."""
    certificate, key = folder / "server.crt", folder / "server.key"
    certificate.write_bytes(server.certificate_pem)
    key.write_bytes(server.private_pem)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cadata=trusted.certificate_pem.decode())
    trusting.verify_flags |= ssl.VERIFY_X509_STRICT

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.settimeout(5)
            try:
                with serving.wrap_socket(connection, server_side=True) as encrypted:
                    encrypted.sendall(b"welcome")
            except ssl.SSLError:  # the client refuses
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        listener.settimeout(5)
        served = pool.submit(serve, listener)
        try:
            with (
                socket.create_connection(listener.getsockname(), timeout=5) as connection,
                trusting.wrap_socket(connection, server_hostname=host) as encrypted,
            ):
                return encrypted.recv(100)
        finally:
            served.result(timeout=5)


@pytest.mark.parametrize("host", ["192.0.2.7", "fl.example.org", "2001:db8::7", "localhost", "127.0.0.1"])
def test_a_client_accepts_the_server_by_every_host(
    tmp_path: Path, authority: CertifiedKey, server: CertifiedKey, host: str
) -> None:
    assert greet(tmp_path, server, authority, host) == b"welcome"


def test_a_client_refuses_a_server_of_another_authority(tmp_path: Path, server: CertifiedKey) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        greet(tmp_path, server, make_authority(), "localhost")


@pytest.mark.parametrize(
    ("host", "problem"), [("other.example.org", "Hostname mismatch"), ("192.0.2.8", "IP address mismatch")]
)
def test_a_client_refuses_another_host(
    tmp_path: Path, authority: CertifiedKey, server: CertifiedKey, host: str, problem: str
) -> None:
    with pytest.raises(ssl.SSLCertVerificationError, match=problem):
        greet(tmp_path, server, authority, host)


def test_a_server_cannot_certify_others(tmp_path: Path, authority: CertifiedKey, server: CertifiedKey) -> None:
    """Its certificate does not make it an authority, even for a client that holds the whole chain."""
    forged = make_server_certificate(server, ["localhost"])
    chain = CertifiedKey(forged.certificate_pem + server.certificate_pem, forged.private_pem)
    with pytest.raises(ssl.SSLCertVerificationError, match="CERTIFICATE_VERIFY_FAILED"):
        greet(tmp_path, chain, authority, "localhost")


def extension(certificate: x509.Certificate, kind: type[Any]) -> tuple[Any, bool]:
    found = certificate.extensions.get_extension_for_class(kind)
    return found.value, found.critical


def test_extensions_of_the_authority(authority: CertifiedKey) -> None:
    certificate = x509.load_pem_x509_certificate(authority.certificate_pem)
    assert extension(certificate, x509.BasicConstraints) == (x509.BasicConstraints(ca=True, path_length=0), True)
    usage, critical = extension(certificate, x509.KeyUsage)
    assert critical
    assert usage.key_cert_sign
    assert not usage.digital_signature
    identifier, _ = extension(certificate, x509.SubjectKeyIdentifier)
    assert extension(certificate, x509.AuthorityKeyIdentifier)[0].key_identifier == identifier.digest
    certificate.verify_directly_issued_by(certificate)


def test_extensions_of_the_server(authority: CertifiedKey, server: CertifiedKey) -> None:
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
    certificate = x509.load_pem_x509_certificate(server.certificate_pem)
    certificate.verify_directly_issued_by(issuer)
    public = certificate.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp384r1"
    assert extension(certificate, x509.BasicConstraints) == (x509.BasicConstraints(ca=False, path_length=None), True)
    usage, critical = extension(certificate, x509.KeyUsage)
    assert critical
    assert usage.digital_signature
    assert not usage.key_cert_sign
    assert list(extension(certificate, x509.ExtendedKeyUsage)[0]) == [ExtendedKeyUsageOID.SERVER_AUTH]
    names, _ = extension(certificate, x509.SubjectAlternativeName)
    assert names.get_values_for_type(x509.DNSName) == ["fl.example.org", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ip_address(address) for address in ("192.0.2.7", "2001:db8::7", "127.0.0.1")
    ]
    identifier, _ = extension(issuer, x509.SubjectKeyIdentifier)
    assert extension(certificate, x509.AuthorityKeyIdentifier)[0].key_identifier == identifier.digest
    assert extension(certificate, x509.SubjectKeyIdentifier)[0].digest != identifier.digest


@pytest.mark.parametrize(("days", "given"), [(825, {}), (3, {"days": 3})])
def test_validity(authority: CertifiedKey, days: int, given: dict[str, int]) -> None:
    now = datetime.now(UTC)
    for made in (make_authority(**given), make_server_certificate(authority, [], **given)):
        certificate = x509.load_pem_x509_certificate(made.certificate_pem)
        assert now - timedelta(hours=2) < certificate.not_valid_before_utc < now
        assert certificate.not_valid_after_utc - certificate.not_valid_before_utc == timedelta(days=days)


def test_a_validity_of_no_days_is_refused(authority: CertifiedKey) -> None:
    with pytest.raises(InputError, match=r"^days = 0 must be 1 or more\.$"):
        make_server_certificate(authority, [], days=0)


def test_a_host_is_certified_once(authority: CertifiedKey) -> None:
    made = make_server_certificate(authority, ["localhost", "127.0.0.1", "localhost"])
    certificate = x509.load_pem_x509_certificate(made.certificate_pem)
    assert len(list(extension(certificate, x509.SubjectAlternativeName)[0])) == 2


@pytest.mark.parametrize(
    "host",
    ["", "fl.example.org:9092", "10.0.0.300", "a b", "*.example.org", "-a.org", "x" * 64, "krankenhaus-köln.de", "a\n"],
)
def test_what_is_no_host_is_refused(authority: CertifiedKey, host: str) -> None:
    with pytest.raises(
        InputError, match=r"^hosts: .* is neither an IP address nor a DNS name: give what devices connect to"
    ):
        make_server_certificate(authority, [host])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "fe80::1%eth0"])
def test_an_address_of_nobody_is_refused(authority: CertifiedKey, host: str) -> None:
    with pytest.raises(
        InputError, match=r"^hosts: .* is not an address that devices can connect to: give the server's own"
    ):
        make_server_certificate(authority, [host])


def test_key_pairs_belong_together_and_differ() -> None:
    first, second = make_key_pair(), make_key_pair()
    private = load_pem_private_key(first.private_pem, None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp384r1"
    assert private.public_key() == load_pem_public_key(first.public_pem)
    assert first.public_pem != second.public_pem
    assert first.private_pem.startswith(b"-----BEGIN PRIVATE KEY-----\n")


def test_private_keys_are_not_shown(authority: CertifiedKey) -> None:
    assert "PRIVATE" not in repr(make_key_pair())
    assert "PRIVATE" not in repr(authority)


def test_flower_takes_the_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLWR_TELEMETRY_ENABLED", "0")
    monkeypatch.setenv("FLWR_DISABLE_UPDATE_CHECK", "1")
    monkeypatch.setenv("FLWR_HOME", str(tmp_path / "flwr"))
    asymmetric = pytest.importorskip("flwr.supercore.primitives.asymmetric")
    pair = make_key_pair()
    private = asymmetric.bytes_to_private_key(pair.private_pem)
    public = asymmetric.bytes_to_public_key(pair.public_pem)
    assert asymmetric.uses_nist_ec_curve(public)
    assert asymmetric.verify_signature(public, b"message", asymmetric.sign_message(private, b"message"))
    assert asymmetric.private_key_to_bytes(private) == pair.private_pem
    assert asymmetric.public_key_to_bytes(public) == pair.public_pem
