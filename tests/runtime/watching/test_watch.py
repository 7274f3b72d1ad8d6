"""Tests for :mod:`trioperator._runtime.watching.watch`: an operator follows one stream of objects, or two."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.test_restored import running
from tests.runtime.watching.conftest import labelled
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


def declare(bench: Bench) -> list[str]:
    """Declare handlers whose labels do not combine, and return what they have seen."""
    seen: list[str] = []
    options: dict[str, Any] = {"registry": bench.registry}

    @on.event("widgets", labels={"tier": "gold"}, **options)
    def gold(name: str, type: Any, **_: Any) -> None:
        seen.append(f"gold {name} {type}")

    @on.event("widgets", labels={"app": "web"}, **options)
    def web(name: str, type: Any, **_: Any) -> None:
        seen.append(f"web {name} {type}")

    return seen


def queries(bench: Bench) -> list[dict[str, str]]:
    """Return the parameters of the operator's watches of widgets."""
    requests = [request for request in bench.cluster.requests if request.path.endswith("/widgets")]
    return [dict(request.query) for request in requests if request.user_agent and "watch" in dict(request.query)]


def watched(bench: Bench) -> list[str | None]:
    return [query.get("labelSelector") for query in queries(bench)]


async def test_labels_that_do_not_combine_have_two_streams(bench: Bench, autojump_clock: MockClock) -> None:
    seen = declare(bench)
    await bench.cluster.create(labelled("a", tier="gold"))
    await bench.cluster.create(labelled("b", app="web"))
    await bench.cluster.create(labelled("foreign", tier="silver"))
    async with bench.running():
        await bench.cluster.create(labelled("both", tier="gold", app="web"))
        await settle(5)
        assert sorted(watched(bench), key=str) == ["app=web", "tier=gold"]
    assert sorted(seen) == ["gold a None", "gold both ADDED", "web b None", "web both ADDED"]


async def test_an_object_that_moves_from_one_stream_to_the_other_is_not_deleted(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen = declare(bench)
    await bench.cluster.create(labelled("a", tier="gold"))
    async with bench.running():
        await settle(5)
        for tier, app in [(None, "web"), ("gold", None), (None, "web")]:
            await bench.cluster.patch("widgets", "a", {"metadata": {"labels": {"tier": tier, "app": app}}})
            await settle(5)
    assert seen == ["gold a None", "web a MODIFIED", "gold a MODIFIED", "web a MODIFIED"]


async def test_a_daemon_goes_on_while_its_object_moves_and_the_other_stream_is_late(
    bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[str] = []
    declare(bench)

    @trioperator.daemon("widgets", labels={"app": "web"}, registry=bench.registry)
    @trioperator.daemon("widgets", id="other", labels={"tier": "gold"}, registry=bench.registry)
    async def daemon(stopped: Any, **_: Any) -> None:
        called.append("started")
        await stopped.wait()
        called.append(str(stopped.reason))

    plan = FaultPlan()
    await bench.cluster.create(labelled("a", tier="gold"))
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(5)
        plan.add(Fault.stall(), path="/widgets", watch=True)
        await bench.cluster.patch("widgets", "a", {"metadata": {"labels": {"tier": None, "app": "web"}}})
        await settle(30)
        plan.clear()
        await settle(400)
        assert called[0] == "started"
        assert called[1:].count("started") == 1
        assert "deleted" not in str(called).lower()
        assert (await bench.cluster.get("widgets", "a"))["metadata"]["finalizers"]


@pytest.mark.parametrize(("foreign", "count"), [(2, 1), (20, 2)])
async def test_one_stream_takes_the_place_of_two_that_would_bring_more(
    bench: Bench, autojump_clock: MockClock, foreign: int, count: int
) -> None:
    seen = declare(bench)
    for number in range(10):
        await bench.cluster.create(labelled(f"both{number}", tier="gold", app="web"))
    for number in range(foreign):
        await bench.cluster.create(labelled(f"foreign{number}", tier="silver"))
    async with bench.running():
        await settle(30)
        before = len(watched(bench))
        await bench.cluster.patch("widgets", "both1", {"metadata": {"labels": {"tier": "silver"}}})
        await bench.cluster.patch("widgets", "foreign1", {"metadata": {"labels": {"tier": "gold"}}})
        await bench.cluster.create(labelled("late", tier="gold"))
        await settle(600)
        assert set(watched(bench)[before:]) == ({None} if count == 1 else {"app=web", "tier=gold"})
    assert len([text for text in seen if text.endswith("None")]) == 20
    entered = "ADDED" if count == 2 else "MODIFIED"
    assert sorted(seen[20:]) == sorted(["web both1 MODIFIED", f"gold foreign1 {entered}", "gold late ADDED"])


async def test_a_definition_without_selectable_fields_ends_two_streams_for_these(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[str] = []
    for color in ("red", "blue"):
        on.event("widgets", field="spec.color", value=color, id=color, registry=bench.registry)(
            lambda name, **_: seen.append(name)
        )
    definition = copy.deepcopy(CRD)
    version = definition["spec"]["versions"][0]
    version["selectableFields"] = [{"jsonPath": ".spec.color"}]
    spec = {"type": "object", "properties": {"color": {"type": "string"}}}
    version["schema"]["openAPIV3Schema"] = {"type": "object", "properties": {"spec": spec}}
    await bench.cluster.apply(definition)
    await bench.cluster.create(widget("a", color="red"))
    await bench.cluster.create(widget("b", color="blue"))
    await bench.cluster.create(widget("foreign", color="green"))
    async with bench.running():
        await settle(5)
        assert sorted(query["fieldSelector"] for query in queries(bench)) == ["spec.color=blue", "spec.color=red"]
        version["selectableFields"] = []
        await bench.cluster.apply(definition)
        await settle(5)
        assert "fieldSelector" not in queries(bench)[-1]
        await bench.cluster.create(widget("c", color="red"))
        await bench.cluster.patch("widgets", "foreign", {"spec": {"color": "blue"}})
        await settle(600)
        assert len(queries(bench)) < 6
    assert sorted(seen) == ["a", "b", "c", "foreign"]


async def test_a_restored_etcd_is_listed_again_by_both_streams(autojump_clock: MockClock) -> None:
    sizes: dict[str, int] = {}
    registry = trioperator.OperatorRegistry()
    for labels in ({"tier": "gold"}, {"app": "web"}):

        @on.event("widgets", id=str(labels), labels=labels, registry=registry)
        def see(name: str, spec: Any, **_: Any) -> None:
            sizes[name] = spec["size"]

    async with running(registry) as restored:
        await restored.old.create(labelled("a", tier="gold"))
        await restored.old.create(labelled("b", app="web"))
        await settle(5)
        restored.back_up()
        for size in (7, 8, 9):
            for name in ("a", "b"):
                await restored.old.patch("widgets", name, {"spec": {"size": size}})
        await settle(5)
        assert sizes == {"a": 9, "b": 9}
        new = await restored.restore(outage=60)
        await settle(600)
        assert sizes == {"a": 1, "b": 1}
        for name in ("a", "b"):
            await new.patch("widgets", name, {"spec": {"size": 5}})
            await settle(5)
        assert sizes == {"a": 5, "b": 5}
