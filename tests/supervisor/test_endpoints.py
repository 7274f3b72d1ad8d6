"""What an operator serves about itself, and when."""

from __future__ import annotations

import re
import socket
from typing import Any

import httpx
import pytest
import trio

import trioperator
from tests.endpoints.plain_client import get
from tests.runtime.conftest import Bench
from trioperator.apiserver import Cluster
from trioperator.errors import ConfigError

on = trioperator.on
OPTIONS: dict[str, Any] = {"health_endpoint": "http://127.0.0.1:0/", "metrics_endpoint": "http://127.0.0.1:0/metrics"}


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


async def test_they_are_served_from_before_the_startup_until_after_the_cleanup(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    found: list[int] = []

    async def ask_all() -> None:
        found.extend([(await get(url))[0] for url in find_urls(caplog)])

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        await ask_all()

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        await ask_all()

    async with bench.running(**OPTIONS):
        pass
    assert found == [200, 200] * 2
    for url in find_urls(caplog):
        with pytest.raises(httpx.ConnectError):
            await get(url)


def find_urls(caplog: pytest.LogCaptureFixture) -> list[str]:
    return re.findall(r"Serving (?:health checks|metrics) at (\S+)", caplog.text)


@pytest.mark.parametrize("name", OPTIONS)
async def test_an_operator_does_not_start_if_it_cannot_serve_them(name: str, bench: Bench) -> None:
    started: list[bool] = []

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        started.append(True)

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="Cannot listen"), trio.fail_after(30):
            options: dict[str, Any] = {name: f"http://127.0.0.1:{taken.getsockname()[1]}/"}
            await trioperator.operator(
                registry=bench.registry, transport=bench.cluster.transport(), handle_signals=False, **options
            )
    assert started == []
