"""HTTP client for webhooks: their addresses, verification of their certificates, errors of calls.

httpx is imported with the first call. Each call has a connection of its own: a cluster in memory may be dropped without
being closed. An in-memory transport can replace the network, so that virtual time works.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import trio

from trioperator._http.opened_sockets import OpenedSockets

from ..model.client_config import ClientConfig
from ..model.json_text import decode_json

if TYPE_CHECKING:
    import httpx

_HEADERS: Final = {
    "Accept": "application/json, */*",
    "Content-Type": "application/json",
    "User-Agent": "kube-apiserver-admission",
}
_LOCAL: Final = frozenset({"127.0.0.1", "::1", "localhost"})  # never reached through a proxy
_TEXTS: Final[Mapping[int, str]] = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_UNTRUSTED: Final = frozenset({18, 19, 20, 21})  # OpenSSL's codes for who is vouched for by nobody who is known
_MISMATCH: Final = frozenset({62, 64})


class WebhookCallError(Exception):
    """Raised when a call of a webhook fails."""


class WebhookClient:
    """The way to the webhooks of one cluster.

    ``services`` tells where services are: URLs by ``namespace/name``. ``transports`` are asked in the place of the
    network for URLs of their host; services are hosts of the form ``name.namespace.svc``.
    """

    def __init__(
        self,
        *,
        services: Mapping[str, str] | None = None,
        transports: Mapping[str, httpx.AsyncBaseTransport] | None = None,
    ) -> None:
        self._services = dict(services or {})
        self.transports = dict(transports or {})
        self._clients: dict[tuple[str, str], httpx.AsyncClient] = {}
        self._calls = 0  # at this moment

    async def post(self, config: ClientConfig, content: bytes, *, timeout: float, query: str = "") -> Any:
        """Send JSON and return the JSON of the response. Raises WebhookCallError."""
        shown = url_of(config) + query
        url, server_name = self._place(config, shown)
        client = self._client(config.ca_bundle, urlsplit(url).hostname or "")
        self._calls += 1
        sockets = OpenedSockets()
        request = _request(url, content, host=urlsplit(shown).netloc, server_name=server_name)
        request.extensions["trace"] = sockets.trace
        try:
            with sockets, trio.fail_after(timeout):
                response = await client.send(request)
        except trio.TooSlowError:
            raise WebhookCallError(f'failed to call webhook: Post "{shown}": context deadline exceeded') from None
        except Exception as error:
            raise WebhookCallError(f'failed to call webhook: Post "{shown}": {_explain(error, url)}') from error
        finally:
            self._calls -= 1
        return _content_of(response)

    async def aclose(self) -> None:
        """Close the clients. Does nothing during calls."""
        if self._calls:
            return
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def _place(self, config: ClientConfig, shown: str) -> tuple[str, str]:
        """Return the URL to call, and the name that the certificate must have if it is not the URL's."""
        parts = urlsplit(shown)
        if not config.service or parts.hostname in self.transports:
            return shown, ""
        known = self._services.get(config.service)
        if known is None:
            name = config.service.partition("/")[2]
            text = (
                f'service "{name}" not found: Cluster(services={{"{config.service}": "https://..."}}) tells where it is'
            )
            raise WebhookCallError(f'failed to call webhook: Post "{shown}": {text}')
        return f"{known.rstrip('/')}{parts.path}?{parts.query}".rstrip("?"), parts.hostname or ""

    def _client(self, ca_bundle: str, host: str) -> httpx.AsyncClient:
        import httpx

        transport = self.transports.get(host)
        is_local = host in _LOCAL
        key = (host, "") if transport is not None else ("local" if is_local else "", ca_bundle)
        client = self._clients.get(key)
        if client is None:
            if transport is not None:
                client = httpx.AsyncClient(transport=_borrow(transport), timeout=None)
            else:
                limits = httpx.Limits(max_keepalive_connections=0)
                context = _make_context(ca_bundle)
                client = httpx.AsyncClient(verify=context, timeout=None, trust_env=not is_local, limits=limits)
            self._clients[key] = client
        return client


