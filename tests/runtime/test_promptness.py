"""The event loop never sleeps by itself, not even under load: whoever waits for it is served at once."""

from __future__ import annotations

import contextlib
import select
import sys
import time
import types
from collections.abc import Iterator
from typing import Any

import trio

import trioperator
from tests.runtime.conftest import CRD, widget
from tests.webhooks.admission import MANAGED
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.testing import eventually

on = trioperator.on
OBJECTS, CHANGES, REQUESTS = 20, 4, 20


@contextlib.contextmanager
def noting_sleeps() -> Iterator[list[str]]:
    """Note where the thread of the event loop sleeps in the block, instead of waiting for I/O and deadlines."""
    found: list[str] = []

    def note(frame: types.FrameType, event: str, function: Any) -> None:
        if event == "c_call" and function in (time.sleep, select.select):
            found.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(before)


async def test_nothing_sleeps_while_requests_a_review_and_a_renewal_wait(cluster: Cluster) -> None:
    """A storm of events is handled beside a handler with requests in a row, a review for each write, and a lease."""
    registry, settings = trioperator.OperatorRegistry(), trioperator.OperatorSettings()
    done, events, reviews = trio.Event(), list[str](), list[str]()

    @on.create("widgets", labels={"lone": "yes"}, registry=registry)
    async def lone(name: str, client: trioperator.Client, **_: Any) -> None:
        for _request in range(REQUESTS):
            await client.get("widgets", name)
        done.set()

    @on.event("widgets", registry=registry)
    async def storm(name: str, **_: Any) -> None:
        events.append(name)

    @on.validate("widgets", registry=registry)
    async def check(name: str, **_: Any) -> None:
        reviews.append(name)

    def count_renewals() -> int:
        return sum(request.method == "PUT" and "/leases/" in request.path for request in cluster.requests)

    settings.posting.enabled = False
    settings.leadership.enabled, settings.leadership.namespace, settings.leadership.retry_period = True, "default", 0.05
    settings.admission.server, settings.admission.managed = trioperator.WebhookServer(), MANAGED
    await cluster.apply(CRD)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, cluster)

        async def operate(*, task_status: trio.TaskStatus[None]) -> None:
            await trioperator.operator(
                registry=registry,
                settings=settings,
                standalone=True,
                handle_signals=False,
                connection=trioperator.ConnectionInfo(server=str(url)),
                task_status=task_status,
            )

        async def change(number: int) -> None:
            await cluster.create(widget(f"w{number}"))
            for size in range(CHANGES):
                await cluster.patch("widgets", f"w{number}", {"spec": {"size": size + 10}})

        await nursery.start(operate)
        renewals = count_renewals()
        with trio.fail_after(60), noting_sleeps() as sleeps:
            async with trio.open_nursery() as changes:
                for number in range(OBJECTS):
                    changes.start_soon(change, number)
                body = widget("lone")
                body["metadata"]["labels"] = {"lone": "yes"}
                await cluster.create(body)
            await done.wait()
            await eventually(lambda: count_renewals() > renewals)
        nursery.cancel_scope.cancel()
    assert len(reviews) == OBJECTS * (1 + CHANGES) + 2  # the operator itself writes once
    assert len(events) > OBJECTS
    assert not sleeps
