"""An operator, and its live view in memory."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

import trioperator
from tests.endpoints.live_view.client import Client
from tests.runtime.conftest import CRD, Bench
from trioperator.apiserver import Cluster

TOKEN = "the-token"
Showing = Callable[..., contextlib.AbstractAsyncContextManager[Client]]


@pytest.fixture
async def bench(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level("INFO")
    await cluster.apply(CRD)
    settings = trioperator.OperatorSettings()
    settings.posting.enabled = False
    return Bench(cluster, trioperator.OperatorRegistry(), settings)


@pytest.fixture
def showing(bench: Bench) -> Showing:
    """Return a function that runs an operator in a block, and yields a client of its live view, with its token."""

    @contextlib.asynccontextmanager
    async def showing(token: str | None = TOKEN, **options: Any) -> AsyncIterator[Client]:
        view = trioperator.live_view_app(token=token)
        async with bench.running(live_view_app=view, standalone=True, **options):
            yield Client(view, token=token)

    return showing
