"""Indices of an operator: when they are filled, what errors do to them, and who sees them."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import PLAIN_CRD, Bench, settle, widget
from trioperator import ErrorsMode, PermanentError, TemporaryError
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on
Index = trioperator.Index


def plain(index: Any) -> dict[Any, list[Any]]:
    return {key: list(store) for key, store in index.items()}


class Probe:
    """Get hold of an operator's indices: those that are handed to its startup handlers."""

    def __init__(self, bench: Bench, *names: str) -> None:
        self.indices: dict[str, Any] = {}

        @on.startup(id="probe", registry=bench.registry)
        async def startup(**kwargs: Any) -> None:
            self.indices.update({name: kwargs[name] for name in names})

    def __getitem__(self, name: str) -> dict[Any, list[Any]]:
        return plain(self.indices[name])


async def test_indices_follow_the_objects(bench: Bench, autojump_clock: MockClock) -> None:
    @on.index("widgets", registry=bench.registry, labels={"tier": trioperator.PRESENT})
    async def by_size(name: str, spec: trioperator.Spec) -> Any:
        return {spec["size"]: name}

    probe = Probe(bench, "by_size")
    labels = {"metadata": {"labels": {"tier": "gold"}}}
    async with bench.running():
        assert probe["by_size"] == {}
        await bench.cluster.create(widget("a", size=1))
        await settle()
        assert probe["by_size"] == {}
        await bench.cluster.patch("widgets", "a", labels)
        await bench.cluster.create(widget("b", size=1))
        await bench.cluster.patch("widgets", "b", labels)
        await settle()
        assert probe["by_size"] == {1: ["a", "b"]}
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle()
        assert probe["by_size"] == {1: ["b"], 2: ["a"]}
        await bench.cluster.patch("widgets", "b", {"metadata": {"labels": None}})
        await settle()
        assert probe["by_size"] == {2: ["a"]}
        await bench.cluster.delete("widgets", "a")
        await settle()
        assert probe["by_size"] == {}
    assert bench.writes() == []


async def test_indices_are_full_before_any_handler_is_called(bench: Bench, autojump_clock: MockClock) -> None:
    for number in range(30):
        await bench.cluster.create(widget(f"w{number}", size=number))
        await bench.cluster.create(widget(f"g{number}", kind="Gadget"))
    seen: set[tuple[str, int]] = set()

    @on.index("widgets", registry=bench.registry)
    async def sizes(spec: trioperator.Spec) -> Any:
        await trio.sleep(1)
        return {spec["size"]: None}

    @on.event("gadgets", id="event", registry=bench.registry)
    @on.create("gadgets", id="create", registry=bench.registry)
    @on.event("widgets", id="own", registry=bench.registry)
    async def handle(sizes: Index[int, None], name: str) -> None:
        seen.add((name[0], len(sizes)))

    async with bench.running():
        await settle(1)
    assert seen == {("w", 30), ("g", 30)}


