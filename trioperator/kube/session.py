"""Who we are at the API server, kept fresh: credentials are read again when they are refused, and when they get old.

One request at a time looks for credentials that work while all others wait. Once any were accepted, a refusal is
never the end: tokens are rotated, authentication services have bad seconds. Secrets are never logged.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import trio

from trioperator._version import __version__
from trioperator.clock import wall_now
from trioperator.errors import ConfigError, LoginError, UnauthorizedError
from trioperator.kube.connection import ConnectionInfo
from trioperator.kube.exchange import Exchange, Headers
from trioperator.kube.tls import Material, build_ssl_context, parse_server, read_material
from trioperator.kube.transport import HttpTransport, Origin
from trioperator.logs import get_logger
from trioperator.settings import OperatorSettings

if TYPE_CHECKING:
    import httpx

__all__ = ["Credentials", "Session"]

_logger = get_logger(__name__)

# Seconds between attempts with credentials that were refused; the last one repeats.
_REFUSAL_DELAYS: Final = (0.5, 1.0, 2.0, 5.0, 10.0)
# Attempts with credentials that have never worked, before it is plain that they will not.
_LOGIN_ATTEMPTS: Final = 5
# Seconds for which files with tokens and certificates are trusted to be what they were (the pace of client-go).
_MAX_AGE: Final = 60.0
# Seconds before a source that has failed is asked again, while the present credentials still work.
_RETRY_AGE: Final = 10.0


class Credentials:
    """One way to the server, as known at one moment. Its identity tells it from the same credentials read later."""

    __slots__ = ("base", "exchange", "headers", "info", "material", "reread_at")

    def __init__(
        self, info: ConnectionInfo, *, exchange: Exchange, headers: Headers, material: Material | None, base: str
    ) -> None:
        self.info = info
        self.exchange = exchange
        self.headers = headers  # secret
        self.material = material  # secret
        self.base = base
        self.reread_at = float("inf")


class Session:
    """Hold the credentials in use, and look for new ones when these are refused or old.

    With a *transport* all requests go through it, whatever the connection says of certificates and proxies, and it is
    not closed at the end. Raises ConfigError at once where the connection is broken.
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
        self._retired: list[Exchange] = []
        self._turn = trio.Lock()
        self._refusals = 0
        self.accepted_count = 0
        self.troubled = False
        self._current = self._load(None)

    @property
    def credentials(self) -> Credentials:
        """The credentials to use now; they are read again where they have become old."""
        current = self._current
        if trio.current_time() >= current.reread_at:
            self._reread()
        return self._current

    @property
    def turn(self) -> trio.Lock:
        """The right to try credentials while there is trouble: one request at a time, in order."""
        return self._turn

    def note_accepted(self) -> None:
        """Take note that the server has let a request in: the trouble is over."""
        if self.troubled:
            _logger.info("The API server accepts the credentials again.")
        self.troubled = False
        self._refusals = 0
        self.accepted_count += 1

    def note_refused(self, used: Credentials) -> None:
        """Take note of a 401. It means trouble unless other credentials have replaced the refused ones meanwhile."""
        if used is self._current and not self.troubled:
            self.troubled = True
            _logger.warning("The API server does not accept the credentials (HTTP 401); reading them again.")

    async def back_off(self, refusal: UnauthorizedError) -> None:
        """Wait after a refusal, holding the turn. Raises LoginError where no credentials were ever accepted."""
        self._refusals += 1
        if not self.accepted_count and self._refusals >= _LOGIN_ATTEMPTS:
            raise LoginError(
                f"The API server at {self._current.info.server} does not accept the credentials: {refusal.message}"
            ) from refusal
        await trio.sleep(_REFUSAL_DELAYS[min(self._refusals, len(_REFUSAL_DELAYS)) - 1])

    def renew(self) -> None:
        """Read the credentials again; where that fails, keep those there are."""
        self._reread()

    async def aclose(self) -> None:
        """Drop all connections."""
        for exchange in (*self._retired, self._current.exchange):
            await exchange.aclose()

    def _reread(self) -> None:
        try:
            self._current = self._load(self._current)
        except ConfigError as exc:
            # A file that is being replaced may be half there: what works so far goes on working.
            _logger.warning("Cannot read the credentials again, going on with those there are: %s", exc)
            self._current.reread_at = trio.current_time() + _RETRY_AGE

    def _load(self, previous: Credentials | None) -> Credentials:
        """Ask the source, and keep the connections where nothing about them has changed."""
        info = self._source()
        headers = [(b"User-Agent", b"trioperator/" + __version__.encode())]
        authorization = info.authorization()
        if authorization is not None:
            headers.append((b"Authorization", authorization.encode("ascii")))
        material: Material | None = None
        base = parse_server(info.server).base
        if self._transport is not None:
            from trioperator.kube.bridge import HttpxExchange  # httpx is there already, by its transport

            exchange: Exchange = HttpxExchange(self._transport, origin=info.server)
        else:
            material = read_material(info)
            if previous is not None and previous.material == material and _same_way(previous.info, info):
                exchange = previous.exchange
            else:
                exchange = _open_exchange(info, material, trust_env=self._settings.networking.trust_env)
                if previous is not None:
                    replaced = [*self._retired, previous.exchange]
                    self._retired = [each for each in replaced if not each.retire()]
        credentials = Credentials(info, exchange=exchange, headers=headers, material=material, base=base)
        credentials.reread_at = _reread_at(info)
        return credentials


def _same_way(one: ConnectionInfo, other: ConnectionInfo) -> bool:
    """Tell whether two connections lead to the same place on the same way, their certificates aside."""
    return (one.server, one.tls_server_name, one.proxy_url, one.trust_env) == (
        other.server,
        other.tls_server_name,
        other.proxy_url,
        other.trust_env,
    )


def _reread_at(info: ConnectionInfo) -> float:
    now = trio.current_time()
    at = now + _MAX_AGE if info.paths else float("inf")
    if info.expiration is not None:
        expiration = info.expiration
        if expiration.tzinfo is None:
            expiration = expiration.replace(tzinfo=datetime.UTC)
        at = min(at, now + max(1.0, (expiration - wall_now()).total_seconds()))
    return at


def _open_exchange(info: ConnectionInfo, material: Material, *, trust_env: bool) -> Exchange:
    """Choose what carries the requests: httpx where there is a proxy, else the transport of our own."""
    server = parse_server(info.server)
    proxy_url = info.proxy_url or (_env_proxy(server.scheme, server.host) if info.trust_env or trust_env else None)
    if proxy_url:
        from trioperator.kube.bridge import open_proxy_exchange  # httpx is big, and few need a proxy

        return open_proxy_exchange(info, proxy_url)
    context = build_ssl_context(material) if server.scheme == "https" else None
    return HttpTransport(
        Origin(host=server.host, port=server.port, context=context, server_name=info.tls_server_name or server.host)
    )


def _env_proxy(scheme: str, host: str) -> str | None:
    """Give the proxy that the environment names for a host, if any."""
    from urllib.request import getproxies, proxy_bypass

    proxies = getproxies()
    if proxy_bypass(host):
        return None
    return proxies.get(scheme) or proxies.get("all")
