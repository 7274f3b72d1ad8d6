"""Credentials as they are used: a :class:`ConnectionInfo` with its files read, and a transport to send requests on.

Files are read here, so call it in a thread. Secrets are never logged.
"""

from __future__ import annotations

import dataclasses
import datetime
import netrc
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlsplit, urlunsplit

import trio

from trioperator._concurrency.clock import wall_now
from trioperator._concurrency.timeouts import Timeouts
from trioperator._http.connection_pool import ConnectionPool, Origin
from trioperator._http.transport import Headers, Request, Transport
from trioperator._kube.connection_info import ConnectionInfo, parse_server_url
from trioperator._kube.tls_config import TlsConfig, read_tls_config
from trioperator._version import __version__
from trioperator.errors import ConfigError
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")


def find_login(host: str) -> tuple[str, str] | None:
    """Return the user and the password for a host, None if there are none. Raises ConfigError for an invalid file."""
    path = os.path.expanduser(os.environ.get("NETRC") or "~/.netrc")
    try:
        found = netrc.netrc(path).authenticators(host)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "not valid UTF-8"
        raise ConfigError(f"Cannot read the file {path}: {reason}") from exc
    except netrc.NetrcParseError as exc:  # its message may quote a password
        raise ConfigError(f"The file {path} is invalid in line {exc.lineno}.") from None
    if found is None:
        return None
    login, account, password = found
    return login or account or "", password or ""


# The name of a header.
_HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# Seconds after which files with tokens and certificates are read again (as client-go does).
_MAX_AGE: Final = 60.0
# When credentials are renewed before they expire: seconds, and share of the time that is left.
_MARGIN: Final = 60.0
_MARGIN_SHARE: Final = 0.2
# Seconds until they are renewed, at least: plugins may return what they have cached.
_MIN_RENEWAL: Final = 10.0


class Credentials:
    """Credentials as loaded at one moment, and the transport to use them on. Compared by identity.

    Times are on Trio's clock. At ``renew_at`` they are to be renewed ahead of their expiration at ``expires_at``. At
    ``reload_at``, requests must not use them before their files are read again, or they are renewed.
    """

    __slots__ = ("_loaded_at", "base", "expires_at", "headers", "info", "reload_at", "renew_at", "tls", "transport")

    def __init__(
        self, info: ConnectionInfo, *, transport: Transport, headers: Headers, tls: TlsConfig | None, base: str
    ) -> None:
        self.info = info
        self.transport = transport
        self.headers = headers  # secret
        self.tls = tls  # secret
        self.base = base
        self._loaded_at = self.reload_at = self.renew_at = self.expires_at = float("inf")

    def sign(self, request: Request) -> Request:
        """Return the request with the credentials, for the server's base path."""
        headers = (*self.headers, *request.headers)
        return Request(request.method, self.base + request.target, headers, request.body, request.is_repeatable)

    def start_ageing(self) -> None:
        """Compute when to renew and reload the credentials, from now on."""
        now = self._loaded_at = trio.current_time()
        if self.info.expiration is not None:
            remaining = _compute_remaining(self.info.expiration)
            self.expires_at = now + max(1.0, remaining)
            self.renew_at = max(now + _MIN_RENEWAL, self.expires_at - min(_MARGIN, remaining * _MARGIN_SHARE))
        self.reload_at = min(self.expires_at, now + _MAX_AGE if self.info.paths else float("inf"))

    def doubt(self) -> None:
        """Renew the credentials before the next request, but not those that were loaded just now."""
        at = max(trio.current_time(), self._loaded_at + _MIN_RENEWAL)
        self.reload_at, self.renew_at = min(self.reload_at, at), min(self.renew_at, at)

    def put_off(self, at: float) -> None:
        """Use the credentials, even if they have expired, and do not renew or reload them before a time."""
        self.reload_at, self.renew_at = max(self.reload_at, at), max(self.renew_at, at)
        self.expires_at = max(self.expires_at, at)

    def keep_age(self, previous: Credentials) -> None:
        """Take over when to renew the credentials from those that are the same, with older files."""
        self._loaded_at, self.renew_at, self.expires_at = previous._loaded_at, previous.renew_at, previous.expires_at
        self.reload_at = min(self.expires_at, trio.current_time() + _MAX_AGE)


def is_expired(info: ConnectionInfo) -> bool:
    """Return whether a connection has expired."""
    return info.expiration is not None and _compute_remaining(info.expiration) <= 0


def _compute_remaining(expiration: datetime.datetime) -> float:
    if expiration.tzinfo is None:
        expiration = expiration.replace(tzinfo=datetime.UTC)
    return (expiration - wall_now()).total_seconds()