async def test_indexing_needs_no_workers(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.queueing.worker_limit = 1
    for number in range(200):
        await bench.cluster.create(widget(f"w{number}", size=number))
    seen: set[int] = set()

    @on.index("widgets", registry=bench.registry)
    async def sizes(spec: trioperator.Spec) -> Any:
        return {spec["size"]: None}

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(sizes: Index[int, None]) -> None:
        seen.add(len(sizes))

    with trio.fail_after(100):
        async with bench.running():
            await settle(5)
    assert seen == {200}


async def test_an_object_is_indexed_once_for_a_state(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget("a"))
    calls: list[str] = []

    @on.index("widgets", registry=bench.registry)
    async def names(name: str) -> str:
        calls.append(name)
        return name

    @on.event("widgets", id="event", registry=bench.registry)
    async def event(names: Index[None, str]) -> None:
        calls.append("event")

    async with bench.running():
        await settle(1)
    assert calls == ["a", "event"]


async def test_handlers_wait_for_a_list_that_fails_at_first(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget("w", size=1))
    await bench.cluster.create(widget("g", kind="Gadget"))
    seen: list[dict[Any, list[Any]]] = []

    @on.index("widgets", registry=bench.registry)
    async def sizes(spec: trioperator.Spec, name: str) -> Any:
        return {spec["size"]: name}

    @on.create("gadgets", id="create", registry=bench.registry)
    async def create(sizes: Index[int, str]) -> None:
        seen.append(plain(sizes))

    plan = FaultPlan()
    plan.add(Fault.status(503), path="/widgets", watch=False, times=6)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await settle(1)
    assert seen == [{1: ["w"]}]


async def test_a_kind_that_appears_later_is_indexed_before_its_handlers_run(
    bench: Bench, autojump_clock: MockClock
) -> None:
    definition = {**PLAIN_CRD, "metadata": {"name": "laters.example.com"}}
    names = {"kind": "Later", "plural": "laters", "singular": "later"}
    definition["spec"] = {**PLAIN_CRD["spec"], "names": names}
    seen: set[int] = set()

    @on.index("laters", registry=bench.registry)
    async def found(name: str) -> Any:
        await trio.sleep(1)
        return {name: 1}

    @on.create("laters", id="create", registry=bench.registry)
    async def create(found: Index[str, int]) -> None:
        seen.add(len(found))

    probe = Probe(bench, "found")
    async with bench.running():
        await bench.cluster.apply(definition)
        for number in range(5):
            await bench.cluster.create(widget(f"x{number}", kind="Later"))
        await settle(5)
        assert seen == {5}
        assert len(probe["found"]) == 5
        await bench.cluster.delete("crd", "laters.example.com")
        await settle(5)
        assert probe["found"] == {}


async def test_objects_that_vanish_unseen_leave_the_index(bench: Bench, autojump_clock: MockClock) -> None:
    @on.index("widgets", registry=bench.registry)
    async def found(name: str) -> Any:
        return {name: 1}

    probe = Probe(bench, "found")
    plan = FaultPlan()
    plan.add(Fault.silence(lines=2), path="/widgets", watch=True, times=1)
    plan.add(Fault.status(410), path="/widgets", watch=True, times=1)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("a"))
        await bench.cluster.create(widget("b"))
        await settle(1)
        assert sorted(probe["found"]) == ["a", "b"]
        await bench.cluster.delete("widgets", "a")
        await settle(700)  # the silent watch is ended after 630 s at most
        assert sorted(probe["found"]) == ["b"]


