"""Certificates of webhook servers: made here, or read from files that may be replaced at any time."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import trio

from trioperator.errors import ConfigError
from trioperator.kube.tls_config import open_private_file

if TYPE_CHECKING:
    import trustme

__all__ = [
    "build_authority",
    "build_certificate",
    "check_authority",
    "join_authorities",
    "make_context",
    "read_files",
]

_CERTIFICATE: Final = re.compile(b"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})


def build_authority() -> tuple[bytes, bytes]:
    """Return a new CA: its certificate and its private key, in PEM."""
    authority = _make_authority()
    return authority.cert_pem.bytes(), authority.private_key_pem.bytes()


def check_authority(certificate: bytes, key: bytes) -> None:
    """Check a CA, in PEM. Raises ValueError if it cannot issue certificates."""
    from cryptography import x509
    from cryptography.hazmat.primitives import serialization

    loaded = x509.load_pem_x509_certificate(certificate)
    if serialization.load_pem_private_key(key, None).public_key() != loaded.public_key():
        raise ValueError("The private key is that of another certificate.")


def join_authorities(first: bytes, second: bytes) -> bytes:
    """Return a bundle of the certificates in two bundles, in PEM: *second* if it has those of *first*, too."""
    old, new = (_CERTIFICATE.findall(bundle) for bundle in (first, second))
    missing = [certificate for certificate in old if certificate not in new]
    return b"".join(part + b"\n" for part in (*missing, *new)) if missing else second


def _make_authority() -> trustme.CA:
    import trustme

    return trustme.CA(organization_name="trioperator", organization_unit_name="admission webhooks")


def build_certificate(
    hostnames: Iterable[str], password: str | None = None, *, authority: tuple[bytes, bytes] | None = None
) -> tuple[bytes, bytes, bytes]:
    """Return a certificate for the host names and addresses, its private key, and its CA, all in PEM.

    The key is encrypted by the *password*, if there is one. Without an *authority* (a certificate and a key in PEM),
    the CA is made for this certificate; its key is dropped.
    """
    import trustme
    from cryptography.hazmat.primitives import serialization

    hosts = list(dict.fromkeys(_normalize(host) for host in hostnames if host not in _WILDCARDS))
    issuer = _make_authority() if authority is None else trustme.CA.from_pem(*authority)
    names = [host for host in hosts if not _is_address(host)]
    made = issuer.issue_cert(*hosts or ["localhost"], common_name=(names or hosts or ["localhost"])[0][:64])
    key = made.private_key_pem.bytes()
    if password is not None:
        loaded = serialization.load_pem_private_key(key, None)
        encryption = serialization.BestAvailableEncryption(password.encode())
        key = loaded.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
    chain = b"".join(part.bytes() for part in made.cert_chain_pems)
    return chain, key, issuer.cert_pem.bytes()


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _normalize(host: str) -> str:
    host = host.strip("[]")
    return str(ipaddress.ip_address(host)) if _is_address(host) else host


def make_context(chain: bytes, key: bytes | None, password: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of a server with a certificate. Raises ConfigError if they do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        with open_private_file(chain if key is None else chain + b"\n" + key) as path:
            context.load_cert_chain(path, password=password or (lambda: ""))
    except ssl.SSLError as error:
        raise ConfigError(f"The certificate and the private key cannot be loaded: {error}") from error
    except OSError as error:
        raise ConfigError(
            f"The certificate cannot be loaded, as this takes a temporary file: {error.strerror or error}. Mount a"
            f" writable directory at /tmp, or set TMPDIR to one."
        ) from error
    return context


async def read_files(paths: Iterable[str | None]) -> tuple[bytes | None, ...]:
    """Return the contents of files; None for those without a path. Raises ConfigError if one cannot be read."""
    contents: list[bytes | None] = []
    for path in paths:
        try:
            contents.append(None if path is None else await trio.Path(path).read_bytes())
        except OSError as error:
            raise ConfigError(f"The file {path!r} cannot be read: {error.strerror or error}.") from error
    return tuple(contents)
