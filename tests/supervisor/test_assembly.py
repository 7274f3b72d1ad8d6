"""Tests for :mod:`trioperator._supervisor.assembly`: the parts of a reconciler go together."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

import trioperator
from tests.webhooks.admission import make_review, operating, sleeping_server
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.reviews.webhook_configuration import WebhookFn
from trioperator._kube.api_client import open_client
from trioperator._runtime.watching.index_gate import MissingIndices
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
        views = build_read_caches(plan, indices, invoker, MissingIndices())
        build_reconciling(plan, client, views, invoker=invoker, stopping=trio.Event())
    assert views.indexing.indices is indices
    assert set(indices) == {"by_name"}


async def test_reviews_have_as_many_threads_as_the_setting_says_and_the_others_wait(cluster: Cluster) -> None:
    registry, settings = trioperator.OperatorRegistry(), trioperator.OperatorSettings()
    settings.admission.max_workers = 3
    fns: list[WebhookFn] = []
    responses: list[Any] = []
    end = trio.Event()
    begun = 0

    def begin() -> None:
        nonlocal begun
        begun += 1

    @trioperator.on.validate("widgets", registry=registry)
    def check(**_: object) -> None:
        trio.from_thread.run_sync(begin)
        trio.from_thread.run(end.wait)

    async def ask() -> None:
        responses.append(await fns[0](make_review()))

    async with operating(cluster, registry, server=sleeping_server(fns), managed=None, settings=settings):
        with trio.fail_after(60):
            async with trio.open_nursery() as nursery:
                for _ in range(20):
                    nursery.start_soon(ask)
                while begun < 3:
                    await wait_all_tasks_blocked(0.01)
                await wait_all_tasks_blocked(0.1)
                assert begun == 3
                end.set()
    assert begun == len(responses) == 20
    assert all(each["response"]["allowed"] for each in responses)
