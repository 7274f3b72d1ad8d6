"""The page of the client: its snippets run."""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.client.conftest import CONNECTION, deployment
from trioperator.apiserver import Cluster
from trioperator.client import Client, SyncClient

PAGE = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
SNIPPETS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
HANDLERS = [snippet for snippet in SNIPPETS if snippet.startswith("@") and "kubernetes." not in snippet]
CALLS = [snippet for snippet in SNIPPETS if not snippet.startswith("@")]
POD: dict[str, Any] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "busybox"}]},
}


@pytest.fixture
async def prepared(cluster: Cluster) -> AsyncIterator[Cluster]:
    """Return a cluster with what the snippets are about."""
    await cluster.create({"apiVersion": "v1", "kind": "Pod", **POD, "metadata": {"name": "web-0", **POD["metadata"]}})
    await cluster.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}})
    await cluster.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}})
    await cluster.create(deployment("web"))
    template = {**POD, "spec": {**POD["spec"], "restartPolicy": "Never"}}
    await cluster.create(
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "backup"}, "spec": {"template": template}}
    )
    async with cluster.open_controllers():
        yield cluster


def test_there_are_snippets() -> None:
    assert len(HANDLERS) == 2
    assert len(CALLS) >= 6


@pytest.mark.parametrize("snippet", CALLS, ids=lambda snippet: snippet.split("\n")[0])
async def test_a_snippet_runs(
    prepared: Cluster, client: Client, snippet: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(
        trioperator,
        "open_client",
        lambda: trioperator.client.open_client(connection=CONNECTION, transport=prepared.transport()),
    )
    code = compile(snippet, "docs/client.md", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    with trio.fail_after(600):
        result = eval(code, {"client": client, "trioperator": trioperator, "json": json})
        if inspect.isawaitable(result):
            await result


@pytest.mark.parametrize("snippet", HANDLERS, ids=["async", "sync"])
async def test_a_handler_runs(prepared: Cluster, client: Client, snippet: str, autojump_clock: MockClock) -> None:
    functions: dict[str, Any] = {"trioperator": trioperator}
    registry = trioperator.get_default_registry()
    trioperator.set_default_registry(trioperator.OperatorRegistry())
    try:
        exec(compile(snippet, "docs/client.md", "exec"), functions)
    finally:
        trioperator.set_default_registry(registry)
    if "deploy" in functions:
        await functions["deploy"](spec={"image": "busybox"}, name="shop", client=client)
        assert (await prepared.get("deployments", "shop", "default"))["status"]["availableReplicas"] == 1
    else:
        sync = SyncClient(client)
        await trioperator.threads.run_in_thread(
            lambda: functions["configure"](name="shop", client=sync), limiter=trio.CapacityLimiter(1)
        )
        assert await prepared.get("configmaps", "shop", "default")
