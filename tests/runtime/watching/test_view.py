"""Tests for :mod:`trioperator._runtime.watching.view`.

In which order what is seen is passed on while it is being indexed.
"""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import AsyncIterator, Collection
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import settle
from trioperator import on
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._kube.objects import RawObject, parse_object
from trioperator._model.resource import Resource
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.watching.index_gate import MissingIndices
from trioperator._runtime.watching.scope import Scope
from trioperator._runtime.watching.view import View, open_indexing
from trioperator._runtime.workqueue import Lane
from trioperator._supervisor.assembly import build_read_caches
from trioperator._supervisor.plan import Plan

WIDGETS = Resource("example.com", "v1", "widgets", kind="Widget")


def raw(name: str, version: int, **spec: Any) -> RawObject:
    metadata = {"name": name, "uid": name, "resourceVersion": str(version)}
    return parse_object(json.dumps({"metadata": metadata, "spec": spec}).encode())


class Readings:
    """A reader that notes what it is notified of."""

    def __init__(self) -> None:
        self.events: list[tuple[str | None, str]] = []
        self.lists: list[set[str]] = []

    def observe(self, type: str | None, obj: RawObject) -> str:
        self.events.append((type, f"{obj.name}{obj.resource_version}"))
        return obj.key

    def replace(self, listed: Collection[str]) -> None:
        self.lists.append(set(listed))

    def take(self) -> list[tuple[str | None, str]]:
        events, self.events = self.events, []
        return events


class NoQueue:
    """A work queue of handlers, which are none here."""

    is_divided = False

    def find_shard(self, uid: str) -> int:
        return 0

    def owns(self, uid: str) -> bool:
        return True

    def add(self, item: Any, lane: Lane = Lane.FRESH, *, at_once: bool = False) -> None: ...


class Viewing:
    """A view of widgets whose index function takes as many seconds as their specs say."""

    def __init__(self, *, events: bool) -> None:
        registry = trioperator.OperatorRegistry()
        self.calls: list[str] = []
        self._running: set[str] = set()
        self.overlaps: list[str] = []  # objects that were indexed twice at once
        self.readings = Readings()
        self.settings = trioperator.OperatorSettings()
        self.settings.queueing.backlog_limit = 3

        @on.index("widgets", registry=registry)
        async def sizes(name: str, spec: Any, meta: Any) -> dict[str, str]:
            self.calls.append(f"{name}{meta['resourceVersion']}")
            self.overlaps += [name] if name in self._running else []
            self._running.add(name)
            if slow := spec.get("slow", 0):
                await trio.sleep(slow)
            self._running.discard(name)
            return {name: meta["resourceVersion"]}

        if events:
            on.event("widgets", registry=registry)(lambda **_: None)
        self.registry = registry
        self.indices = registry.make_indices()

    @contextlib.asynccontextmanager
    async def viewing(self) -> AsyncIterator[View]:
        invoker = Invoker(limiter=ThreadLimiter(4), backoff=60, running={})
        plan = Plan(registry=self.registry, settings=self.settings, memo=None, scope=Scope(), identity="x")
        kind = Kind(WIDGETS, KindHandlers.of(self.registry.resource_handlers()))
        cache = ObjectCache(kind, NoQueue(), memo=None, consistency_timeout=5.0, indices=self.indices)
        views = build_read_caches(plan, self.indices, invoker, MissingIndices())
        async with open_indexing() as queue:
            stage = msgspec.structs.replace(views.make_stage(queue), observe=lambda cache: Both(cache, self.readings))
            yield View(None, stage, cache=cache)
            queue.close(give_up_at=trio.current_time())

    @property
    def index(self) -> dict[str, list[str]]:
        return {name: list(store) for name, store in self.indices["sizes"].items()}


class Both:
    """Two readers."""

    def __init__(self, *readers: Any) -> None:
        self.readers = readers

    def observe(self, type: str | None, obj: RawObject) -> str:
        for reader in self.readers:
            reader.observe(type, obj)
        return obj.key

    def replace(self, listed: Collection[str]) -> None:
        for reader in self.readers:
            reader.replace(listed)


@pytest.fixture
def bench() -> Viewing:
    return Viewing(events=False)


async def test_an_event_is_passed_on_when_it_is_indexed(bench: Viewing, autojump_clock: MockClock) -> None:
    async with bench.viewing() as view:
        view.observe("ADDED", raw("slow", 1, slow=10))
        view.observe("ADDED", raw("fast", 2))
        await settle(1)
        assert bench.readings.take() == [("ADDED", "fast2")]
        assert bench.index == {"fast": ["2"]}
        await settle(10)
        assert bench.readings.take() == [("ADDED", "slow1")]
        assert bench.index == {"fast": ["2"], "slow": ["1"]}


