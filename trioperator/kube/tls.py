"""TLS and addresses of a connection: a :class:`ConnectionInfo` becomes what a transport can use.

Certificates are always verified unless the connection is ``insecure``. Nothing is left on the disk.
"""

from __future__ import annotations

import dataclasses
import os
import ssl
import tempfile
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from trioperator.errors import ConfigError
from trioperator.kube.connection import ConnectionInfo, decode_pem

__all__ = ["Material", "Server", "build_ssl_context", "parse_server", "read_material"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """The parts of a server's URL; ``base`` is the path before all paths, without a slash at its end."""

    scheme: str
    host: str
    port: int
    base: str


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Material:
    """What a TLS context is made of, in PEM, as read at one moment: equal material makes equal contexts."""

    ca: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    insecure: bool = False


def parse_server(url: str) -> Server:
    """Take a server's URL apart. Raises ConfigError."""
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise ConfigError(f"The server's address {url!r} is not a URL: {exc}.") from exc
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"The server's address {url!r} is not a URL of http:// or https:// with a host in it.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError("The server's address can have no user, query or fragment.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as exc:
            raise ConfigError(f"The server's address {url!r} has no valid host name.") from exc
    port = port or (443 if parts.scheme == "https" else 80)
    return Server(scheme=parts.scheme, host=host, port=port, base=parts.path.rstrip("/"))


def read_material(info: ConnectionInfo) -> Material:
    """Read the certificates and keys of a connection. Raises ConfigError."""
    return Material(
        ca=None if info.insecure else _pem(info.ca_path, info.ca_data, "certificate authority"),
        certificate=_pem(info.certificate_path, info.certificate_data, "client certificate"),
        private_key=_pem(info.private_key_path, info.private_key_data, "client key"),
        insecure=bool(info.insecure),
    )


def build_ssl_context(material: Material) -> ssl.SSLContext:
    """Make the TLS context of a connection. Raises ConfigError where a certificate or key is no such thing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Clusters' own authorities often lack what RFC 5280 wants of them (a key identifier); all else is verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if material.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif material.ca is not None:
        try:
            context.load_verify_locations(cadata=material.ca)
        except ssl.SSLError as exc:
            raise ConfigError(f"The certificate authority is not a certificate in PEM: {exc.reason or exc}") from exc
    else:
        context.load_default_certs()
    if material.certificate is not None:
        _load_certificate(context, material.certificate, material.private_key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, private_key: str | None) -> None:
    """Load a client certificate: OpenSSL takes it from a file only, which lives for that moment, for us alone."""
    handle, path = tempfile.mkstemp(prefix="trioperator-", suffix=".pem")
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(f"{certificate}\n{private_key or ''}\n")
        context.load_cert_chain(path, password=_refuse_password)
    except (ssl.SSLError, ValueError) as exc:
        reason = exc.reason if isinstance(exc, ssl.SSLError) and exc.reason else exc
        raise ConfigError(f"The client certificate or its key is broken, or they do not match: {reason}") from exc
    finally:
        os.unlink(path)


def _refuse_password() -> str:
    raise ValueError("the key is encrypted, which is not supported")


def _pem(path: str | os.PathLike[str] | None, data: str | bytes | None, what: str) -> str | None:
    if data is not None:
        return decode_pem(data, what)
    if path is None:
        return None
    try:
        return decode_pem(Path(path).read_bytes(), what)
    except OSError as exc:
        raise ConfigError(f"Cannot read the {what} {os.fspath(path)}: {exc.strerror}") from exc
    except ConfigError as exc:
        raise ConfigError(f"The {what} {os.fspath(path)} is not in PEM.") from exc
