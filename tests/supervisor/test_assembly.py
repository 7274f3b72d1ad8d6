"""Tests for :mod:`trioperator._supervisor.assembly`: the parts of a reconciler go together."""

from __future__ import annotations

import trio

import trioperator
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._kube.api_client import open_client
from trioperator._runtime.watching.scope import Scope
from trioperator._supervisor.assembly import build_read_caches, build_reconciling
from trioperator._supervisor.plan import Plan
from trioperator.apiserver import Cluster


async def test_the_indices_of_the_operator_are_those_of_the_reconciler(cluster: Cluster) -> None:
    registry = trioperator.OperatorRegistry()

    @trioperator.index("widgets", registry=registry)
    async def by_name(name: str, **_: object) -> str:
        return name

    info = trioperator.ConnectionInfo(server="http://embedded")
    plan = Plan(
        registry=registry,
        settings=trioperator.OperatorSettings(),
        memo=None,
        scope=Scope(),
        connection=info,
        identity="me",
    )
    indices = registry.make_indices()
    async with open_client(lambda: info, settings=plan.settings, transport=cluster.transport()) as client:
        invoker = Invoker(limiter=ThreadLimiter(1), backoff=1)
        views = build_read_caches(plan, indices, invoker)
        build_reconciling(plan, client, views, invoker=invoker, stopping=trio.Event())
    assert views.indexing.indices is indices
    assert set(indices) == {"by_name"}
