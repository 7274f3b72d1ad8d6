"""Sub-handlers: declared by their parents while these run, retried on their own, remembered, and called once."""

from __future__ import annotations

import functools
import json
import traceback
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator.errors import UnfinishedSubhandlersError

on = trioperator.on
PREFIX = "trioperator.dev/"


def records(body: dict[str, Any]) -> dict[str, Any]:
    """Return the stored progress of handlers."""
    annotations = body["metadata"].get("annotations") or {}
    own = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    return {key: json.loads(value) for key, value in own.items() if "configuration" not in key and "managed" not in key}


async def test_declared_sub_handlers_are_called_after_the_parent(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(spec: Any, **_: Any) -> str:
        for item in spec["items"]:

            @trioperator.subhandler(id=item)
            async def handle(name: str, item: str = item) -> str:
                calls.append(f"{name}/{item}")
                return item

        async def last() -> None:
            calls.append("last")

        trioperator.register(last, id="last")
        calls.append("parent")
        return "created"

    async with bench.running():
        await bench.cluster.create(widget(items=["a", "b"]))
        await settle(10)
    assert calls == ["parent", "w/a", "w/b", "last"]
    body = await bench.cluster.get("widgets", "w")
    assert body["status"] == {"create": "created", "create/a": "a", "create/b": "b"}
    assert records(body) == {}


async def test_sync_parents_declare_in_their_threads(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    def create(spec: Any, **_: Any) -> None:
        for item in spec["items"]:

            @trioperator.on.this(id=item)
            def handle(item: str = item, **_: Any) -> None:
                calls.append(item)

    async with bench.running():
        await bench.cluster.create(widget(items=["a", "b"]))
        await settle(1)
    assert calls == ["a", "b"]
    assert bench.writes() == ["PATCH main"]


async def test_executed_sub_handlers_are_done_when_execute_returns(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(status: Any, **_: Any) -> None:
        await trioperator.execute(fns={"a": functools.partial(child, "a"), "b": functools.partial(child, "b")})
        calls.append("between")
        assert status["create/a"] == "a"  # what they want is shown as if it was stored
        await trioperator.execute(fns=[other])
        calls.append("end")

    async def child(item: str, **_: Any) -> str:
        calls.append(item)
        return item

    async def other() -> None:
        calls.append("other")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == ["a", "b", "between", "other", "end"]


async def test_declared_sub_handlers_are_executed_once(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler()
        async def child() -> None:
            calls.append("child")

        await trioperator.execute()
        await trioperator.execute()
        calls.append("end")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == ["child", "end"]


async def test_sub_handlers_are_nested_to_any_depth(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    def descend(depth: int) -> None:
        @trioperator.subhandler(id=f"{depth}")
        async def child(retry: int, **_: Any) -> str:
            calls.append(f"{depth}")
            if depth < 5:
                descend(depth + 1)
            elif not retry:
                raise trioperator.TemporaryError("not yet", delay=5)
            return f"at {depth}"

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        descend(1)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(3)
        waiting = records(await bench.cluster.get("widgets", "w"))
        await settle(10)
    ids = ["create" + "".join(f"/{depth}" for depth in range(1, n)) for n in range(1, 7)]
    assert set(waiting) == {id.replace("/", ".") for id in ids}
    assert waiting["create"]["subrefs"] == ids[1:]
    assert waiting["create.1.2.3"]["subrefs"] == ids[4:]
    assert "subrefs" not in waiting[ids[-1].replace("/", ".")]
    assert calls == ["1", "2", "3", "4", "5"] * 2
    body = await bench.cluster.get("widgets", "w")
    assert body["status"] == {id: f"at {depth}" for depth, id in enumerate(ids) if depth}
    assert records(body) == {}


async def test_the_example_of_idempotence_takes_a_minute(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[tuple[str, float]] = []
    began = 0.0

    def note(name: str) -> None:
        calls.append((name, round(trio.current_time() - began)))

    @on.create("widgets", id="create", retries=2, registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        assert retry == 0  # waiting for sub-handlers is no attempt
        note("enter")
        await trioperator.execute(fns={"a": create_a, "b": create_b})
        note("leave")

    async def create_a(retry: int, **_: Any) -> None:
        note("a")
        if retry < 2:
            raise trioperator.TemporaryError("Not ready yet.", delay=10)

    async def create_b(retry: int, **_: Any) -> None:
        note("b")
        if retry < 6:
            raise trioperator.TemporaryError("Not ready yet.", delay=10)

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(100)
    assert [at for name, at in calls if name == "enter"] == [0, 10, 20, 30, 40, 50, 60]
    assert [at for name, at in calls if name == "a"] == [0, 10, 20]
    assert [at for name, at in calls if name == "b"] == [0, 10, 20, 30, 40, 50, 60]
    assert [at for name, at in calls if name == "leave"] == [60]
    assert bench.writes() == ["PATCH main"] * 7  # one for each state that has to be remembered


async def test_the_parent_is_called_when_the_first_of_its_sub_handlers_is_due(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[str, float]] = []
    began = 0.0

    async def child(name: str, delay: float, retry: int) -> None:
        calls.append((name, round(trio.current_time() - began)))
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=delay)

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append(("parent", round(trio.current_time() - began)))
        trioperator.register(functools.partial(child, "late", 30), id="late")
        trioperator.register(functools.partial(child, "early", 20), id="early")

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == [
        ("parent", 0),
        ("late", 0),
        ("early", 0),
        ("parent", 20),
        ("early", 20),
        ("parent", 30),
        ("late", 30),
    ]


async def test_a_sub_handler_that_has_failed_permanently_has_ended(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> str:
        await trioperator.execute(fns=[bad, good])
        return "done"

    async def bad() -> None:
        calls.append("bad")
        raise trioperator.PermanentError("never")

    async def good(retry: int) -> None:
        calls.append("good")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=1)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == ["bad", "good", "good"]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create": "done"}


async def test_options_of_sub_handlers_are_their_own(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler(retries=3, backoff=1, param="p")
        async def retried(param: str, retry: int) -> None:
            calls.append((param, retry))
            raise ValueError("always")

        @trioperator.subhandler(errors=trioperator.ErrorsMode.PERMANENT)
        async def final() -> None:
            calls.append("final")
            raise ValueError("once")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == [("p", 0), "final", ("p", 1), ("p", 2)]
    assert records(await bench.cluster.get("widgets", "w")) == {}


async def test_errors_of_the_parent_are_its_own(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", retries=2, backoff=1, registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        calls.append(retry)
        await trioperator.execute(fns=[child])
        raise ValueError("after all of them")

    async def child(retry: int) -> None:
        calls.append("child")
        if retry < 3:
            raise trioperator.TemporaryError("not yet", delay=1)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == [0, "child"] * 4 + [1]


async def test_a_parent_that_fails_does_not_call_what_it_has_declared(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int, **_: Any) -> None:
        async def child() -> None:
            calls.append(retry)

        trioperator.register(child)
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=1)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == [1]


async def test_a_parent_that_catches_the_error_is_called_again_all_the_same(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        try:
            await trioperator.execute(fns=[child])
        except UnfinishedSubhandlersError as error:
            calls.append(error.delay)

    async def child(retry: int) -> None:
        calls.append("child")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=7)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == ["child", 7.0, "child"]


async def test_sub_handlers_may_run_side_by_side(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        async with trio.open_nursery() as nursery:
            for item in "ab":
                fns = {item: functools.partial(child, item)}
                nursery.start_soon(functools.partial(trioperator.execute, fns=fns))

    async def child(item: str) -> None:
        await trio.sleep(2)
        calls.append((item, trio.current_time() - began))

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(10)
    assert sorted(calls) == [("a", 2.0), ("b", 2.0)]


async def test_a_thread_beside_a_sub_handler_that_fails_is_waited_for(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(functools.partial(trioperator.execute, fns={"slow": slow}))
            nursery.start_soon(functools.partial(trioperator.execute, fns={"failing": failing}))

    def slow() -> str:
        calls.append("slow")
        trio.from_thread.run(trio.sleep, 5)
        calls.append("slow has ended")
        return "done"

    async def failing(retry: int) -> None:
        await trio.sleep(1)
        calls.append(f"failing {retry}")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=1)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(20)
    assert calls == ["slow", "failing 0", "slow has ended", "failing 1"]
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create/slow": "done"}


async def test_a_filter_of_a_sub_handler_that_fails_is_shown_with_its_own_frames(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def is_big(spec: Any) -> bool:
        return bool(spec["colour"])

    @on.create("widgets", id="create", retries=1, registry=bench.registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler(id="inner", when=is_big)
        async def inner() -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    [record] = [record for record in caplog.records if "failed with an exception" in record.getMessage()]
    assert "A filter of Handler 'create/inner' has failed: KeyError('colour')" in record.getMessage()
    assert record.exc_info is not None
    assert traceback.extract_tb(record.exc_info[2])[0].name == "is_big"


async def test_filters_restrict_sub_handlers(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    @on.update("widgets", id="update", registry=bench.registry)
    async def update(**_: Any) -> None:
        @trioperator.subhandler(labels={"some": "label"})
        async def labelled() -> None:
            calls.append("labelled")

        @trioperator.subhandler(when=lambda spec: spec["size"] > 5)
        async def big() -> None:
            calls.append("big")

        @trioperator.subhandler(field="spec.colour", new="red")
        async def reddened(old: Any, new: Any) -> None:
            calls.append(f"{old} to {new}")

        @trioperator.subhandler(field="spec.size", value=trioperator.PRESENT)
        async def resized(diff: trioperator.Diff) -> None:
            calls.append(str(diff[0].new))

    async with bench.running():
        await bench.cluster.create(widget(size=1, colour="blue"))
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        assert calls == ["2"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 9, "colour": "red"}})
        await settle(1)
    assert calls == ["2", "big", "blue to red", "9"]


async def test_sub_handlers_of_a_field_see_the_change_of_the_field(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.field("widgets", id="first", field="spec.items", registry=bench.registry)
    async def first(new: Any, patch: trioperator.Patch) -> None:
        patch.status["items"] = dict(new)

    @on.field("widgets", id="items", field="spec.items", registry=bench.registry)
    async def items(diff: trioperator.Diff, **_: Any) -> None:
        for _op, path, _old, _new in diff:

            @trioperator.subhandler(id=".".join(path))
            async def item(old: Any, new: Any, body: Any) -> None:
                seen.append((old, new, body["status"]["items"]))  # as the first handler wants it stored

            @trioperator.subhandler(id=".".join(path) + "-itself", field=path)
            async def itself(old: Any, new: Any) -> None:
                seen.append((old, new))

    async with bench.running():
        await bench.cluster.create(widget(items={"a": 1}))
        await settle(1)
        seen.clear()
        await bench.cluster.patch("widgets", "w", {"spec": {"items": {"a": 2}}})
        await settle(1)
    assert seen == [({"a": 1}, {"a": 2}, {"a": 2}), (1, 2)]


async def test_patches_of_parents_and_sub_handlers_are_stored_in_the_order_of_calls(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["first"] = "parent"
        patch.status["kept"] = "parent"
        patch.status["deep"] = {"a": 1}
        await trioperator.execute(fns=[child])
        patch.status["deep"]["b"] = 2
        patch.status["last"] = "parent"

    async def child(status: Any, patch: trioperator.Patch) -> None:
        seen.append(dict(status))
        patch.status["first"] = "child"
        patch.status["last"] = "child"
        patch.status["deep"] = {"a": 3}

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert seen == [{"first": "parent", "kept": "parent", "deep": {"a": 1}}]
    status = (await bench.cluster.get("widgets", "w"))["status"]
    assert status == {"first": "child", "kept": "parent", "last": "parent", "deep": {"a": 3, "b": 2}}
    assert sorted(bench.writes()) == ["PATCH main", "PATCH status"]


async def test_handlers_and_registries_can_be_executed(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []
    others = trioperator.OperatorRegistry()

    @on.create("widgets", id="creation", registry=others)
    async def creation(**_: Any) -> str:
        calls.append("creation")
        return "created"

    @on.update("widgets", id="updating", registry=others)
    async def updating(**_: Any) -> None:
        calls.append("updating")

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(**_: Any) -> None:
        await trioperator.execute(registry=others)

    @on.create("widgets", id="other", registry=bench.registry)
    async def other(**_: Any) -> None:
        await trioperator.execute(handlers=list(others))  # type: ignore[arg-type]

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert calls == ["creation", "creation"]
    status = (await bench.cluster.get("widgets", "w"))["status"]
    assert status == {"one/creation": "created", "other/creation": "created"}


async def test_a_change_amid_sub_handlers_is_seen_by_the_rest(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[tuple[str, int]] = []

    @on.create("widgets", id="handle", registry=bench.registry)
    @on.update("widgets", id="handle", registry=bench.registry)
    async def handle(spec: Any, **_: Any) -> None:
        async def child(name: str) -> None:
            await trio.sleep(5)
            seen.append((name, spec["size"]))

        for name in "abc":
            trioperator.register(functools.partial(child, name), id=name)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(7)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(100)
    # The first two have seen the old state; then all see the new one, as those must that were too early.
    assert seen[:3] == [("a", 1), ("b", 1), ("c", 2)]
    assert seen[3:] == [("a", 2), ("b", 2), ("c", 2)]


async def test_sub_handlers_that_have_ended_are_not_called_by_the_next_operator(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []
    last_life = False

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("parent")
        await trioperator.execute(fns={"a": functools.partial(child, "a"), "b": functools.partial(child, "b")})
        await trioperator.execute(fns={"c": functools.partial(child, "c")})

    async def child(name: str, retry: int) -> None:
        calls.append(name)
        if name != "a" and not last_life:
            await trio.sleep(60)

    with trio.move_on_after(2):  # cancelled without warning, long after the first one has ended
        async with bench.running():
            await bench.cluster.create(widget())
            await trio.sleep_forever()
    waiting = records(await bench.cluster.get("widgets", "w"))
    assert waiting["create.a"]["success"] is True
    assert waiting["create"]["subrefs"] == ["create/a", "create/b"]
    assert calls == ["parent", "a", "b"]
    calls.clear()
    last_life = True
    async with bench.running():
        await settle(10)
    assert calls == ["parent", "b", "c"]
    assert records(await bench.cluster.get("widgets", "w")) == {}


async def test_a_stop_waits_for_the_sub_handler_at_work_and_calls_no_other(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        for name in "ab":
            trioperator.register(functools.partial(child, name), id=name)

    async def child(name: str) -> None:
        await trio.sleep(5)
        calls.append(name)

    async with bench.running() as stop:
        await bench.cluster.create(widget())
        await settle(2)
        stop()
    assert calls == ["a"]
    assert records(await bench.cluster.get("widgets", "w"))["create.a"]["success"] is True
    async with bench.running():
        await settle(10)
    assert calls == ["a", "b"]


async def test_the_end_of_a_sub_handler_is_stored_while_its_parent_goes_on(
    bench: Bench, autojump_clock: MockClock
) -> None:
    stored: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        await trioperator.execute(fns={"child": child})
        await trio.sleep(1)
        stored.append(records(await bench.cluster.get("widgets", "w")))
        await trio.sleep(20)

    async def child() -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(60)
    assert stored[0]["create.child"]["success"] is True
    assert bench.writes() == ["PATCH main", "PATCH main"]


async def test_a_superseding_cause_calls_sub_handlers_again_and_leaves_nothing_behind(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="handle", registry=bench.registry)
    @on.delete("widgets", id="handle", registry=bench.registry)
    async def handle(reason: str, **_: Any) -> None:
        await trioperator.execute(fns={"a": functools.partial(child, "a"), "b": functools.partial(child, "b")})

    async def child(name: str, reason: str, retry: int) -> None:
        calls.append(f"{reason} {name}")
        if name == "b" and reason == "create":
            raise trioperator.TemporaryError("not yet", delay=60)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        assert await bench.cluster.list("widgets") == []
    assert calls == ["create a", "create b", "delete a", "delete b"]


async def test_optional_delete_handlers_have_sub_handlers_when_the_object_is_gone(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[Any] = []

    @on.delete("widgets", id="delete", optional=True, registry=bench.registry)
    async def delete(**_: Any) -> None:
        await trioperator.execute(fns=[child])
        calls.append("end")

    async def child(retry: int) -> None:
        calls.append(retry)
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=5)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(10)
    assert calls == [0, 1, "end"]


async def test_a_timeout_covers_the_sub_handlers(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="create", timeout=10, registry=bench.registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler()
        async def child() -> None:
            calls.append(trio.current_time())
            await trio.sleep(60)
            calls.append("too late")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert len(calls) == 1
    assert records(await bench.cluster.get("widgets", "w")) == {}


async def test_others_records_are_not_taken_for_those_of_sub_handlers(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    manifest = widget()
    refs = ["create/a", "last-handled-configuration", "other", 5]
    manifest["metadata"]["annotations"] = {
        f"{PREFIX}create": json.dumps({"purpose": "create", "subrefs": refs[:3]}),
        f"{PREFIX}create.a": json.dumps({"purpose": "create", "retries": 1}),
        f"{PREFIX}other": json.dumps({"purpose": "create", "retries": 1}),
    }
    async with bench.running():
        await bench.cluster.create(manifest)
        await settle(10)
    left = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert set(left) == {f"{PREFIX}{key}" for key in ("other", "last-handled-configuration", "kopf-managed")}


@pytest.mark.parametrize("how", ["subhandler", "register", "execute"])
async def test_sub_handlers_are_for_handlers_of_changes_only(
    how: str, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[BaseException] = []

    async def use() -> None:
        if how == "subhandler":
            trioperator.subhandler()(use)
        elif how == "register":
            trioperator.register(use)
        else:
            await trioperator.execute(fns=[use])

    @on.event("widgets", registry=bench.registry)
    async def event(**_: Any) -> None:
        try:
            await use()
        except RuntimeError as error:
            errors.append(error)

    @on.daemon("widgets", registry=bench.registry)
    async def daemon(**_: Any) -> None:
        try:
            await use()
        except RuntimeError as error:
            errors.append(error)

    @on.index("widgets", registry=bench.registry)
    async def index(**_: Any) -> None:
        try:
            await use()
        except RuntimeError as error:
            errors.append(error)

    with pytest.raises(RuntimeError, match=rf"{how}\(\) works only in a running change handler"):
        await use()
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert len(errors) >= 3


async def test_sub_handlers_are_not_executed_from_threads(bench: Bench, autojump_clock: MockClock) -> None:
    errors: list[str] = []

    @on.create("widgets", registry=bench.registry)
    def create(**_: Any) -> None:
        try:
            trio.from_thread.run(trioperator.execute)
        except RuntimeError as error:
            errors.append(str(error))

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert "not in a thread" in errors[0]


async def test_what_is_declared_wrongly_is_an_error_that_says_so(bench: Bench, autojump_clock: MockClock) -> None:
    errors: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        def child(nonsense: int) -> None: ...

        async def same(**_: Any) -> None: ...

        trioperator.register(same, id="same")
        trioperator.register(same, id="same")  # twice is once
        for declare in (
            lambda: trioperator.register(child),
            lambda: trioperator.register(lambda: None, id="same"),
            lambda: trioperator.register(same, id="same", param=1),
            lambda: trioperator.register("text"),  # type: ignore[type-var]
            lambda: trioperator.register(same, nonsense=1),  # type: ignore[call-arg]
            lambda: trioperator.subhandler(field="spec", old=1)(same),
            lambda: trioperator.subhandler(value=1)(same),
            lambda: trioperator.subhandler(retries=-1)(same),
        ):
            with pytest.raises((TypeError, ValueError, trioperator.ConfigError)) as raised:
                declare()
            errors.append(str(raised.value))
        wrong: list[dict[str, Any]] = [{"fns": {}, "handlers": []}, {"fns": 5}, {"fns": [same], "lifecycle": 5}]
        for options in wrong:
            with pytest.raises(TypeError) as caught:
                await trioperator.execute(**options)
            errors.append(str(caught.value))

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    for error, words in zip(
        errors,
        (
            "requires arguments that do not exist: nonsense",
            "has two sub-handlers with the id",
            "has two sub-handlers with the id",
            "must be a function",
            "has no option nonsense",
            "only sub-handlers of on.update and on.field",
            "without field=",
            "retries=-1",
            "one of fns=, handlers= and registry=",
            "must be a mapping of ids",
            "A lifecycle must be a sync function",
        ),
        strict=True,
    ):
        assert words in error


@pytest.mark.parametrize("sync", [True, False])
async def test_any_error_of_a_sub_handler_is_its_own(bench: Bench, autojump_clock: MockClock, sync: bool) -> None:
    class Odd(BaseException):
        """What is no Exception, as some extension modules raise it."""

    calls: list[str] = []

    @on.create("widgets", id="create", retries=1, registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("parent")
        trioperator.register(fail if sync else fail_async, id="odd", retries=2, backoff=1)
        trioperator.register(other, id="other")

    def fail(**_: Any) -> None:
        calls.append("odd")
        raise Odd

    async def fail_async(**_: Any) -> None:
        fail()

    def other(**_: Any) -> None:
        calls.append("other")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == ["parent", "odd", "other", "parent", "odd"]
    assert records(await bench.cluster.get("widgets", "w")) == {}
