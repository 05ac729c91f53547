"""Certificates of the server and key pairs of the devices."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from codedfl._messages import shown
from codedfl._validation import require_at_least
from codedfl.errors import InputError

VALIDITY_DAYS = 825
"""The longest validity of a server certificate that all common TLS libraries accept."""

_CLOCK_SKEW = timedelta(hours=1)
_LABEL = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_DNS_NAME = re.compile(rf"(?=.{{1,253}}$){_LABEL}(?:\.{_LABEL})*")


@dataclass(frozen=True)
class KeyPair:
    """A private key and its public key.

    Args:
        private_pem: PKCS8, not encrypted; it is not shown.
        public_pem: SubjectPublicKeyInfo.
    """

    private_pem: bytes = field(repr=False)
    public_pem: bytes


@dataclass(frozen=True)
class CertifiedKey:
    """A certificate and the private key that belongs to it.

    Args:
        certificate_pem: the X.509 certificate.
        private_pem: PKCS8, not encrypted; it is not shown.
    """

    certificate_pem: bytes
    private_pem: bytes = field(repr=False)


def make_key_pair() -> KeyPair:
    """Draw a key pair on the curve P-384, with which a device proves who it is.

    Example:
        >>> make_key_pair().public_pem.splitlines()[0]
        b'-----BEGIN PUBLIC KEY-----'
    """
    key = _draw_key()
    return KeyPair(_private_pem(key), key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


def make_authority(days: int = VALIDITY_DAYS) -> CertifiedKey:
    """Make a certificate authority that signs certificates of servers, and nothing else.

    Args:
        days: how long its certificate is valid.
    """
    key = _draw_key()
    name = _named("codedfl authority")
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    certificate = (
        _started(name, name, key, days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA384())
    )
    return CertifiedKey(certificate.public_bytes(Encoding.PEM), _private_pem(key))


def make_server_certificate(authority: CertifiedKey, hosts: Iterable[str], days: int = VALIDITY_DAYS) -> CertifiedKey:
    """Make the certificate of a server, signed by an authority.

    Args:
        authority: the authority that devices trust.
        hosts: IP addresses and DNS names by which devices reach the server; localhost and 127.0.0.1 are added.
        days: how long the certificate is valid.

    Raises:
        InputError: a host is neither an IP address nor a DNS name.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate_pem)
    issuer_key = load_pem_private_key(authority.private_pem, None)
    if not isinstance(issuer_key, ec.EllipticCurvePrivateKey):
        raise InputError(
            f"the key of the authority is a {type(issuer_key).__name__}: give an authority of make_authority."
        )
    names = list(dict.fromkeys(_general_name(host) for host in (*hosts, "localhost", "127.0.0.1")))
    issuer_identifier = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    key = _draw_key()
    certificate = (
        _started(_named("codedfl server"), issuer.subject, key, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_identifier), critical=False
        )
        .sign(issuer_key, hashes.SHA384())
    )
    return CertifiedKey(certificate.public_bytes(Encoding.PEM), _private_pem(key))


def _draw_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP384R1())


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _started(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int
) -> x509.CertificateBuilder:
    """Return a certificate without extensions, valid a little earlier than now for devices whose clock is behind."""
    require_at_least("days", days, 1)
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now - _CLOCK_SKEW + timedelta(days=days))
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        address = ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        # The last label of a DNS name has a letter: 10.0.0.300 is a mistyped address.
        if not _DNS_NAME.fullmatch(host) or host.rsplit(".", 1)[-1].isdigit():
            raise InputError(
                f"hosts: {shown(host)} is neither an IP address nor a DNS name: give what devices connect to, without a port."
            ) from None
        return x509.DNSName(host)
    if address.is_unspecified or "%" in host:
        raise InputError(
            f"hosts: {shown(host)} is not an address that devices can connect to: give the server's own one."
        )
    return x509.IPAddress(address)
