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
