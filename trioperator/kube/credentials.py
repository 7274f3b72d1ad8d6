"""Credentials of the client: loaded, kept fresh, and loaded again when the API server rejects them (HTTP 401).

After a rejection one request at a time tries fresh credentials while all others wait. Once any credentials have been
accepted, a rejection is never final: tokens are rotated, and authentication services have outages. Secrets are never
logged.
"""

from __future__ import annotations

import datetime
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from trioperator._version import __version__
from trioperator.backoff import Backoff
from trioperator.clock import wall_now
from trioperator.errors import ConfigError, LoginError, UnauthorizedError
from trioperator.kube.connection_info import ConnectionInfo, parse_server_url
from trioperator.kube.connection_pool import ConnectionPool, Origin
from trioperator.kube.tls_config import TlsConfig, build_ssl_context, read_tls_config
from trioperator.kube.transport import Headers, Transport
from trioperator.logs import get_logger
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

__all__ = ["CredentialStore", "Credentials"]

_logger = get_logger(__name__)
_T = TypeVar("_T")

# Between attempts with rejected credentials, in seconds.
_BACKOFF: Final = Backoff(initial=0.5, maximum=10.0)
# Attempts with credentials that have never been accepted, before the login has failed.
_LOGIN_ATTEMPTS: Final = 5
# Rejections of one request before it fails although the credentials were accepted earlier: if other requests are
# accepted meanwhile (one broken endpoint), and if none is (about a minute).
_MAX_OWN_REJECTIONS: Final = 3
_MAX_REJECTIONS: Final = 10
# Seconds after which files with tokens and certificates are read again (as client-go does).
_MAX_AGE: Final = 60.0
# Seconds until the source is asked again after it has failed, while the current credentials still work.
_RETRY_AGE: Final = 10.0


class Credentials:
    """Credentials as loaded at one moment, and the transport to use them on. Compared by identity."""

    __slots__ = ("base", "headers", "info", "reload_at", "tls", "transport")

    def __init__(
        self, info: ConnectionInfo, *, transport: Transport, headers: Headers, tls: TlsConfig | None, base: str
    ) -> None:
        self.info = info
        self.transport = transport
        self.headers = headers  # secret
        self.tls = tls  # secret
        self.base = base
        self.reload_at = float("inf")