def prepare_credentials(
    info: ConnectionInfo,
    previous: Credentials | None,
    *,
    transport: httpx.AsyncBaseTransport | None,
    settings: OperatorSettings,
    timeouts: Timeouts | None = None,
) -> Credentials:
    """Read the files of a connection, and open its transport; keep the transport of *previous* if it would be the same.

    With an httpx *transport* all requests go through it. *timeouts* keep the deadlines of others. Raises ConfigError if
    the connection is invalid.
    """
    trust_env = settings.networking.trust_env
    headers = [(b"User-Agent", b"trioperator/" + __version__.encode()), *_read_headers(info, trust_env=trust_env)]
    if len(headers) > 1 and transport is None:
        _check_security(info, trust_env=trust_env)
    tls: TlsConfig | None = None
    base = parse_server_url(info.server).base
    if transport is not None:
        from trioperator._kube.httpx_adapter import HttpxTransport  # the caller has imported httpx already

        opened: Transport = HttpxTransport(transport, origin=info.server)
    else:
        tls = read_tls_config(info)
        if previous is not None and previous.tls == tls and _has_same_route(previous.info, info):
            opened = previous.transport
        else:
            opened = _open_transport(info, settings, timeouts)
    return Credentials(info, transport=opened, headers=headers, tls=tls, base=base)


def _read_headers(info: ConnectionInfo, *, trust_env: bool) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers that authenticate requests."""
    login = _add_login(info, trust_env=trust_env)
    headers: object = _ask(login, login.as_http_headers)
    if not isinstance(headers, Mapping):
        raise ConfigError(f"{type(info).__name__}.as_http_headers() has returned no mapping, but {type(headers)}.")
    for name, value in headers.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ConfigError(f"The header {name!r} of a connection is invalid: it must be a string, and so its name.")
        if not (_HEADER.fullmatch(name) and value.isascii() and value.isprintable()):
            raise ConfigError(f"The header {name!r} of a connection is invalid: it may have printable ASCII only.")
        yield name.encode(), value.encode()


def _ask(info: ConnectionInfo, method: Callable[[], T]) -> T:
    """Return what a method of a connection returns, which may be a user's own. Raises ConfigError."""
    try:
        return method()
    except ConfigError:
        raise
    except Exception as exc:
        raise ConfigError(f"{type(info).__name__}.{method.__name__}() has failed: {exc!r}") from exc


def _add_login(info: ConnectionInfo, *, trust_env: bool) -> ConnectionInfo:
    """Return the connection with the login of ``~/.netrc``, if that may be used, and the connection has none."""
    if not (info.trust_env or trust_env) or (info.token, info.token_file, info.username, info.scheme) != (None,) * 4:
        return info
    login = find_login(parse_server_url(info.server).host)
    return info if login is None else dataclasses.replace(info, username=login[0], password=login[1])


def _has_same_route(one: ConnectionInfo, other: ConnectionInfo) -> bool:
    """Return whether two connections lead to the same server by the same route, certificates aside."""
    return (type(one), one.server, one.tls_server_name, one.proxy_url, one.trust_env) == (
        type(other),
        other.server,
        other.tls_server_name,
        other.proxy_url,
        other.trust_env,
    )


def _open_transport(info: ConnectionInfo, settings: OperatorSettings, timeouts: Timeouts | None) -> Transport:
    """Return httpx's transport if there is a proxy, else a connection pool."""
    server = parse_server_url(info.server)
    context = _ask(info, info.as_ssl_context) if server.scheme == "https" else None
    proxy_url = _get_proxy(info, trust_env=settings.networking.trust_env)
    if proxy_url:
        from trioperator._kube.httpx_adapter import open_proxy_transport  # httpx is big, and few need a proxy

        return open_proxy_transport(info, proxy_url, context)
    name = info.tls_server_name or server.host
    origin = Origin(host=server.host, port=server.port, context=context, server_name=name)
    return ConnectionPool(origin, max_connections=lambda: settings.networking.max_connections, timeouts=timeouts)


def _check_security(info: ConnectionInfo, *, trust_env: bool) -> None:
    """Raise ConfigError if others could read the ``Authorization`` header on its way."""
    server = parse_server_url(info.server)
    if server.scheme == "https":
        return
    if not server.is_loopback or _get_proxy(info, trust_env=trust_env):
        raise ConfigError(
            f"The credentials for {info.server} would be sent without encryption: use https://. "
            f"Plain HTTP is for loopback addresses without a proxy, and for connections without credentials."
        )


def _get_proxy(info: ConnectionInfo, *, trust_env: bool) -> str | None:
    """Return the URL of the proxy, if any; with *trust_env* it may come from the environment."""
    if info.proxy_url or not (info.trust_env or trust_env):
        return info.proxy_url
    server = parse_server_url(info.server)
    return _find_proxy(server.scheme, server.host)


def _find_proxy(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names for a host, if any."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if proxy_bypass(host):
        return None
    proxy = proxies.get(scheme) or proxies.get("all")
    return proxy and _add_proxy_login(proxy)


def _add_proxy_login(url: str) -> str:
    """Return the URL of a proxy with its login of ``~/.netrc``, unless it has one itself."""
    try:
        parts = urlsplit(url)
    except ValueError:  # reported by whom the URL is for
        return url
    if parts.username is not None or not parts.hostname or (login := find_login(parts.hostname)) is None:
        return url
    userinfo = ":".join(quote(part, safe="") for part in login)
    return urlunsplit(parts._replace(netloc=f"{userinfo}@{parts.netloc}"))