async def test_objects_out_of_scope_leave_the_index(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team-a"}})
    obj = widget("a")
    obj["metadata"]["namespace"] = "team-a"
    await bench.cluster.create(obj)

    @on.index("widgets", registry=bench.registry)
    async def found(name: str) -> Any:
        return {name: 1}

    probe = Probe(bench, "found")
    async with bench.running(namespaces=["team-*"]):
        await settle(1)
        assert sorted(probe["found"]) == ["a"]
        await bench.cluster.delete("namespaces", "team-a")
        await settle(30)
        assert probe["found"] == {}


async def test_an_object_that_leaves_while_it_is_indexed_leaves_nothing_behind(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.index("widgets", registry=bench.registry)
    async def found(name: str) -> Any:
        await trio.sleep(5)
        return {name: 1}

    probe = Probe(bench, "found")
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        crd = await bench.cluster.get("customresourcedefinitions", "widgets.example.com")
        [version] = crd["spec"]["versions"]
        versions = [{**version, "name": "v2"}, {**version, "storage": False, "served": False}]
        await bench.cluster.patch("customresourcedefinitions", "widgets.example.com", {"spec": {"versions": versions}})
        await settle(20)
        assert probe["found"] == {"w": [1]}
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert probe["found"] == {}


@pytest.mark.parametrize("mode", [None, ErrorsMode.IGNORED])
async def test_ignored_errors_and_none_keep_what_was_indexed(
    bench: Bench, autojump_clock: MockClock, mode: ErrorsMode | None
) -> None:
    @on.index("widgets", registry=bench.registry, errors=mode)
    async def sizes(spec: trioperator.Spec, name: str) -> Any:
        if spec["size"] == 2:
            raise ValueError("boo!")
        return None if spec["size"] == 3 else {spec["size"]: name}

    probe = Probe(bench, "sizes")
    async with bench.running():
        await bench.cluster.create(widget("a", size=1))
        for size, expected in [(1, {1: ["a"]}), (2, {1: ["a"]}), (3, {1: ["a"]}), (4, {4: ["a"]})]:
            await bench.cluster.patch("widgets", "a", {"spec": {"size": size}})
            await settle()
            assert probe["sizes"] == expected


@pytest.mark.parametrize("mode", [ErrorsMode.PERMANENT, ErrorsMode.IGNORED])
async def test_an_object_that_fails_permanently_is_never_indexed_again(
    bench: Bench, autojump_clock: MockClock, mode: ErrorsMode
) -> None:
    error = ValueError("boo!") if mode is ErrorsMode.PERMANENT else PermanentError("boo!")
    calls: list[int] = []

    @on.index("widgets", registry=bench.registry, errors=mode)
    async def sizes(spec: trioperator.Spec, name: str) -> Any:
        calls.append(spec["size"])
        if spec["size"] == 2:
            raise error
        return {spec["size"]: name}

    probe = Probe(bench, "sizes")
    async with bench.running():
        await bench.cluster.create(widget("a", size=1))
        await bench.cluster.create(widget("b", size=1))
        await settle()
        for size in (2, 3):
            await bench.cluster.patch("widgets", "a", {"spec": {"size": size}})
            await settle()
            assert probe["sizes"] == {1: ["b"]}
        assert calls == [1, 1, 2]
        await bench.cluster.delete("widgets", "a")
        await bench.cluster.create(widget("a", size=5))  # another object of that name
        await settle()
        assert probe["sizes"] == {1: ["b"], 5: ["a"]}


@pytest.mark.parametrize("mode", [ErrorsMode.TEMPORARY, ErrorsMode.IGNORED])
async def test_an_object_that_fails_temporarily_is_indexed_when_the_delay_is_over(
    bench: Bench, autojump_clock: MockClock, mode: ErrorsMode
) -> None:
    error = ValueError("boo!") if mode is ErrorsMode.TEMPORARY else TemporaryError("boo!", delay=30)
    calls: list[tuple[float, int, float]] = []
    broken = True

    @on.index("widgets", registry=bench.registry, errors=mode, backoff=30)
    async def sizes(spec: trioperator.Spec, name: str, retry: int, runtime: Any) -> Any:
        calls.append((round(trio.current_time() - began), retry, round(runtime.total_seconds())))
        if broken:
            raise error
        return {spec["size"]: name}

    probe = Probe(bench, "sizes")
    began = trio.current_time()
    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget("a", size=1))
        await settle(10)
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})  # too early
        await settle(30)
        assert (probe["sizes"], calls) == ({}, [(0, 0, 0), (30, 1, 30)])
        broken = False
        await settle(25)
        assert (probe["sizes"], calls[2:]) == ({2: ["a"]}, [(60, 2, 60)])
        broken = True
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 3}})
        await settle(1)
        assert (probe["sizes"], calls[3:]) == ({}, [(65, 0, 0)])


async def test_an_object_that_fails_temporarily_and_matches_no_more_is_left_alone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[float] = []
    looks = 0

    def when(spec: trioperator.Spec) -> bool:
        nonlocal looks
        looks += 1
        return bool(spec["size"] == 1) or looks > 20  # so that it is not reconciled for ever

    @on.index("widgets", when=when, registry=bench.registry)
    async def found(name: str) -> Any:
        calls.append(trio.current_time() - began)
        if len(calls) == 1:
            raise TemporaryError("not now", delay=5)
        return {name: 1}

    probe = Probe(bench, "found")
    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget("a", size=1))
        await settle(1)
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(19)
        assert calls == [0]
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 1}})
        await settle(10)
        assert calls == [0, 20]
        assert probe["found"] == {"a": [1]}
        assert looks == 3


