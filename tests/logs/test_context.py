"""Tests for :mod:`trioperator._logs.context`: records of users' own loggers while an object is handled."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.logs.conftest import Stream, read_json
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._logs import LogFormat, configure
from trioperator.apiserver import Cluster

mine = logging.getLogger("mine.app")


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


def declare(registry: trioperator.OperatorRegistry) -> None:
    """Declare handlers of all sorts, which log with a logger of their own."""

    @trioperator.on.startup(registry=registry)
    def startup(**_: Any) -> None:
        mine.info("startup")

    @trioperator.on.event("widgets", registry=registry)
    async def event(**_: Any) -> None:
        mine.info("event")

    @trioperator.index("widgets", registry=registry)
    async def index(**_: Any) -> None:
        mine.info("index")

    @trioperator.on.create("widgets", registry=registry)
    async def create(**_: Any) -> None:
        async def task() -> None:
            mine.info("task")

        async with trio.open_nursery() as nursery:
            nursery.start_soon(task)

        @trioperator.subhandler(id="sub")
        def sub(**_: Any) -> None:
            mine.info("thread of a sub-handler")

    @trioperator.daemon("widgets", registry=registry)
    async def daemon(**_: Any) -> None:
        mine.info("daemon")

    @trioperator.timer("widgets", interval=1000, registry=registry)
    def timer(**_: Any) -> None:
        mine.info("timer")


async def test_messages_of_users_own_loggers_name_the_object_that_is_handled(
    bench: Bench, autojump_clock: MockClock, stream: Stream
) -> None:
    configure(log_format=LogFormat.JSON)
    declare(bench.registry)
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        mine.info("outside")
    refs = {entry["message"]: entry.get("object") for entry in read_json(stream) if "mine" not in entry}
    uid = (await bench.cluster.get("widgets", "w"))["metadata"]["uid"]
    ref = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": uid, "namespace": "default"}
    for message in ("event", "index", "task", "thread of a sub-handler", "daemon", "timer"):
        assert refs[message] == ref
    assert refs["startup"] is None
    assert refs["outside"] is None
    assert refs["The operator is ready."] is None


async def test_messages_in_a_handler_and_about_it_name_the_handler(
    bench: Bench, autojump_clock: MockClock, stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    configure(log_format=LogFormat.JSON)
    caplog.set_level("INFO")
    declare(bench.registry)

    @trioperator.on.update("widgets", registry=bench.registry)
    async def update(logger: trioperator.ObjectLogger, retry: int, **_: Any) -> None:
        logger.info("updated", size=2)
        mine.info("bound otherwise", extra={"handler": "mine"})
        if not retry:
            raise trioperator.TemporaryError("later", delay=1)

    @trioperator.on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(**_: Any) -> Any:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        mine.info("outside")
    entries = [{**entry, "handler": (entry.get("handler") or "").rpartition(".")[2]} for entry in read_json(stream)]
    handlers = {re.sub(r"'[^']*\.", "'", entry["message"], count=1): entry["handler"] for entry in entries}
    expected = {
        "startup": "startup",
        "event": "event",
        "index": "index",
        "task": "create",
        "thread of a sub-handler": "create/sub",
        "daemon": "daemon",
        "timer": "timer",
        "updated": "update",
        "bound otherwise": "mine",
        "Handler 'update' failed temporarily: later (will try again in 1 seconds)": "update",
        "Handler 'update' succeeded.": "update",
        "ConfigMap default/c is applied.": "reconcile",
        "Updating is processed: 1 succeeded; 0 failed.": "",
        "outside": "",
    }
    assert {message: handlers.get(message, "missing") for message in expected} == expected
    updated = next(record for record in caplog.records if record.message.startswith("updated"))
    assert vars(updated)["k8s_handler"].endswith(".update")


async def test_messages_of_users_own_loggers_have_the_prefix_of_the_object(
    bench: Bench, autojump_clock: MockClock, stream: Stream
) -> None:
    configure(log_format=LogFormat.PLAIN, log_prefix=True)

    @trioperator.on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        mine.info("created")
        mine.info("bound otherwise", extra={"k8s_ref": {"name": "other", "namespace": None}})

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    lines = stream.getvalue().splitlines()
    assert "[default/w] created" in lines
    assert "[other] bound otherwise" in lines
