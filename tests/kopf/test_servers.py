"""Webhook servers on asyncio. How they serve is tested by scenarios: see ``test_bridge.py``."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import pathlib
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trustme

import trioperator
from tests.webhooks.serving import write_pair
from trioperator.errors import ConfigError
from trioperator.kopf import names, servers
from trioperator.kopf.host import open_loop
from trioperator.kopf.servers import adapt_server
from trioperator.kopf.settings import OperatorSettings


async def serve(fn: Any) -> AsyncIterator[Any]:
    yield {}


async def nothing(*_: Any, **__: Any) -> Any: ...


class Managed:
    def __call__(self, fn: Any) -> Any: ...
    async def __aenter__(self) -> Managed:
        return self

    async def __aexit__(self, *_: object) -> None: ...


def test_servers_of_this_package_run_on_trio() -> None:
    for server in (None, servers.WebhookServer(), trioperator.WebhookServer(), adapt_server(serve)):
        assert adapt_server(server) is server


def test_other_servers_run_on_asyncio() -> None:
    derived: Any = type("Derived", (servers.WebhookServer,), {"__module__": "app"})
    for server in (serve, Managed(), derived()):
        adapted = adapt_server(server)
        assert adapted.server is server
        assert repr(adapted) == repr(server)
        assert hasattr(adapted, "__aenter__") == hasattr(server, "__aenter__")


def test_derived_servers_are_told_what_servers_of_this_package_are_told() -> None:
    derived: Any = type("Derived", (servers.WebhookServer,), {"__module__": "app"})
    server, told = derived(), object()
    adapted = adapt_server(server)
    for name in ("is_draining", "replace_authority"):
        assert hasattr(adapted, name)
        setattr(adapted, name, told)
        assert getattr(server, name) is told
        assert not hasattr(adapt_server(serve), name)


async def test_derived_servers_may_extend_the_context_manager_of_kopf() -> None:
    steps: list[str] = []

    class Derived(servers.WebhookServer):  # type: ignore[misc]  # it is Any
        async def __aenter__(self) -> Any:
            steps.append("enter")
            return await super().__aenter__()

        async def __aexit__(self, *error: object) -> None:
            steps.append("leave")
            await super().__aexit__(*error)

    server = adapt_server(Derived())
    async with open_loop(), server as entered:
        assert entered is server
    assert steps == ["enter", "leave"]


def test_servers_of_kopf_can_be_called_in_both_worlds() -> None:
    kopf: Any = names.make_modules()["kopf"]
    for name in sorted(servers.NAMES):
        cls = getattr(kopf, name)
        assert issubclass(cls, getattr(trioperator, name))
        assert cls is getattr(servers, name)
        assert (cls.__name__, cls.__doc__) == (name, getattr(trioperator, name).__doc__)
    assert kopf.WebhookFn is trioperator.WebhookFn
    with pytest.raises(AttributeError):
        _ = kopf.WebhookNothing


def test_servers_of_kopf_say_that_they_need_an_operator() -> None:
    async def serve() -> None:
        async for _ in servers.WebhookServer()(serve):
            raise AssertionError

    with pytest.raises(RuntimeError, match="only while an operator runs"):
        asyncio.run(serve())


def test_settings_adapt_their_server() -> None:
    settings = OperatorSettings()
    settings.admission.server = serve
    assert settings.admission.server.server is serve
    assert settings.copy().admission.server is settings.admission.server
    settings.admission.server = None
    assert settings.admission.server is None
    with pytest.raises(ConfigError, match=r"settings\.admission\.server is 5, but it must be"):
        settings.admission.server = 5


@pytest.mark.parametrize(
    ("service", "url"),
    [
        ({"namespace": "prod", "name": "hooks", "port": 9443}, "https://hooks.prod.svc:9443"),
        ({"namespace": "prod", "name": "hooks", "port": 443, "path": "/in/it"}, "https://hooks.prod.svc:443/in/it"),
    ],
)
async def test_servers_on_asyncio_see_the_url_of_a_service_and_name_the_service(
    service: dict[str, object], url: str
) -> None:
    seen: list[Any] = []

    async def serve_service(fn: Any) -> AsyncIterator[Any]:
        yield {"caBundle": "CA", "service": service}

    async def pass_on(fn: Any) -> AsyncIterator[Any]:
        async for address in servers._iterate(serve_service, fn):
            seen.append(address)
            yield address

    async with open_loop(), contextlib.aclosing(adapt_server(pass_on)(nothing)) as addresses:
        address = await anext(addresses)
    assert seen == [{"caBundle": "CA", "url": url}]
    assert address == {"caBundle": "CA", "url": None, "service": service}


@pytest.mark.parametrize(
    "address",
    [
        {"url": "http://hooks.prod.svc:9443"},
        {"url": "https://hooks.prod.svc.cluster.local:9443"},
        {"url": "https://tunnel.example.com"},
        {"url": None, "service": {"namespace": "prod", "name": "hooks", "port": 9443}},
        {},
    ],
)
async def test_servers_on_asyncio_yield_other_addresses_as_they_are(address: dict[str, object]) -> None:
    async def serve_it(fn: Any) -> AsyncIterator[Any]:
        yield address

    async with open_loop(), contextlib.aclosing(adapt_server(serve_it)(nothing)) as addresses:
        assert await anext(addresses) == address


@pytest.mark.parametrize("is_kopf", [True, False], ids=["kopf", "native"])
async def test_a_certificate_without_a_ca_is_trusted_itself_as_in_kopf(tmp_path: pathlib.Path, is_kopf: bool) -> None:
    options = write_pair(tmp_path, trustme.CA())
    del options["cafile"]
    server = (servers if is_kopf else trioperator).WebhookServer(**options)
    async with trio.open_nursery() as nursery, contextlib.aclosing(server(nothing)) as addresses:
        address = await anext(addresses)
        nursery.cancel_scope.cancel(reason="the test")
    expected = base64.b64encode((tmp_path / "cert.pem").read_bytes()).decode() if is_kopf else None
    assert address.get("caBundle") == expected
