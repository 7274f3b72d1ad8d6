"""TLS of a connection: a :class:`ConnectionInfo` becomes an SSL context.

Certificates are always verified unless the connection is ``insecure``. No file is left on disk.
"""

from __future__ import annotations

import dataclasses
import os
import ssl
import tempfile
from pathlib import Path

from trioperator.errors import ConfigError
from trioperator.kube.connection_info import ConnectionInfo, decode_pem

__all__ = ["TlsConfig", "build_ssl_context", "read_tls_config"]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TlsConfig:
    """Certificates and key in PEM, as read at one moment: if they are equal, so are the SSL contexts."""

    ca: str | None = None
    certificate: str | None = None
    private_key: str | None = None
    insecure: bool = False


def read_tls_config(info: ConnectionInfo) -> TlsConfig:
    """Read the certificates and the key of a connection. Raises ConfigError."""
    return TlsConfig(
        ca=None if info.insecure else _pem(info.ca_path, info.ca_data, "certificate authority"),
        certificate=_pem(info.certificate_path, info.certificate_data, "client certificate"),
        private_key=_pem(info.private_key_path, info.private_key_data, "client key"),
        insecure=bool(info.insecure),
    )


def build_ssl_context(config: TlsConfig) -> ssl.SSLContext:
    """Build the SSL context of a connection. Raises ConfigError for an invalid certificate or key."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The CAs of clusters often lack the key identifier that RFC 5280 requires; all else is verified.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.set_alpn_protocols(["http/1.1"])
    if config.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.ca is not None:
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
    """Load a client certificate by way of a private temporary file: OpenSSL loads it from files only."""
    handle, path = tempfile.mkstemp(prefix="trioperator-", suffix=".pem")
    try:
        with open(handle, "w", encoding="ascii") as file:
            file.write(f"{certificate}\n{private_key or ''}\n")
        context.load_cert_chain(path, password=_refuse_password)
    except (ssl.SSLError, ValueError) as exc:
        reason = exc.reason if isinstance(exc, ssl.SSLError) and exc.reason else exc
        raise ConfigError(f"The client certificate or its key is invalid, or they do not match: {reason}") from exc
    finally:
        os.unlink(path)


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