async def test_what_an_index_function_has_not_begun_with_is_overtaken_by_newer_states(
    bench: Viewing, autojump_clock: MockClock
) -> None:
    async with bench.viewing() as view:
        view.observe(None, raw("w", 1, slow=10))
        await settle(1)
        for version in (2, 3, 4):
            view.observe("MODIFIED", raw("w", version))
        view.observe("DELETED", raw("w", 5))
        view.observe("ADDED", raw("w", 6))
        view.observe("MODIFIED", raw("w", 7))
        await settle(10)
        assert bench.readings.take() == [(None, "w1"), ("MODIFIED", "w4"), ("DELETED", "w5"), ("ADDED", "w7")]
        assert bench.calls == ["w1", "w4", "w7"]
        assert bench.index == {"w": ["7"]}


async def test_event_handlers_get_each_event_up_to_a_limit(autojump_clock: MockClock) -> None:
    bench = Viewing(events=True)
    async with bench.viewing() as view:
        view.observe("ADDED", raw("w", 1, slow=10))
        await settle(1)
        for version in range(2, 9):
            view.observe("MODIFIED", raw("w", version))
        await settle(10)
        assert [name for _, name in bench.readings.take()] == ["w1", "w2", "w3", "w8"]


async def test_a_list_ends_when_all_is_indexed_that_came_before(bench: Viewing, autojump_clock: MockClock) -> None:
    async with bench.viewing() as view:
        assert view.cache is not None
        view.observe(None, raw("slow", 1, slow=10))
        view.observe(None, raw("fast", 2))
        view.replace(["slow", "fast"])
        view.observe("ADDED", raw("later", 3, slow=1000))
        await settle(1)
        assert not bench.readings.lists
        await settle(10)
        assert bench.readings.lists == [{"slow", "fast", "later"}]
        assert set(bench.index) == {"slow", "fast"}


async def test_what_changes_now_is_indexed_before_the_rest_of_a_list(bench: Viewing, autojump_clock: MockClock) -> None:
    async with bench.viewing() as view:
        names = [f"w{number}" for number in range(100)]
        for number, name in enumerate(names):
            view.observe(None, raw(name, number, slow=10))
        view.replace(names)
        view.observe("ADDED", raw("urgent", 100))
        await settle(15)
        assert "urgent100" in bench.calls
        assert len(bench.calls) < 50
        view.observe("MODIFIED", raw("w99", 101))
        await settle(10)
        assert "w9999" in bench.calls, "its earlier state comes first"
        await settle(10)
        assert "w99101" in bench.calls
        assert len(bench.calls) < 80


async def test_an_object_that_is_indexed_for_ever_holds_up_no_other_object_of_the_list(
    bench: Viewing, autojump_clock: MockClock
) -> None:
    async with bench.viewing() as view:
        names = [f"w{number}" for number in range(100)]
        for number, name in enumerate(names):
            view.observe(None, raw(name, number, slow=1e9 if number % 10 == 0 else 0))
        view.replace(names)
        await settle(1)
        assert set(bench.index) == {name for number, name in enumerate(names) if number % 10}


async def test_one_kind_does_not_hold_up_the_first_list_of_another(bench: Viewing, autojump_clock: MockClock) -> None:
    async with bench.viewing() as view, bench.viewing() as other:
        for number in range(100):
            view.observe(None, raw(f"slow{number}", number, slow=10))
        await settle(1)
        other.observe(None, raw("fast", 100))
        await settle(10)
        assert "fast100" in bench.calls


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_comes_when_the_states_of_an_object_are_indexed_in_order_and_one_at_a_time(
    seed: int, autojump_clock: MockClock
) -> None:
    bench, chance = Viewing(events=True), random.Random(seed)
    bench.settings.queueing.backlog_limit = 1000
    names, exists, seen = "abcdefgh", dict[str, int](), dict[str, list[tuple[str | None, str]]]()
    async with bench.viewing() as view:
        for version in range(300):
            name = chance.choice(names)
            if chance.random() < 0.1:
                for listed in exists:
                    view.observe(None, raw(listed, exists[listed]))
                    seen.setdefault(listed, []).append((None, f"{listed}{exists[listed]}"))
                view.replace(list(exists))
            elif name in exists and chance.random() < 0.2:
                view.observe("DELETED", raw(name, version))
                seen[name].append(("DELETED", f"{name}{version}"))
                del exists[name]
            else:
                type = None if chance.random() < 0.3 else "MODIFIED" if name in exists else "ADDED"
                exists[name] = version
                view.observe(type, raw(name, version, slow=chance.choice((0, 0, 0, 1, 3))))
                seen.setdefault(name, []).append((type, f"{name}{version}"))
            if chance.random() < 0.3:
                await trio.sleep(chance.choice((0, 0.5, 2)))
        await settle(1000)
        passed = bench.readings.take()
        assert {name: [event for event in passed if event[1][0] == name] for name in seen} == seen
        assert bench.index == {name: [str(version)] for name, version in exists.items()}
        assert not bench.overlaps


