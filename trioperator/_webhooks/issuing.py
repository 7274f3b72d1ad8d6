"""Issuing of certificates: CAs of webhook servers, and certificates by them. All that is passed is in PEM."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITY_LIFE: Final = datetime.timedelta(days=365)
_CERTIFICATE_LIFE: Final = datetime.timedelta(days=90)
# Certificates are valid a while before they are made: the clocks of others may be behind.
_SKEW: Final = datetime.timedelta(hours=1)
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_ORGANIZATION: Final = "trioperator"


class Authority(msgspec.Struct, frozen=True):
    """A CA: its certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


class Validity(msgspec.Struct, frozen=True):
    """When a certificate was made and until when it is valid, and whether it was made by this module."""

    start: datetime.datetime
    end: datetime.datetime
    is_own: bool

    @classmethod
    def read(cls, certificate: bytes) -> Validity:
        """Read the first certificate of some."""
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        loaded = x509.load_pem_x509_certificate(certificate)
        names = loaded.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        is_own = any(name.value == _ORGANIZATION for name in names)
        return cls(loaded.not_valid_before_utc + _SKEW, loaded.not_valid_after_utc, is_own)

    def is_due(self, now: datetime.datetime, life: datetime.timedelta = _CERTIFICATE_LIFE) -> bool:
        """Check whether two thirds of the life are over: time to renew what lives so long, or what is not valid yet."""
        return self.is_early(now) or now >= min(self.start + life * 2 / 3, self.end - life / 3)

    def is_early(self, now: datetime.datetime) -> bool:
        """Check whether it is not valid yet: the clock that it was made by was ahead, and has been set back."""
        return now < self.start - _SKEW


def build_authority(now: datetime.datetime, hosts: Iterable[str] = ()) -> Authority:
    """Return a new CA, valid for a year. It can issue certificates for these hosts only, if there are any."""
    from cryptography import x509

    subject = _title(f"webhooks {now:%Y-%m-%d %H:%M:%S.%f}")  # names of CAs differ: bundles have several
    private, builder = _begin(now, AUTHORITY_LIFE, subject)
    public = private.public_key()
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    builder = builder.issuer_name(subject).public_key(public).add_extension(identifier, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    builder = builder.add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
    if permitted := [_constrain(host) for host in _select(hosts)]:
        builder = builder.add_extension(x509.NameConstraints(permitted, None), critical=True)
    return Authority(_sign(builder, private), _encode_key(private, None))


def check_authority(authority: Authority) -> None:
    """Check a CA. Raises ValueError if it cannot issue certificates."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    loaded = x509.load_pem_x509_certificate(authority.certificate)
    if serialization.load_pem_private_key(authority.key, None).public_key() != loaded.public_key():
        raise ValueError("The private key belongs to another certificate.")


def build_certificate(
    hostnames: Iterable[str], password: str | None = None, *, authority: Authority, now: datetime.datetime
) -> tuple[bytes, bytes]:
    """Return a certificate for host names and addresses, and its private key, encrypted by the *password* if any.

    It is valid for 90 days, but not longer than the CA.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization
    from cryptography.x509.oid import ExtendedKeyUsageOID

    hosts = _select(hostnames) or ["localhost"]
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    signer: Any = serialization.load_pem_private_key(authority.key, None)
    life = min(_CERTIFICATE_LIFE, issuer.not_valid_after_utc - now)
    private, builder = _begin(now, max(life, datetime.timedelta()), _title(hosts[0]))
    extensions: list[tuple[x509.ExtensionType, bool]] = [
        (x509.BasicConstraints(ca=False, path_length=None), True),
        (_usage(digital_signature=True), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False),
        (x509.SubjectAlternativeName([_name(host) for host in hosts]), False),
        (x509.SubjectKeyIdentifier.from_public_key(private.public_key()), False),
        (_identify(issuer), False),
    ]
    builder = builder.issuer_name(issuer.subject).public_key(private.public_key())
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return _sign(builder, signer), _encode_key(private, password)


def _title(name: str) -> x509.Name:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    parts = ((NameOID.ORGANIZATION_NAME, _ORGANIZATION), (NameOID.COMMON_NAME, name[:64]))
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _begin(now: datetime.datetime, life: datetime.timedelta, subject: x509.Name) -> tuple[Any, x509.CertificateBuilder]:
    """Return a new private key, and the beginning of its certificate."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    builder = x509.CertificateBuilder().subject_name(subject).serial_number(x509.random_serial_number())
    return ec.generate_private_key(ec.SECP256R1()), builder.not_valid_before(now - _SKEW).not_valid_after(now + life)


def _sign(builder: x509.CertificateBuilder, key: Any) -> bytes:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ed448, ed25519

    is_edwards = isinstance(key, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    return builder.sign(key, None if is_edwards else hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _encode_key(key: Any, password: str | None) -> bytes:
    from cryptography.hazmat.primitives import serialization

    encryption: Any = serialization.NoEncryption()
    if password is not None:
        encryption = serialization.BestAvailableEncryption(password.encode())
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    encoded: bytes = key.private_bytes(pem, form, encryption)
    return encoded


def _usage(**used: bool) -> x509.KeyUsage:
    from cryptography import x509

    usages = ("digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement")
    unused = dict.fromkeys((*usages, "key_cert_sign", "crl_sign", "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(**{**unused, **used})


def _identify(issuer: x509.Certificate) -> x509.AuthorityKeyIdentifier:
    from cryptography import x509

    try:
        own = issuer.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    except x509.ExtensionNotFound:
        return x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.public_key())  # type: ignore[arg-type]  # a CA's
    return x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own)


def _select(hosts: Iterable[str]) -> list[str]:
    """Return the host names and addresses once each, but wildcard addresses."""
    return list(dict.fromkeys(_normalize(host) for host in hosts if host not in _WILDCARDS))


def _normalize(host: str) -> str:
    host = host.strip("[]")
    address = _find_address(host)
    if address is not None:
        return str(address)
    return host if host.isascii() else host.encode("idna").decode("ascii")


def _find_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _name(host: str) -> x509.GeneralName:
    from cryptography import x509

    address = _find_address(host)
    return x509.DNSName(host) if address is None else x509.IPAddress(address)


def _constrain(host: str) -> x509.GeneralName:
    from cryptography import x509

    address = _find_address(host)
    return x509.DNSName(host.removeprefix("*.")) if address is None else x509.IPAddress(ipaddress.ip_network(address))
