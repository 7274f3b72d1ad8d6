"""Credentials of the client: loaded, kept fresh, and loaded again when the API server rejects them (HTTP 401).

After a rejection one request renews the credentials while all others wait for that, but never for one another's
responses. Once any credentials have been accepted, a rejection is never final: tokens are rotated, and authentication
services have outages. Files are read again in a thread. Secrets are never logged.
"""

from __future__ import annotations

import datetime
import functools
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
from trioperator.threads import run_in_thread

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
# Seconds that the source and the files may take; a network file system may never answer.
_LOAD_TIMEOUT: Final = 10.0


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
        self._renewal = trio.Lock()
        self._thread = trio.CapacityLimiter(1)
        self._failures = 0  # renewals since credentials were accepted
        self._accepted_count = 0
        self._rejected = False
        self._renew_at = 0.0
        self._current = self._load(None)
        self._current.reload_at = _compute_reload_time(self._current.info)

    @property
    def default_namespace(self) -> str | None:
        """The namespace of the current connection, if it has one."""
        return self._current.info.default_namespace

    async def call(self, attempt: Callable[[Credentials], Awaitable[_T]]) -> _T:
        """Await *attempt* with the current credentials, and again with fresh ones while they are rejected.

        Raises LoginError if no credentials have ever been accepted, UnauthorizedError if they are rejected for about
        a minute, or sooner if only those of this request are.
        """
        accepted = self._accepted_count
        rejections = 0
        while True:
            if self._rejected or trio.current_time() >= self._current.reload_at:
                await self._renew()
            credentials = self._current
            try:
                return await attempt(credentials)
            except UnauthorizedError as exc:
                rejections += 1
                self._check_login(exc)
                if rejections >= (_MAX_REJECTIONS if self._accepted_count == accepted else _MAX_OWN_REJECTIONS):
                    raise
                self._note_rejected(credentials)

    def note_accepted(self) -> None:
        """Record that the API server has accepted the credentials."""
        if self._failures:
            _logger.info("The API server accepts the credentials again.")
            self._failures = 0
        self._rejected = False
        self._accepted_count += 1

    async def reload(self) -> None:
        """Load the credentials again, in a thread; keep the current ones if that fails or takes too long."""
        current = self._current
        load = functools.partial(self._load, current)
        try:
            with trio.move_on_after(_LOAD_TIMEOUT) as scope:
                self._replace(await run_in_thread(load, limiter=self._thread))
        except ConfigError as exc:
            # A file that is being replaced may be incomplete for a moment.
            _logger.warning("Cannot reload the credentials; keeping the current ones: %s", exc)
            current.reload_at = trio.current_time() + _RETRY_AGE
        if scope.cancelled_caught:
            _logger.warning(
                "Cannot reload the credentials within %g s; keeping the current ones. Are their files on a network?",
                _LOAD_TIMEOUT,
            )
            current.reload_at = trio.current_time() + _MAX_AGE

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in (*self._retired, self._current.transport):
            await transport.aclose()

    async def _renew(self) -> None:
        """Load fresh credentials if they are still rejected or old; one task at a time, after a backoff."""
        async with self._renewal:
            if self._rejected:
                await trio.sleep_until(self._renew_at)
            if self._rejected:
                self._failures += 1
                await self.reload()
                self._rejected = False
            elif trio.current_time() >= self._current.reload_at:
                await self.reload()

    def _note_rejected(self, used: Credentials) -> None:
        """Record a 401, unless the rejected credentials have been replaced in the meantime."""
        if used is not self._current or self._rejected:
            return
        self._rejected = True
        self._renew_at = trio.current_time() + _BACKOFF.delay(self._failures)
        if not self._failures:
            _logger.warning("The API server rejected the credentials (HTTP 401); reloading them.")

    def _check_login(self, error: UnauthorizedError) -> None:
        """Raise LoginError after several renewals if no credentials have ever been accepted."""
        if not self._accepted_count and self._failures >= _LOGIN_ATTEMPTS:
            raise LoginError(
                f"The API server at {self._current.info.server} rejected the credentials: {error.message}"
            ) from error

    def _load(self, previous: Credentials | None) -> Credentials:
        """Load a connection from the source; keep the open connections if they would be the same. Runs in a thread."""
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
        return Credentials(info, transport=transport, headers=headers, tls=tls, base=base)

    def _replace(self, fresh: Credentials) -> None:
        """Use fresh credentials from now on, and close connections that are not used any more."""
        previous, self._current = self._current, fresh
        fresh.reload_at = _compute_reload_time(fresh.info)
        if fresh.transport is not previous.transport:
            self._retired = [each for each in (*self._retired, previous.transport) if not each.retire()]


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
