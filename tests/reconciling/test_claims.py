"""Tests for :mod:`trioperator._reconciling.claims`: children of several operators and handlers are told apart."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from trio.testing import MockClock

import trioperator
from tests.reconciling.conftest import children_of, config_map, names_of, requests_of
from tests.runtime.conftest import Bench, settle, widget
from trioperator import OperatorRegistry, OperatorSettings, on
from trioperator._reconciling.claims import CLAIM


def make_registry(
    children: Callable[..., Any], *, id: str | None = "reconcile", into: OperatorRegistry | None = None, **options: Any
) -> OperatorRegistry:
    """Return a registry with a handler of widgets that returns children."""
    registry = into or OperatorRegistry()
    on.reconcile("widgets", owns=["configmaps"], id=id, registry=registry, **options)(children)
    return registry


def named(manager: str) -> OperatorSettings:
    settings = OperatorSettings()
    settings.posting.loggers = False
    settings.persistence.field_manager = manager
    return settings


def one(name: str) -> list[dict[str, Any]]:
    return [config_map(f"one-{name}")]


def two(name: str) -> list[dict[str, Any]]:
    return [config_map(f"two-{name}")]


async def test_operators_with_the_default_field_manager_leave_each_others_children(
    bench: Bench, autojump_clock: MockClock
) -> None:
    async with bench.running(registry=make_registry(one, id=None)), bench.running(registry=make_registry(two, id=None)):
        await bench.cluster.create(widget())
        await settle(60)
        assert await names_of(bench.cluster) == ["one-w", "two-w"]
    assert "delete" not in {each.verb for each in bench.cluster.requests}


async def test_operators_in_several_modules_may_have_handlers_of_the_same_name(
    bench: Bench, autojump_clock: MockClock
) -> None:
    other = functools.wraps(two)(lambda name: two(name))
    other.__module__ = "elsewhere"
    del other.__wrapped__
    async with bench.running(registry=make_registry(one)), bench.running(registry=make_registry(other)):
        await bench.cluster.create(widget())
        await settle(60)
        assert await names_of(bench.cluster) == ["one-w", "two-w"]
        child = await bench.cluster.get("configmaps", "two-w")
    assert child["metadata"]["annotations"] == {CLAIM: "elsewhere/reconcile"}


async def test_children_are_claimed_by_the_name_of_the_operator(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget())
    async with bench.running(registry=make_registry(one), settings=named("orders")):
        await settle(1)
    child = await bench.cluster.get("configmaps", "one-w")
    assert child["metadata"]["annotations"] == {CLAIM: "orders/reconcile"}


@contextlib.asynccontextmanager
async def upgraded(bench: Bench, **options: Any) -> AsyncIterator[None]:
    """Let a first version of the operator apply ``old``; run a second one in the block, whose child is ``new``."""
    await bench.cluster.create(widget(maps={"old": {}}))
    async with bench.running(registry=make_registry(_from_spec, id="before"), **options):
        await settle(1)
    await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"old": None, "new": {}}}})
    async with bench.running(registry=make_registry(_from_spec, id="after"), **options):
        await settle(60)
        yield


def _from_spec(spec: Any) -> list[dict[str, Any]]:
    return children_of(spec)


async def test_an_operator_with_a_name_deletes_children_of_handlers_that_it_has_no_more(
    bench: Bench, autojump_clock: MockClock
) -> None:
    async with upgraded(bench, settings=named("orders")):
        assert await names_of(bench.cluster) == ["new"]


async def test_an_operator_without_a_name_leaves_children_of_handlers_that_it_does_not_have(
    bench: Bench, autojump_clock: MockClock
) -> None:
    async with upgraded(bench):
        assert await names_of(bench.cluster) == ["new", "old"], "they may be another operator's"


async def apply_unclaimed(bench: Bench, *names: str) -> None:
    """Apply children as releases did that made no claims."""
    parent = await bench.cluster.get("widgets", "w")
    for name in names:
        manifest = config_map(name)
        trioperator.adopt(manifest, parent)
        connection = trioperator.ConnectionInfo(server="http://embedded")
        async with trioperator.open_client(connection=connection, transport=bench.cluster.transport()) as client:
            await client.apply(manifest)


async def test_children_of_an_earlier_release_are_recognized(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget(maps={"kept": {"a": "b"}}))
    await apply_unclaimed(bench, "kept", "old")
    async with bench.running(registry=make_registry(_from_spec)):
        await settle(60)
        assert await names_of(bench.cluster) == ["kept"]
        assert (await bench.cluster.get("configmaps", "kept"))["data"] == {"a": "b"}
        await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"kept": None}}})
        await settle(60)
        assert await names_of(bench.cluster) == []


async def test_what_is_applied_by_others_with_the_same_manager_is_no_child(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.create(widget(maps={"kept": {}}))
    registry = make_registry(_from_spec)
    async with bench.running(registry=registry):
        await settle(1)
        await apply_unclaimed(bench, "secret")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
        assert await names_of(bench.cluster) == ["kept", "secret"]
    async with bench.running(registry=registry):
        await settle(60)
        assert await names_of(bench.cluster) == ["kept", "secret"]


async def test_a_claim_that_somebody_removes_comes_back_with_the_next_change(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.create(widget())
    async with bench.running(registry=make_registry(one)):
        await settle(1)
        await bench.cluster.patch("configmaps", "one-w", {"metadata": {"annotations": {CLAIM: None}}})
        await settle(1)
        assert CLAIM in (await bench.cluster.get("configmaps", "one-w"))["metadata"]["annotations"]


# Loops: programs that undo each other's work.


async def test_operators_that_cannot_be_told_apart_soon_leave_each_others_children(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with bench.running(registry=make_registry(one)), bench.running(registry=make_registry(two)):
        await bench.cluster.create(widget())
        await settle(24 * 3600)
        assert await names_of(bench.cluster) == ["one-w", "two-w"]
    deletions = [each.name for each in bench.cluster.requests if each.verb == "delete"]
    assert 2 <= len(deletions) <= 8
    assert "has come back: another program applies it, also with the field manager 'trioperator'" in caplog.text
    assert "Give each operator its own settings.persistence.field_manager" in caplog.text
    assert caplog.text.count("has come back") <= 8


async def test_a_replica_that_is_about_to_stop_does_not_keep_old_children(
    bench: Bench, autojump_clock: MockClock
) -> None:
    await bench.cluster.create(widget())
    async with bench.running(registry=make_registry(two)):
        async with bench.running(registry=make_registry(one)):
            await settle(30)
        await settle(300)
        assert await names_of(bench.cluster) == ["two-w"]


async def test_a_child_that_comes_and_goes_with_its_object_is_no_loop(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget(maps={}))
    async with bench.running(registry=make_registry(_from_spec)):
        for _ in range(10):
            await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"x": {}}}})
            await settle(0.5)
            assert await names_of(bench.cluster) == ["x"]
            await bench.cluster.patch("widgets", "w", {"spec": {"maps": {"x": None}}})
            await settle(0.5)
            assert await names_of(bench.cluster) == []


async def test_operators_that_want_the_same_child_to_differ_back_off(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def make(value: str) -> OperatorRegistry:
        return make_registry(lambda name: [config_map("shared", value=value)])

    first, second = named("one"), named("two")
    async with (
        bench.running(registry=make("1"), settings=first),
        bench.running(registry=make("2"), settings=second),
    ):
        await bench.cluster.create(widget())
        await settle(600)
    writes = [each for each in requests_of(bench) if each == "patch shared"]
    assert len(writes) < 40
    assert "others have changed it 7 times, each time soon after it was applied" in caplog.text
    assert re.search(r"soon after it was applied: data\.value by (one|two)", caplog.text)


async def test_a_child_that_others_keep_deleting_is_applied_ever_more_rarely(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.event("configmaps", registry=(rival := OperatorRegistry()))
    async def remove(type: str | None, name: str, client: trioperator.Client, **_: Any) -> None:
        if type != "DELETED" and name == "one-w":
            await client.delete("configmaps", name, namespace="default")

    async with bench.running(registry=make_registry(one)), bench.running(registry=rival):
        await bench.cluster.create(widget())
        await settle(600)
    writes = [each for each in requests_of(bench) if each == "patch one-w"]
    assert len(writes) < 30
    assert "others have deleted it 7 times" in caplog.text
