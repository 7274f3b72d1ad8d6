"""Objects without a uid, as some aggregated APIs have them: they are handled like others, but cannot own others."""

from __future__ import annotations

from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import config_map, names_of
from tests.rewriting import WITHOUT_UIDS, Rewriting
from tests.runtime.conftest import Bench, settle, widget

on = trioperator.on


async def test_changes_are_handled_and_written_to_the_status(bench: Bench, autojump_clock: MockClock) -> None:
    called: list[tuple[object, str | None]] = []

    @on.create("widgets", registry=bench.registry)
    @on.update("widgets", registry=bench.registry)
    @on.delete("widgets", registry=bench.registry)
    async def handle(reason: object, name: str | None, patch: Any, **_: object) -> None:
        called.append((str(reason), name))
        patch.status["seen"] = str(reason)

    async with bench.running(transport=Rewriting(bench.cluster.transport(), WITHOUT_UIDS, plural="widgets")):
        await bench.cluster.create(widget("a"))
        await bench.cluster.create(widget("b"))
        await settle(5)
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(5)
        assert (await bench.cluster.get("widgets", "a"))["status"]["seen"] == "update"
        assert (await bench.cluster.get("widgets", "b"))["status"]["seen"] == "create"
        await bench.cluster.delete("widgets", "a")
        await settle(5)
    assert sorted(called) == [("create", "a"), ("create", "b"), ("delete", "a"), ("update", "a")]
    assert [each["metadata"]["name"] for each in await bench.cluster.list("widgets")] == ["b"]


async def test_children_of_an_object_without_a_uid_are_an_error_that_is_reported_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.reconcile("widgets", owns=["configmaps"], registry=bench.registry)
    async def reconcile(name: str) -> Any:
        return [config_map("x")] if name == "parent" else []

    async with bench.running(transport=Rewriting(bench.cluster.transport(), WITHOUT_UIDS, plural="widgets")):
        await bench.cluster.create(widget("parent"))
        await bench.cluster.create(widget("childless"))
        await settle(3600)
    assert await names_of(bench.cluster) == []
    assert caplog.text.count("its object has no metadata.uid") == 1
    assert not [record for record in caplog.records if record.exc_info]
