"""Tests for :mod:`trioperator._runtime.watching.namespaces`: those that are served as they come and go."""

from __future__ import annotations

import re
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._kube.objects import parse_object
from trioperator._model.resource import Resource
from trioperator._runtime.watching.namespaces import Namespaces
from trioperator._runtime.watching.scope import Scope
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


@pytest.fixture
async def created(bench: Bench) -> list[str]:
    """Create namespaces with a widget each, and return those for which a handler was called."""
    names: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(namespace: str, **_: Any) -> None:
        names.append(namespace)

    for name in ("team-a", "team-b", "team-test", "other"):
        await add_namespace(bench, name)
    return names


async def add_namespace(bench: Bench, name: str) -> None:
    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    await bench.cluster.create({**widget(), "metadata": {"name": "w", "namespace": name}})


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["team-a"], ["team-a"]),
        (["team-a", "other"], ["other", "team-a"]),
        (["team-*"], ["team-a", "team-b", "team-test"]),
        (["team-*, !*-test"], ["team-a", "team-b"]),
        (["team-*, !team-*, team-b"], ["team-b"]),
        (["!team-*"], ["other"]),
        (["team-?", "other"], ["other", "team-a", "team-b"]),
        ([re.compile(r"team-[^t].*")], ["team-a", "team-b"]),
        (["none-*"], []),
    ],
)
async def test_only_selected_namespaces_are_served(
    patterns: list[Any], expected: list[str], bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running(namespaces=patterns):
        await settle(5)
    assert sorted(created) == expected


async def test_an_object_is_handled_once_however_many_patterns_match(
    bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running(namespaces=["team-a", "team-*", re.compile("team.*")]):
        await settle(5)
        watched = [request.path for request in bench.cluster.requests.select(verb="watch", resource="widgets")]
    assert sorted(created) == ["team-a", "team-b", "team-test"]
    assert len(watched) == len(set(watched)) == 3


async def test_new_namespaces_are_served_and_deleted_ones_are_not_watched(
    bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running(namespaces=["team-*"]):
        await settle(5)
        created.clear()
        await add_namespace(bench, "team-new")
        await add_namespace(bench, "foreign")
        await settle(5)
        assert created == ["team-new"]
        await bench.cluster.delete("namespaces", "team-a")
        await settle(30)
        assert "team-a" not in {item["metadata"]["name"] for item in await bench.cluster.list("namespaces")}
        bench.cluster.requests.clear()
        await settle(3600)
        asked = {request.namespace for request in bench.cluster.requests.select(resource="widgets")}
        assert asked == {"team-b", "team-test", "team-new"}


@pytest.mark.parametrize("patterns", [["team-a"], ["team-*"]])
async def test_a_namespace_is_deleted_when_all_its_objects_are_cleaned_up(
    patterns: list[str], bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    cleaned: list[str] = []

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(name: str, namespace: str, retry: int, **_: Any) -> None:
        if retry < 3:
            raise trioperator.TemporaryError("not yet", delay=60)
        await bench.cluster.get("namespaces", "team-a")  # it is there still
        cleaned.append(f"{namespace}/{name}")

    await bench.cluster.create({**widget(), "metadata": {"name": "v", "namespace": "team-a"}})
    async with bench.running(namespaces=patterns):
        await settle(5)
        await bench.cluster.delete("namespaces", "team-a")
        await settle(600)
        assert sorted(cleaned) == ["team-a/v", "team-a/w"]
        assert "team-a" not in {item["metadata"]["name"] for item in await bench.cluster.list("namespaces")}


async def test_a_namespace_that_is_created_again_is_served_again(
    bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    async with bench.running(namespaces=["team-*"]):
        await settle(5)
        await bench.cluster.delete("namespaces", "team-a")
        await settle(30)
        created.clear()
        await add_namespace(bench, "team-a")
        await settle(5)
        assert created == ["team-a"]


async def test_cluster_scoped_kinds_are_served_with_restricted_namespaces_too(
    bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    seen: list[str] = []

    @on.event("namespaces", id="seen", registry=bench.registry)
    async def event(name: str, **_: Any) -> None:
        seen.append(name)

    async with bench.running(namespaces=["team-a"]):
        await settle(5)
    assert {"default", "other", "team-a"} <= set(seen)
    assert len(seen) == len(set(seen))
    assert created == ["team-a"]


async def test_exact_names_are_served_where_namespaces_must_not_be_listed(
    bench: Bench, created: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    plan = FaultPlan()
    plan.add(Fault.status(403), path=r"^/api/v1/namespaces\?")
    async with bench.running(
        namespaces=["team-a", "team-?"], transport=FaultyTransport(bench.cluster.transport(), plan)
    ):
        await settle(5)
    assert created == ["team-a"]
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert any("/api/v1/namespaces" in text and "team-?" in text for text in warnings)


async def test_patterns_are_served_as_soon_as_namespaces_can_be_listed(
    bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    plan = FaultPlan()
    rule = plan.add(Fault.status(403), path=r"^/api/v1/namespaces\?")
    async with bench.running(
        namespaces=["team-a", "team-?"], transport=FaultyTransport(bench.cluster.transport(), plan)
    ):
        await settle(60)
        plan.remove(rule)
        await settle(60)
    assert sorted(created) == ["team-a", "team-b"]


async def test_without_scanning_namespaces_are_not_asked_for(
    bench: Bench, created: list[str], autojump_clock: MockClock
) -> None:
    bench.settings.scanning.disabled = True
    async with bench.running(namespaces=["team-a"]):
        await settle(60)
    assert created == ["team-a"]
    assert bench.cluster.requests.count(resource="namespaces") == 0
    assert bench.cluster.requests.count(resource="customresourcedefinitions") == 0


async def test_patterns_that_cannot_match_without_scanning_are_logged(
    bench: Bench, created: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.scanning.disabled = True
    async with bench.running(namespaces=["team-a", "team-?"]):
        await settle(60)
    assert created == ["team-a"]
    assert "team-?" in caplog.text


def namespaces(*patterns: str, listed: tuple[str, ...] | None = None) -> Namespaces:
    """Return the namespaces of a scope, as they are listed if they are."""
    made = Namespaces(None, Scope(clusterwide=not patterns, namespaces=patterns), lambda: None)  # type: ignore[arg-type]
    if listed is not None:
        made.items.replace(
            [made.items.observe(None, parse_object(b'{"metadata":{"name":"%s"}}' % name.encode())) for name in listed]
        )
    return made


@pytest.mark.parametrize(
    ("patterns", "listed", "expected"),
    [
        ((), None, [None]),
        (("a", "b-*"), None, ["a"]),
        (("a", "b-*"), ("b-1", "c"), ["b-1"]),
        (("a", "b-*"), (), []),
    ],
)
def test_objects_are_watched_in_the_namespaces_that_are_known(
    patterns: tuple[str, ...], listed: tuple[str, ...] | None, expected: list[str | None]
) -> None:
    served = namespaces(*patterns, listed=listed)
    assert list(served.places(Resource("", "v1", "pods", namespaced=True))) == expected
    assert list(served.places(Resource("", "v1", "nodes", namespaced=False))) == [None]


def test_a_namespace_may_exist_until_a_list_shows_that_it_does_not() -> None:
    assert namespaces("a").has("b")
    assert not namespaces("a", listed=("a",)).has("b")
    assert namespaces("a", listed=("a",)).has("a")
    assert namespaces("a", listed=()).has(None)