async def test_a_newer_list_takes_the_place_of_one_that_has_not_ended(
    bench: Viewing, autojump_clock: MockClock
) -> None:
    async with bench.viewing() as view:
        for name in ("a", "b", "c"):
            view.observe(None, raw(name, 1, slow=10))
        view.replace(["a", "b", "c"])
        await settle(1)
        view.observe(None, raw("a", 1, slow=10))
        view.observe(None, raw("b", 2))
        view.replace(["a", "b"])
        await settle(10)
        assert bench.readings.lists == [{"a", "b"}]
        assert bench.index == {"a": ["1"], "b": ["2"]}


async def test_what_vanishes_unseen_is_gone_though_an_index_function_hangs(
    bench: Viewing, autojump_clock: MockClock
) -> None:
    async with bench.viewing() as view:
        for name in ("a", "b"):
            view.observe(None, raw(name, 1))
        view.replace(["a", "b"])
        await settle(1)
        view.observe("MODIFIED", raw("a", 2, slow=1e6))
        await settle(1)
        view.replace([])
        assert bench.index == {"a": ["1"]}
        assert bench.readings.lists[1:] == [{"a"}]


async def test_a_list_without_changes_calls_no_index_functions(bench: Viewing, autojump_clock: MockClock) -> None:
    async with bench.viewing() as view:
        for _ in range(2):
            view.observe(None, raw("a", 5))
            view.replace(["a"])
            await settle(1)
        assert bench.calls == ["a5"]
        view.observe(None, raw("a", 3))
        await settle(1)
        assert bench.index == {"a": ["3"]}, "a list is right, also after a restore"


async def test_nothing_is_indexed_or_passed_on_after_the_end(bench: Viewing, autojump_clock: MockClock) -> None:
    async with bench.viewing() as view:
        view.observe("ADDED", raw("a", 1))
        view.observe("ADDED", raw("b", 1, slow=10))
        await settle(1)
        view.observe("MODIFIED", raw("b", 2))
        bench.readings.take()
        view.close(gone=False)
        assert bench.index == {}
        await settle(20)
        assert bench.index == {}
        assert bench.readings.take() == []
        assert bench.calls == ["a1", "b1"]


async def test_a_new_reader_sees_the_end_of_a_list_after_all_objects(bench: Viewing, autojump_clock: MockClock) -> None:
    class Related(Readings):
        resource, labels, needs_bodies = WIDGETS, (), False

        def __len__(self) -> int:
            return 0

        def open(self, namespace: str | None, indices: frozenset[str]) -> Related:
            assert indices == {"sizes"}
            return self

        def close(self, namespace: str | None, reader: object) -> None:
            assert reader is self

        def refuse(self, namespace: str | None, error: Exception) -> None:
            refusals.append(error)

        def refresh(self, obj: RawObject) -> None: ...
        def rewind(self) -> None: ...

    refusals: list[Exception] = []
    related = Related()
    async with bench.viewing() as view:
        view.observe(None, raw("a", 1))
        view.replace(["a"])
        await settle(1)
        view.observe("ADDED", raw("b", 2, slow=10))
        view.refuse(ValueError("nobody reads it for others"))
        assert view.adjust([related])
        view.refuse(error := ValueError("it cannot be listed"))
        assert refusals == [error]
        view.observe(None, raw("a", 1))
        view.observe(None, raw("b", 2, slow=10))
        view.replace(["a", "b"])
        await settle(1)
        assert (related.take(), related.lists) == ([(None, "a1")], [])
        await settle(10)
        assert (related.take(), related.lists) == ([("ADDED", "b2")], [{"a", "b"}])
        assert not view.adjust([])
        view.observe("DELETED", raw("a", 3))
        await settle(1)
        assert related.take() == []