def _request(url: str, content: bytes, *, host: str, server_name: str) -> httpx.Request:
    """Return a request whose body is not a generator: an unfinished one would be garbage-collected with a warning."""
    import httpx

    class Body(httpx.AsyncByteStream):
        def __init__(self) -> None:
            self._left = [content]

        def __aiter__(self) -> Body:
            return self

        async def __anext__(self) -> bytes:
            if not self._left:
                raise StopAsyncIteration
            return self._left.pop()

    headers = {**_HEADERS, "Host": host, "Content-Length": str(len(content))}
    extensions = {"sni_hostname": server_name} if server_name else {}
    return httpx.Request("POST", url, stream=Body(), headers=headers, extensions=extensions)


def _borrow(transport: httpx.AsyncBaseTransport) -> httpx.AsyncBaseTransport:
    """Return a wrapper of the transport that does not close it."""
    import httpx

    class Borrowed(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            return await transport.handle_async_request(request)

    return Borrowed()


def url_of(config: ClientConfig) -> str:
    """Return the URL of the webhook, as messages show it."""
    if config.service:
        namespace, _, name = config.service.partition("/")
        place, path = f"https://{name}.{namespace}.svc:{config.port}", config.path
    else:
        parts = urlsplit(config.url)
        place, path = f"{parts.scheme}://{parts.netloc}", parts.path
    return place + posixpath.normpath(f"/{path.strip('/')}")


def _make_context(ca_bundle: str) -> ssl.SSLContext:
    """Return a TLS context that trusts the CA bundle only, or the CAs of the machine without one."""
    try:
        data = base64.b64decode(ca_bundle).decode("ascii")
        context = ssl.create_default_context(cadata=data or None)
    except (ssl.SSLError, binascii.Error, ValueError):
        raise WebhookCallError(
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
        ) from None
    if data:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # each certificate in the bundle is trusted, as in Go
    if hasattr(ssl, "VERIFY_X509_STRICT"):
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # the real server is less strict about CA certificates
    return context


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from _causes(inner)
    following = error.__cause__ or error.__context__
    if following is not None:
        yield from _causes(following)


def _explain(error: BaseException, url: str) -> str:
    """Return the message for a failed request, as the real server words it where it can."""
    parts = urlsplit(url)
    place = f"{parts.hostname}:{parts.port or 443}"
    for cause in _causes(error):
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"tls: failed to verify certificate: x509: {_explain_certificate(cause)}"
        if isinstance(cause, ConnectionRefusedError):
            return f"dial tcp {place}: connect: connection refused"
        if isinstance(cause, socket.gaierror):
            return f"dial tcp: lookup {parts.hostname}: no such host"
    return str(error) or type(error).__name__


def _explain_certificate(error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _UNTRUSTED:
        return "certificate signed by unknown authority"
    if error.verify_code in _MISMATCH:
        return f"certificate is not valid for the name: {error.verify_message}"
    return error.verify_message


def _content_of(response: httpx.Response) -> Any:
    """Return the JSON of a successful response. Raises WebhookCallError for others."""
    content, status = response.content, response.status_code
    media = response.headers.get("content-type", "application/json")
    if not 200 <= status <= 206:
        raise WebhookCallError(f"failed to call webhook: {_error_text(status, media, content)}")
    if not content:
        text = f"0-length response with status code: {status} and content type: {media}"
        raise WebhookCallError(f"failed to call webhook: {text}")
    try:
        return decode_json(content)
    except ValueError as error:
        text = f"couldn't get version/kind; json parse error: {error}"
        raise WebhookCallError(f"failed to call webhook: {text}") from None


def _error_text(status: int, media: str, content: bytes) -> str:
    try:
        told = decode_json(content)
    except ValueError:
        told = None
    if isinstance(told, dict) and told.get("kind") == "Status" and told.get("message"):
        return str(told["message"])
    text = content.decode(errors="replace").strip() if media.startswith("text/") else "unknown"
    if status in {403, 406, 415}:
        return text
    if status in _TEXTS:
        return _TEXTS[status]
    if status >= 500:
        return f'an error on the server ("{text}") has prevented the request from succeeding'
    return f"the server responded with the status code {status} but did not return more information"
