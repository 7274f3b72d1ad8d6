"""TLS of a connection: its certificates and its key become an SSL context.

Certificates are always verified unless the connection is ``insecure``. Keys are not written to disk, where the system
has files in memory, and no file is left behind.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

import msgspec

from trioperator.errors import ConfigError


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates and key in PEM, as read at one moment: if they are equal, so are the SSL contexts."""

    ca: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    insecure: bool = False

    __repr__ = object.__repr__  # without the key


class HasCertificates(Protocol):
    """Certificates and key of a connection, each by a path or as data."""

    @property
    def ca_path(self) -> str | os.PathLike[str] | None: ...
    @property
    def ca_data(self) -> str | bytes | None: ...
    @property
    def certificate_path(self) -> str | os.PathLike[str] | None: ...
    @property
    def certificate_data(self) -> str | bytes | None: ...
    @property
    def private_key_path(self) -> str | os.PathLike[str] | None: ...
    @property
    def private_key_data(self) -> str | bytes | None: ...
    @property
    def insecure(self) -> bool | None: ...


def read_tls_config(info: HasCertificates) -> TlsConfig:
    """Read the certificates and the key of a connection. Raises ConfigError."""
    return TlsConfig(
        ca=None if info.insecure else _pem(info.ca_path, info.ca_data, "certificate authority"),
        certificate=_pem(info.certificate_path, info.certificate_data, "client certificate"),
        private_key=_pem(info.private_key_path, info.private_key_data, "client key"),
        insecure=bool(info.insecure),
    )


class _NamedContext(ssl.SSLContext):
    """An SSL context that expects a certificate for one name, whatever the host is."""

    server_name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.server_name, session)


def build_ssl_context(config: TlsConfig, *, server_name: str | None = None) -> ssl.SSLContext:
    """Build the SSL context of a connection. Raises ConfigError for an invalid certificate or key.

    With *server_name*, the server's certificate must be for that name, even if the user of the context asks for another
    one. Only for connections through memory buffers, as Trio's are.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if server_name is None else _NamedContext(ssl.PROTOCOL_TLS_CLIENT)
    if isinstance(context, _NamedContext):
        context.server_name = server_name or ""
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The CAs of clusters often lack the key identifier that RFC 5280 requires; all else is verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.ca is not None:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # each certificate is trusted, as by kubectl
        try:
            context.load_verify_locations(cadata=config.ca)
        except ssl.SSLError as exc:
            raise ConfigError(f"The certificate authority is not a valid PEM certificate: {exc.reason or exc}") from exc
    else:
        context.load_default_certs()
    if config.certificate is not None:
        _load_certificate(context, config.certificate, config.private_key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: str, private_key: str | None) -> None:
    """Load a client certificate by way of a file: OpenSSL loads it from files only."""
    try:
        with open_private_file(f"{certificate}\n{private_key or ''}\n".encode("ascii")) as path:
            context.load_cert_chain(path, password=_refuse_password)
    except (ssl.SSLError, ValueError) as exc:
        reason = exc.reason if isinstance(exc, ssl.SSLError) and exc.reason else exc
        raise ConfigError(f"The client certificate or its key is invalid, or they do not match: {reason}") from exc
    except OSError as exc:
        raise ConfigError(
            f"The client certificate cannot be loaded, as this takes a temporary file: {exc.strerror or exc}. Mount a"
            f" writable directory at /tmp, or set TMPDIR to one."
        ) from exc


@contextlib.contextmanager
def open_private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file that only this user can read, in memory if possible, else in a temporary directory.

    Raises OSError if there is no directory to write to.
    """
    try:
        handle = os.memfd_create("trioperator") if hasattr(os, "memfd_create") else -1
    except OSError:  # an old kernel, or a sandbox
        handle = -1
    if handle >= 0:
        with open(handle, "wb", buffering=0) as file:
            path = f"/proc/self/fd/{handle}"
            if os.path.exists(path):  # else /proc is not mounted
                file.write(content)
                yield path
                return
    with tempfile.NamedTemporaryFile(prefix="trioperator-", suffix=".pem") as file:
        file.write(content)
        file.flush()
        yield file.name


def _refuse_password() -> str:
    raise ValueError("encrypted keys are not supported")


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
        raise ConfigError(f"The {what} {os.fspath(path)} is not valid PEM.") from exc


def decode_pem(data: str | bytes, what: str) -> str:
    """Return PEM as a string, from PEM or base64-encoded PEM. Raises ConfigError."""
    raw = data.encode() if isinstance(data, str) else data
    try:
        if b"-----BEGIN" not in raw:
            raw = base64.b64decode(b"".join(raw.split()), validate=True)
        text = raw.decode("ascii")
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise ConfigError(f"The {what} data is neither PEM nor base64-encoded PEM.") from exc
    if "-----BEGIN" not in text:
        raise ConfigError(f"The {what} data is neither PEM nor base64-encoded PEM.")
    return text
