"""Tests for :mod:`trioperator._runtime.watching.watch_set`: one watch for all who read the same objects."""

from __future__ import annotations

import logging
import sys
import types
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.watching.conftest import crd, labelled, thing, warnings, watch
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


async def test_a_list_that_hangs_holds_up_neither_the_start_nor_kinds_that_are_added_later(
    bench: Bench, autojump_clock: MockClock
) -> None:
    watch(bench, "widgets")
    seen = watch(bench, "things")
    plan = FaultPlan()
    plan.add(Fault.stall(), path="/widgets")
    began = trio.current_time()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        assert trio.current_time() - began < 20
        await bench.cluster.apply(crd("things", "Thing"))
        await bench.cluster.create(thing("Thing"))
        await settle(10)
        assert seen == ["things.v1.later.example.com t"]


async def test_only_objects_that_the_settings_select_are_sent(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.apply(labelled("before", tier="gold"))
    await bench.cluster.apply(labelled("foreign", tier="silver"))
    bench.settings.watching.label_selectors["example.com", "widgets"] = "tier=gold"
    bench.settings.watching.field_selectors["widgets"] = "metadata.name!=hidden"
    seen = watch(bench, "widgets")
    others = watch(bench, "gadgets")
    async with bench.running():
        await bench.cluster.apply(labelled("after", tier="gold"))
        await bench.cluster.apply(labelled("hidden", tier="gold"))
        await bench.cluster.apply(labelled("late", tier="silver"))
        await bench.cluster.apply(widget("g", kind="Gadget"))
        await settle(1)
    assert seen == ["widgets.v1.example.com before", "widgets.v1.example.com after"]
    assert others == ["gadgets.v1.example.com g"]


@pytest.mark.parametrize(("name", "value"), [("field_selectors", "spec.nothing=x"), ("shard_selectors", None)])
async def test_a_selector_that_the_server_rejects_ends_the_operator_at_its_start(
    bench: Bench, autojump_clock: MockClock, name: str, value: str | None
) -> None:
    plan = FaultPlan()
    if value is None:  # as of a server that knows other ranges only
        value = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
        plan.add(Fault.status(500, message="invalid shard selector"), path="/widgets")
    getattr(bench.settings.watching, name)["widgets"] = value
    watch(bench, "widgets")
    rejected = r"The API server rejects the selectors of settings\.watching for /apis/example\.com/v1/widgets, "
    with pytest.RaisesGroup(pytest.RaisesExc(trioperator.ConfigError, match=rejected)):
        async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
            pass


async def test_selectors_for_kinds_that_are_not_there_are_warned_of(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.watching.label_selectors["widgts"] = "a=b"
    bench.settings.watching.field_selectors["widgets"] = "metadata.name=x"
    bench.settings.watching.shard_selectors[trioperator.EVERYTHING] = (
        "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    )
    watch(bench, "widgets")
    async with bench.running():
        pass
    assert warnings(caplog, "settings.watching") == [
        "settings.watching.label_selectors has a selector for widgts, but no kind with handlers is known by that name."
    ]


async def test_an_object_that_leaves_the_selection_is_gone_and_no_delete_handler_is_called(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.watching.label_selectors["widgets"] = "tier=gold"
    seen, called = watch(bench, "widgets"), []

    @on.delete("widgets", optional=True, registry=bench.registry)
    def deleted(name: str, **_: Any) -> None:
        called.append(name)

    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def daemon(name: str, stopped: Any, **_: Any) -> None:
        called.append(f"{name} started")
        await stopped.wait()
        called.append(f"{name} stopped")

    await bench.cluster.apply(labelled("w", tier="gold"))
    async with bench.running():
        await settle(20)
        await bench.cluster.apply(labelled("w", tier="silver"))
        await settle(1)
        assert called == ["w started", "w stopped"]
        await bench.cluster.apply(labelled("w", tier="gold"))
        await settle(20)
        assert called == ["w started", "w stopped", "w started"]
    assert seen[-2:] == ["widgets.v1.example.com w DELETED", "widgets.v1.example.com w"]
    assert "w" not in called


async def test_related_objects_are_selected_too(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.watching.label_selectors["gadgets"] = "tier=gold"

    @on.reconcile("widgets", owns=["gadgets"], registry=bench.registry)
    def reconcile(**_: Any) -> list[Any]:
        return []

    async with bench.running():
        await settle(1)
    lists = [request for request in bench.cluster.requests if request.path.endswith("/gadgets")]
    assert lists
    assert {dict(request.query)["labelSelector"] for request in lists} == {"tier=gold"}


@pytest.mark.parametrize("shards", [1, 2])
async def test_a_kind_that_is_handled_indexed_and_owned_is_listed_and_watched_once(
    bench: Bench, autojump_clock: MockClock, shards: int
) -> None:
    bench.settings.leadership.shards = shards
    bench.settings.peering.standalone = True
    seen = watch(bench, "gadgets")

    @on.index("gadgets", registry=bench.registry)
    def sizes(name: str, **_: Any) -> dict[str, str]:
        return {"all": name}

    @on.reconcile("widgets", owns=["gadgets"], watches={"gadgets": lambda name, **_: name}, registry=bench.registry)
    def reconcile(children: Any, **_: Any) -> list[Any]:
        return [{"apiVersion": "example.com/v1", "kind": "Gadget", "metadata": {"name": "child"}}]

    await bench.cluster.create(widget())
    async with bench.running():
        await settle(60)
        requests = [
            dict(request.query)
            for request in bench.cluster.requests
            if request.path == "/apis/example.com/v1/gadgets" and request.method == "GET" and request.user_agent
        ]
    assert seen == ["gadgets.v1.example.com child"] * len(seen)
    assert seen
    watches = [query for query in requests if query.get("watch")]
    assert len(watches) == 1
    # Shards ask once more, for the version of the list that they take over.
    assert len(requests) - len(watches) - sum(query.get("limit") == "1" for query in requests) == 1


async def test_a_kind_that_is_not_handled_any_more_is_still_watched_for_its_owners(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = watch(bench, category="toys")
    called: list[str] = []

    @on.reconcile("widgets", owns=["things"], registry=bench.registry)
    def reconcile(name: str, **_: Any) -> list[Any]:
        called.append(name)
        return []

    await bench.cluster.apply(crd("things", "Thing", categories=["toys"]))
    owner = await bench.cluster.create(widget())
    async with bench.running():
        await settle(5)
        leaves = {"spec": {"names": {"categories": None}}}
        await bench.cluster.patch("customresourcedefinitions", "things.later.example.com", leaves)
        await settle(5)
        seen.clear()
        called.clear()
        reference = {"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": owner["metadata"]["uid"]}
        child = thing("Thing")
        child["metadata"]["ownerReferences"] = [reference]
        await bench.cluster.create(child)
        await settle(5)
    assert (seen, called) == ([], ["w"])


async def test_objects_are_not_divided_twice(bench: Bench, autojump_clock: MockClock) -> None:
    watch(bench, "widgets")
    half = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
    bench.settings.watching.shard_selectors["widgets"] = half
    with pytest.RaisesGroup(pytest.RaisesExc(trioperator.ConfigError, match="divided by --shards or by settings")):
        async with bench.running(shards=2):
            pass


async def test_300_quiet_kinds_without_bookmarks_cost_5_requests_a_second_at_most(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(300):
        await bench.cluster.apply(crd(f"quiet{number}s", f"Quiet{number}"))
        watch(bench, f"quiet{number}s")
    plan = FaultPlan()
    plan.add(Fault.silence(), watch=True)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(60)
        began, before = trio.current_time(), len(bench.cluster.requests)
        caplog.clear()
        await settle(900)
        assert len(bench.cluster.requests) - before <= 5 * (trio.current_time() - began)
        assert [record for record in caplog.records if record.levelno > logging.DEBUG] == []


async def test_watches_of_other_namespaces_are_not_compared(bench: Bench, autojump_clock: MockClock) -> None:
    """With three thousand namespaces, all of them together took half a minute, in which nothing else happened."""
    compared = 0

    def count(frame: types.FrameType, event: str, _: object) -> None:
        nonlocal compared
        compared += event == "call" and frame.f_code.co_name == "in_any_version"

    @trioperator.on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    for number in range(30):
        meta = {"name": f"team-{number}"}
        await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    sys.setprofile(count)
    try:
        async with bench.running(namespaces=["team-*"]):
            pass
    finally:
        sys.setprofile(None)
    assert 0 < compared < 10 * 30