async def test_a_failure_without_a_delay_waits_for_the_next_event(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[int] = []

    @on.index("widgets", registry=bench.registry)
    async def sizes(spec: trioperator.Spec, retry: int) -> Any:
        calls.append(retry)
        raise TemporaryError("boo!", delay=0)

    async with bench.running():
        await bench.cluster.create(widget("a", size=1))
        await settle(100)
        assert calls == [0]
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(100)
        assert calls == [0, 1]


@pytest.mark.parametrize("limit", [{"retries": 2}, {"timeout": 20}])
async def test_limits_turn_temporary_failures_into_permanent_ones(
    bench: Bench, autojump_clock: MockClock, limit: dict[str, Any]
) -> None:
    calls: list[int] = []

    @on.index("widgets", registry=bench.registry, **limit)
    async def sizes(retry: int) -> Any:
        calls.append(retry)
        raise TemporaryError("boo!", delay=15)

    async with bench.running():
        await bench.cluster.create(widget("a", size=1))
        await settle(100)
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(100)
    assert calls == [0, 1]


async def test_failures_at_the_start_are_retried(bench: Bench, autojump_clock: MockClock) -> None:
    await bench.cluster.create(widget("a", size=1))

    @on.index("widgets", registry=bench.registry)
    async def sizes(name: str, retry: int) -> Any:
        if not retry:
            raise TemporaryError("boo!", delay=15)
        return name

    @on.event("widgets", id="event", registry=bench.registry)
    async def event() -> None: ...

    probe = Probe(bench, "sizes")
    async with bench.running():
        await settle(1)
        assert probe["sizes"] == {}
        await settle(20)
        assert probe["sizes"] == {None: ["a"]}


async def test_indices_hide_arguments_of_the_same_name(bench: Bench, autojump_clock: MockClock) -> None:
    seen: dict[str, list[Any]] = {}
    for name in ("patch", "diff", "retry", "logger", "type", "settings"):

        @on.index("widgets", id=name, registry=bench.registry)
        async def index(meta: trioperator.Meta) -> Any:
            return meta.name

    def note(where: str, **values: Any) -> None:
        seen.setdefault(where, [isinstance(value, Index) for value in values.values()])

    @on.field("widgets", field="spec.size", id="field", registry=bench.registry)
    async def field(patch: Any, diff: Any, retry: Any) -> None:
        note("field", patch=patch, diff=diff, retry=retry)

    @on.event("widgets", id="event", registry=bench.registry)
    async def event(type: Any, logger: Any, patch: Any) -> None:
        note("event", type=type, logger=logger, patch=patch)

    @on.startup(id="startup", registry=bench.registry)
    async def startup(settings: Any, diff: Any) -> None:
        note("startup", settings=settings, diff=diff)

    async with bench.running():
        await bench.cluster.create(widget("a", size=1))
        await settle(1)
    assert seen == {"startup": [True] * 2, "event": [True] * 3, "field": [True] * 3}


async def test_filters_see_indices(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[str] = []

    @on.index("gadgets", registry=bench.registry)
    async def wanted(name: str) -> Any:
        return {name: None}

    def when(wanted: Index[str, None], name: str, **_: Any) -> bool:
        return name in wanted

    @on.event("widgets", id="event", when=when, registry=bench.registry)
    async def event(name: str) -> None:
        seen.append(name)

    await bench.cluster.create(widget("a", kind="Gadget"))
    async with bench.running():
        await bench.cluster.create(widget("a"))
        await bench.cluster.create(widget("b"))
        await settle(1)
    assert seen == ["a"]


async def test_several_kinds_and_functions_may_fill_one_index(bench: Bench, autojump_clock: MockClock) -> None:
    @on.index("widgets", registry=bench.registry)
    @on.index("gadgets", registry=bench.registry)
    async def found(name: str) -> Any:
        return {"name": name}

    @on.index("gadgets", id="found", registry=bench.registry)
    async def more(name: str) -> Any:
        return {"name": name.upper()}

    probe = Probe(bench, "found")
    async with bench.running():
        await bench.cluster.create(widget("w"))
        await bench.cluster.create(widget("g", kind="Gadget"))
        await settle(1)
        assert {key: sorted(values) for key, values in probe["found"].items()} == {"name": ["G", "g", "w"]}
        await bench.cluster.delete("gadgets", "g")
        await settle(1)
        assert probe["found"] == {"name": ["w"]}


async def test_values_are_in_the_order_in_which_their_objects_came_however_long_functions_take(
    bench: Bench, autojump_clock: MockClock
) -> None:
    delays = {"a": 3, "b": 2, "c": 1, "d": 0}
    for name in ("a", "b", "c"):
        await bench.cluster.create(widget(name))

    @on.index("widgets", registry=bench.registry)
    async def found(name: str) -> Any:
        await trio.sleep(delays[name])
        return {"all": name, name: name}

    probe = Probe(bench, "found")
    async with bench.running():
        await trio.sleep(10)
        assert probe["found"]["all"] == ["a", "b", "c"]
        delays["d"] = 1
        await bench.cluster.create(widget("d"))
        delays["a"] = 0
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await trio.sleep(10)
        assert probe["found"] == {"all": ["a", "b", "c", "d"], **{name: [name] for name in "abcd"}}


async def test_the_value_of_an_object_whose_function_has_failed_first_comes_in_its_place(
    bench: Bench, autojump_clock: MockClock
) -> None:
    for name in ("a", "b"):
        await bench.cluster.create(widget(name))

    @on.index("widgets", registry=bench.registry)
    async def found(name: str, retry: int) -> Any:
        if name == "a" and not retry:
            raise trioperator.TemporaryError("later", delay=3)
        return {"all": name}

    probe = Probe(bench, "found")
    async with bench.running():
        await trio.sleep(1)
        assert probe["found"] == {"all": ["b"]}
        await trio.sleep(10)
        assert probe["found"] == {"all": ["a", "b"]}


async def test_sync_index_functions_run_in_threads(bench: Bench) -> None:
    await bench.cluster.create(widget("a"))
    main = threading.get_ident()
    done = trio.Event()
    seen: list[Any] = []

    @on.index("widgets", registry=bench.registry)
    def found(name: str) -> Any:
        return {name: threading.get_ident() != main}

    @on.event("widgets", id="event", registry=bench.registry)
    async def event(found: Index[str, bool]) -> None:
        seen.append(plain(found))
        done.set()

    with trio.fail_after(60):
        async with bench.running():
            await done.wait()
    assert seen == [{"a": [True]}]


@pytest.mark.parametrize("early", [True, False])
async def test_a_key_that_cannot_be_kept_is_one_objects_trouble(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, *, early: bool
) -> None:
    class Key:
        hashed = False

        def __hash__(self) -> int:
            if self.hashed:
                raise RuntimeError("once only")
            self.hashed = True
            return 1

    @on.index("widgets", registry=bench.registry)
    async def by_key(name: str) -> Any:
        return {Key() if name == "bad" else name: 1}

    probe = Probe(bench, "by_key")
    if early:
        await bench.cluster.create(widget("bad"))
    async with bench.running():
        if not early:
            await bench.cluster.create(widget("bad"))
        await bench.cluster.create(widget("good"))
        await settle()
        assert probe["by_key"] == {"good": [1]}
    assert any(record.exc_info for record in caplog.records if record.levelname == "ERROR")


async def test_a_filter_that_fails_takes_the_object_out_of_the_index(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def when(spec: trioperator.Spec, **_: Any) -> bool:
        return bool(1 / (2 - spec["size"]))

    @on.index("widgets", when=when, registry=bench.registry)
    async def found(name: str) -> Any:
        return {name: 1}

    probe = Probe(bench, "found")
    async with bench.running():
        await bench.cluster.create(widget("a", size=1))
        await settle(1)
        assert probe["found"] == {"a": [1]}
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(1)
        assert probe["found"] == {}
    assert "A filter of Index 'found' has failed" in caplog.text


async def test_objects_are_indexed_while_their_handlers_are_at_work(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.index("widgets", registry=bench.registry)
    def sizes(name: str, spec: trioperator.Spec, **_: Any) -> dict[str, int]:
        return {name: spec["size"]}

    @on.create("widgets", registry=bench.registry)
    async def work(**_: Any) -> None:
        await trio.sleep(100)

    seen: list[dict[str, list[int]]] = []

    @on.create("gadgets", registry=bench.registry)
    async def look(sizes: trioperator.Index[str, int], **_: Any) -> None:
        seen.append({name: list(found) for name, found in sizes.items()})

    bench.settings.queueing.worker_limit = 2
    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        await bench.cluster.create(widget("a", kind="Gadget"))
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        await bench.cluster.create(widget("b", kind="Gadget"))
        await settle(1)
    assert seen == [{"w": [2]}, {}]


async def test_stopping_waits_for_the_index_functions_at_work(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @trioperator.index("widgets", registry=bench.registry)
    async def sizes(name: str, **_: Any) -> None:
        calls.append(f"{name} begins")
        await trio.sleep(5)
        calls.append(f"{name} ends")

    async with bench.running():
        await bench.cluster.create(widget("a"))
        await settle(1)
        await bench.cluster.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(1)
    assert calls == ["a begins", "a ends"]
