"""Certificates of webhook servers, as they are served and trusted: from files that may be replaced at any time."""

from __future__ import annotations

import pathlib
import re
import ssl
from collections.abc import Iterable
from typing import Final

import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator._kube.tls_config import open_private_file
from trioperator.errors import ConfigError

_CERTIFICATE: Final = re.compile(b"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)


def join_authorities(first: bytes, second: bytes) -> bytes:
    """Return a bundle of the certificates in two bundles, in PEM: *second* if it has all of *first*, too."""
    old, new = split_bundle(first), split_bundle(second)
    missing = [certificate for certificate in old if certificate not in new]
    return b"".join(part + b"\n" for part in (*missing, *new)) if missing else second


def split_bundle(bundle: bytes) -> list[bytes]:
    """Return the certificates in a bundle, in PEM."""
    return _CERTIFICATE.findall(bundle)


def make_context(chain: bytes, key: bytes | None, password: str | None = None) -> ssl.SSLContext:
    """Return the TLS context of a server with a certificate. Raises ConfigError if they do not fit each other."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # which costs servers more than clients; OpenSSL 1.1 allows it
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
    limiter = trio.to_thread.current_default_thread_limiter()
    for path in paths:
        try:
            contents.append(
                None if path is None else await run_in_thread(pathlib.Path(path).read_bytes, limiter=limiter)
            )
        except OSError as error:
            raise ConfigError(f"The file {path!r} cannot be read: {error.strerror or error}.") from error
    return tuple(contents)