class CredentialStore:
    """The current credentials of a client; they are loaded again when they are rejected or old.

    With an httpx *transport* all requests go through it, whatever the connection says about certificates and proxies;
    it is not closed at the end. Raises ConfigError if the connection is invalid.
    """

    def __init__(
        self,
        source: Callable[[], ConnectionInfo],
        *,
        settings: OperatorSettings,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._source = source
        self._settings = settings
        self._transport = transport
        self._retired: list[Transport] = []
        self._retry_lock = trio.Lock()
        self._failures = 0  # rejections in a row
        self._accepted_count = 0
        self._rejected = False
        self._current = self._load(None)

    @property
    def current(self) -> Credentials:
        """The credentials to use now; they are loaded again if they are old."""
        current = self._current
        if trio.current_time() >= current.reload_at:
            self.reload()
        return self._current

    async def call(self, attempt: Callable[[Credentials], Awaitable[_T]]) -> _T:
        """Await *attempt* with the current credentials, and again with fresh ones while they are rejected.

        Raises LoginError if no credentials have ever been accepted, UnauthorizedError if they are rejected for about
        a minute, or sooner if only those of this request are.
        """
        accepted = self._accepted_count
        rejections = 0
        while True:
            try:
                if not self._rejected:
                    credentials = self.current
                    return await attempt(credentials)
                async with self._retry_lock:
                    if not self._rejected:  # another request has found credentials that work
                        continue
                    self.reload()
                    credentials = self.current
                    try:
                        return await attempt(credentials)
                    except UnauthorizedError as exc:
                        if rejections + 1 < _MAX_REJECTIONS:
                            await self._back_off(exc)
                        raise
            except UnauthorizedError:
                rejections += 1
                if rejections >= (_MAX_REJECTIONS if self._accepted_count == accepted else _MAX_OWN_REJECTIONS):
                    raise
                self._note_rejected(credentials)

    def note_accepted(self) -> None:
        """Record that the API server has accepted the credentials."""
        if self._rejected:
            _logger.info("The API server accepts the credentials again.")
        self._rejected = False
        self._failures = 0
        self._accepted_count += 1

    def reload(self) -> None:
        """Load the credentials again; keep the current ones if that fails."""
        try:
            self._current = self._load(self._current)
        except ConfigError as exc:
            # A file that is being replaced may be incomplete for a moment.
            _logger.warning("Cannot reload the credentials; keeping the current ones: %s", exc)
            self._current.reload_at = trio.current_time() + _RETRY_AGE

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (*self._retired, self._current.transport):
            await transport.aclose()

    def _note_rejected(self, used: Credentials) -> None:
        """Record a 401, unless the rejected credentials have been replaced in the meantime."""
        if used is self._current and not self._rejected:
            self._rejected = True
            _logger.warning("The API server rejected the credentials (HTTP 401); reloading them.")

    async def _back_off(self, error: UnauthorizedError) -> None:
        """Sleep after a rejection. Raises LoginError if no credentials have ever been accepted."""
        self._failures += 1
        if not self._accepted_count and self._failures >= _LOGIN_ATTEMPTS:
            raise LoginError(
                f"The API server at {self._current.info.server} rejected the credentials: {error.message}"
            ) from error
        await trio.sleep(_BACKOFF.delay(self._failures))

    def _load(self, previous: Credentials | None) -> Credentials:
        """Load a connection from the source; keep the open connections if they would be the same."""
        info = self._source()
        headers = [(b"User-Agent", b"trioperator/" + __version__.encode())]
        authorization = info.authorization()
        if authorization is not None and self._transport is None:
            _check_security(info, trust_env=self._settings.networking.trust_env)
        if authorization is not None:
            headers.append((b"Authorization", authorization.encode("ascii")))
        tls: TlsConfig | None = None
        base = parse_server_url(info.server).base
        if self._transport is not None:
            from trioperator.kube.httpx_adapter import HttpxTransport  # the caller has imported httpx already

            transport: Transport = HttpxTransport(self._transport, origin=info.server)
        else:
            tls = read_tls_config(info)
            if previous is not None and previous.tls == tls and _has_same_route(previous.info, info):
                transport = previous.transport
            else:
                transport = _open_transport(info, tls, trust_env=self._settings.networking.trust_env)
                if previous is not None:
                    replaced = [*self._retired, previous.transport]
                    self._retired = [each for each in replaced if not each.retire()]
        credentials = Credentials(info, transport=transport, headers=headers, tls=tls, base=base)
        credentials.reload_at = _compute_reload_time(info)
        return credentials


def _has_same_route(one: ConnectionInfo, other: ConnectionInfo) -> bool:
    """Return whether two connections lead to the same server by the same route, certificates aside."""
    return (one.server, one.tls_server_name, one.proxy_url, one.trust_env) == (
        other.server,
        other.tls_server_name,
        other.proxy_url,
        other.trust_env,
    )


def _compute_reload_time(info: ConnectionInfo) -> float:
    now = trio.current_time()
    at = now + _MAX_AGE if info.paths else float("inf")
    if info.expiration is not None:
        expiration = info.expiration
        if expiration.tzinfo is None:
            expiration = expiration.replace(tzinfo=datetime.UTC)
        at = min(at, now + max(1.0, (expiration - wall_now()).total_seconds()))
    return at


def _open_transport(info: ConnectionInfo, tls: TlsConfig, *, trust_env: bool) -> Transport:
    """Return httpx's transport if there is a proxy, else a connection pool."""
    server = parse_server_url(info.server)
    proxy_url = _get_proxy(info, trust_env=trust_env)
    if proxy_url:
        from trioperator.kube.httpx_adapter import open_proxy_transport  # httpx is big, and few need a proxy

        return open_proxy_transport(info, proxy_url)
    context = build_ssl_context(tls) if server.scheme == "https" else None
    return ConnectionPool(
        Origin(host=server.host, port=server.port, context=context, server_name=info.tls_server_name or server.host)
    )


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
    return proxies.get(scheme) or proxies.get("all")
