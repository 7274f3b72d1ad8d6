"""Webhook servers on asyncio, for operators that were written for Kopf, and the servers that these may call.

Servers of this package yield the Services that they are behind, and Kopf's yield URLs. What such servers make of these
is converted back: many operators replace a URL with their Service, because an API server need not resolve its name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

import trio

import trioperator
from trioperator._webhooks.server import find_service
from trioperator.kopf.bridge import current_loop, is_in_asyncio

#: The servers that operators can call, or derive their own from.
NAMES: Final = frozenset(
    {
        "WebhookAutoServer",
        "WebhookAutoTunnel",
        "WebhookDockerDesktopServer",
        "WebhookK3dServer",
        "WebhookMinikubeServer",
        "WebhookNgrokTunnel",
        "WebhookServer",
    }
)
_URL: Final = re.compile("https://([^/:]+)(?::([0-9]+))?(.*)")
# Seconds that leaving a server's context manager may take, even after cancellation.
_EXIT_TIMEOUT: Final = 5.0


def adapt_server(server: Any) -> Any:
    """Return a server on Trio for an asyncio server. None and servers of this package are returned as they are."""
    if server is None or type(server).__module__.partition(".")[0] == "trioperator":
        return server
    return _ManagedServer(server) if hasattr(server, "__aenter__") else _Server(server)


def _forwarded(name: str) -> Any:
    """Return a property that is an attribute of the adapted server, if that is derived from one of this package."""
    return property(lambda self: getattr(self.server, name), lambda self, value: setattr(self.server, name, value))


class _Server:
    """Adapter of a server on asyncio, to be called on Trio."""

    is_draining = _forwarded("is_draining")
    replace_authority = _forwarded("replace_authority")

    def __init__(self, server: Any) -> None:
        self.server = server

    def __repr__(self) -> str:
        return repr(self.server)

    async def inspect_cluster(self, client: Any) -> None:
        """Call ``inspect_cluster()`` of a server that is derived from one of this package."""
        if hasattr(self.server, "inspect_cluster"):
            await self.server.inspect_cluster(client)

    async def __call__(self, fn: Any) -> AsyncIterator[Mapping[str, Any]]:
        """Serve reviews by *fn*; yield the addresses."""
        loop = current_loop.get()

        async def call(request: Any, **hints: Any) -> Any:
            current_loop.set(loop)  # in the context of this call: an asyncio task's may be anything
            return await fn(request, **hints)

        async def review(request: Any, **hints: Any) -> Any:
            return await loop.start(functools.partial(call, request, **hints))

        addresses = aiter(self.server(review))
        try:
            while (address := await loop.run(functools.partial(anext, addresses, None))) is not None:
                yield _name_service(address)
        except GeneratorExit:
            await loop.run(addresses.aclose)
            raise


class _ManagedServer(_Server):
    """Adapter of a server on asyncio that is also a context manager."""

    async def __aenter__(self) -> Any:
        entered = await current_loop.get().run(self.server.__aenter__)
        return self if entered is None or entered is self.server else adapt_server(entered)

    async def __aexit__(self, *error: Any) -> Any:
        with trio.move_on_after(_EXIT_TIMEOUT, shield=True):
            return await current_loop.get().run(functools.partial(self.server.__aexit__, *error))
        return None


def _for_both(name: str) -> Any:
    """Return the class of a server that can be called on Trio and on asyncio."""
    cls: Any = getattr(trioperator, name)

    def call(self: Any, fn: Any) -> AsyncIterator[Mapping[str, Any]]:
        """Serve reviews by *fn*; yield the addresses."""
        return _iterate(functools.partial(cls.__call__, self), fn) if is_in_asyncio() else cls.__call__(self, fn)

    async def enter(self: Any) -> Any:
        """Return the server: derived ones may do more."""
        return self

    async def leave(self: Any, *error: object) -> None:
        """Do nothing: derived servers may do more."""

    members: dict[str, Any] = {"__call__": call, "__aenter__": enter, "__aexit__": leave}
    members |= {"__doc__": cls.__doc__, "__module__": __name__}
    return type(name, (cls,), members | {"CERTFILE_IS_CA": True})


async def _iterate(serve: Any, fn: Any) -> AsyncIterator[Mapping[str, Any]]:
    """Call a server of this package on asyncio, for an asyncio function."""
    loop = current_loop.get(None)
    if loop is None:
        raise RuntimeError("Kopf's webhook servers can be called only while an operator runs: they need its loop.")

    async def review(request: Any, **hints: Any) -> Any:
        return await loop.run(functools.partial(fn, request, **hints))

    addresses = serve(review)
    try:
        while (address := await loop.start(functools.partial(_anext, addresses))) is not None:
            yield _name_url(address)
    except GeneratorExit:
        await loop.start(addresses.aclose)
        raise


def _name_url(address: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an address with the URL of its Service in place of the Service."""
    service = address.get("service")
    if not service:
        return address
    url = f"https://{service['name']}.{service['namespace']}.svc:{service['port']}{service.get('path') or ''}"
    return {**{key: value for key, value in address.items() if key != "service"}, "url": url}


def _name_service(address: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an address with the Service in place of its URL."""
    found = _URL.fullmatch(address.get("url") or "")
    service = found and find_service(found[1], int(found[2] or 443), found[3])
    return {**address, "url": None, "service": service} if service and not address.get("service") else address


async def _anext(addresses: Any) -> Any:
    return await anext(addresses, None)


WebhookAutoServer: Any = _for_both("WebhookAutoServer")
WebhookAutoTunnel: Any = _for_both("WebhookAutoTunnel")
WebhookDockerDesktopServer: Any = _for_both("WebhookDockerDesktopServer")
WebhookK3dServer: Any = _for_both("WebhookK3dServer")
WebhookMinikubeServer: Any = _for_both("WebhookMinikubeServer")
WebhookNgrokTunnel: Any = _for_both("WebhookNgrokTunnel")
WebhookServer: Any = _for_both("WebhookServer")
