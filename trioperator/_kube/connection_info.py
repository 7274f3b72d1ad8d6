"""The data of one connection: where the API server is, how to verify it, and what to authenticate with.

Nothing here opens a connection. Secrets appear in no message and no ``repr``.
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import dataclasses
import datetime
import ipaddress
import os
import ssl
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from trioperator._kube.tls_config import build_ssl_context, read_tls_config
from trioperator._model.urls import mask_userinfo
from trioperator.errors import ConfigError

_SECRETS: Final = frozenset({"password", "token", "private_key_data", "certificate_data", "ca_data", "proxy_url"})
_PATHS: Final = ("token_file", "ca_path", "certificate_path", "private_key_path")


class ContextChoice:
    """The context of kubeconfig files that a client uses: at its first login the current one, from then on the same.

    Otherwise, it would move to another cluster if somebody selects that for kubectl before the client logs in again.
    """

    def __init__(self) -> None:
        self._names: dict[tuple[Path, ...], str] = {}

    def get(self, files: Sequence[Path]) -> str | None:
        """Return the name of the context of these files, None at the first login by them."""
        return self._names.get(tuple(files))

    def keep(self, files: Sequence[Path], name: str) -> None:
        """Use the context of this name from now on, unless it is known already which one to use."""
        self._names.setdefault(tuple(files), name)

    @contextlib.contextmanager
    def applying(self) -> Iterator[None]:
        """Let logins in the block, also those of clients that are opened there, find this choice."""
        token = _choice.set(self)
        try:
            yield
        finally:
            _choice.reset(token)

    @staticmethod
    def find() -> ContextChoice:
        """Return the choice that applies here, or a new one."""
        return _choice.get() or ContextChoice()


_choice: Final[contextvars.ContextVar[ContextChoice | None]] = contextvars.ContextVar(
    "trioperator-context-choice", default=None
)


@dataclasses.dataclass(frozen=True, slots=True, repr=False)
class ConnectionInfo:
    """Address and credentials of an API server.

    ``*_data`` is PEM or base64-encoded PEM, as a string or bytes; pass either the path or the data of a certificate
    or key, not both. Paths may begin with ``~``. ``token_file`` is read again every minute and takes precedence over
    ``token``, which is used while the file cannot be read. ``scheme`` is the scheme of the ``Authorization`` header:
    ``Bearer`` by default for a token, ``Basic`` for a username. It is sent only over TLS, or to a loopback address.
    With ``trust_env`` the usual environment variables may name a proxy, and ``~/.netrc`` may have its login, and that
    of a connection without a token or username. ``priority`` is for choosing among several connections. At
    ``expiration`` (UTC if naive) the connection is loaded again. ``origin`` says in logs where the connection is from.
    Raises ConfigError if fields contradict each other.
    """

    server: str
    ca_path: str | os.PathLike[str] | None = None
    ca_data: str | bytes | None = None
    insecure: bool | None = None
    username: str | None = None
    password: str | None = None
    scheme: str | None = None
    token: str | None = None
    certificate_path: str | os.PathLike[str] | None = None
    certificate_data: str | bytes | None = None
    private_key_path: str | os.PathLike[str] | None = None
    private_key_data: str | bytes | None = None
    default_namespace: str | None = None
    priority: int = 0
    expiration: datetime.datetime | None = None
    _: dataclasses.KW_ONLY
    token_file: str | os.PathLike[str] | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    trust_env: bool = False
    origin: str | None = dataclasses.field(default=None, compare=False)

    def __post_init__(self) -> None:
        for name in _PATHS:
            path = getattr(self, name)
            if path is not None and os.fspath(path).startswith("~"):
                object.__setattr__(self, name, os.path.expanduser(path))
        for what, path, data in (
            ("ca", self.ca_path, self.ca_data),
            ("certificate", self.certificate_path, self.certificate_data),
            ("private_key", self.private_key_path, self.private_key_data),
        ):
            if path is not None and data is not None:
                raise ConfigError(f"Both {what}_path and {what}_data are set: set only one of them.")
        has_certificate = self.certificate_path is not None or self.certificate_data is not None
        has_key = self.private_key_path is not None or self.private_key_data is not None
        if has_key and not has_certificate:
            raise ConfigError("A private key is set without its certificate.")
        if self.certificate_data is not None and not has_key:
            raise ConfigError("A client certificate is set without its private key.")

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                value = mask_userinfo(value) if field.name == "server" else value
                shown.append(f"{field.name}={'…' if field.name in _SECRETS else repr(value)}")
        return f"ConnectionInfo({', '.join(shown)})"

    @property
    def place(self) -> str:
        """The URL of the API server, and where it is configured, for messages."""
        origin = f" ({self.origin})" if self.origin else ""
        return f"{mask_userinfo(self.server)}{origin}"

    @property
    def paths(self) -> tuple[str | os.PathLike[str], ...]:
        """The files that the connection is read from, which may change at any time."""
        return tuple(path for name in _PATHS if (path := getattr(self, name)) is not None)

    def as_ssl_context(self) -> ssl.SSLContext:
        """Build the SSL context of connections to the server. Raises ConfigError if a file is unreadable or invalid.

        A subclass may change the context, or build another: all requests of the operator use it, and handlers' clients.
        """
        return build_ssl_context(read_tls_config(self), server_name=self.tls_server_name)

    def as_http_headers(self) -> dict[str, str]:
        """Return the headers that authenticate requests, secrets. Raises ConfigError if a file is unreadable.

        A subclass may add others, such as those of a gateway.
        """
        authorization = self.authorization()
        return {} if authorization is None else {"Authorization": authorization}

    def authorization(self) -> str | None:
        """Return the value of the ``Authorization`` header, a secret. Raises ConfigError if a file is unreadable."""
        token = self.token if self.token_file is None else self._read_token(self.token_file)
        if token is not None:
            value = f"{self.scheme or 'Bearer'} {token}"
        elif self.username is not None:
            pair = f"{self.username}:{self.password or ''}".encode()
            value = f"{self.scheme or 'Basic'} {base64.b64encode(pair).decode()}"
        elif self.scheme is not None:
            value = self.scheme
        else:
            return None
        if not value.isascii() or not value.isprintable():
            raise ConfigError(
                "The token contains characters that are not allowed in an HTTP header, such as a line break."
            )
        return value

    def _read_token(self, path: str | os.PathLike[str]) -> str:
        """Return the token in a file, which may be empty while it is rewritten: requests must not be anonymous then."""
        try:
            if found := read_secret(path, "token"):
                return found
            raise ConfigError(f"The token file {os.fspath(path)} is empty.")
        except ConfigError:
            if self.token is None:
                raise
            return self.token


class ServerUrl(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a server's URL; ``base`` is the prefix of all paths, without a trailing slash."""

    scheme: str
    host: str
    port: int
    base: str

    @property
    def is_loopback(self) -> bool:
        """Whether the host is this machine: ``localhost``, or an address such as ``127.0.0.1`` or ``::1``."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_server_url(url: str) -> ServerUrl:
    """Parse the URL of an API server. Raises ConfigError."""
    shown = repr(mask_userinfo(url))
    try:
        parts: SplitResult = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        reason = "" if "@" in url else f": {exc}"  # it quotes parts of the URL
        raise ConfigError(f"The server address {shown} is not a valid URL{reason}.") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(f"The server address {shown} must be an http:// or https:// URL with a host.")
    if parts.username is not None or parts.query or parts.fragment:
        raise ConfigError(f"The server address {shown} must not contain a user, query or fragment.")
    if not host.isascii():
        try:
            host = host.encode("idna").decode("ascii")
        except UnicodeError as exc:
            raise ConfigError(f"The server address {shown} has no valid host name.") from exc
    port = port or (443 if parts.scheme == "https" else 80)
    return ServerUrl(scheme=parts.scheme, host=host, port=port, base=parts.path.rstrip("/"))


def read_secret(path: str | os.PathLike[str], what: str) -> str:
    """Return the content of a small text file without surrounding white space. Raises ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not valid UTF-8"
        raise ConfigError(f"Cannot read the {what} file {os.fspath(path)}: {reason}") from exc
