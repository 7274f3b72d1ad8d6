"""Tests for :mod:`trioperator._runtime.cache.succession`.

A kind gets other versions, and what is done for objects goes on.
"""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.announcing import announce, withdraw
from tests.coordination.peers import peering, peering_crd
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.succession import serve
from trioperator import on
from trioperator.testing import Fault, FaultPlan, FaultyTransport

Versions = list[dict[str, Any]]


class Work:
    """What handlers of widgets do, and when."""

    def __init__(self, bench: Bench, *selector: str) -> None:
        self.calls: list[str] = []
        self.at_once = self.at_work = 0
        registry = bench.registry

        @on.create(*selector, registry=registry)
        async def create(name: str, retry: int, spec: trioperator.Spec, **_: Any) -> None:
            await self.call(f"create {name}", 10)
            if retry < spec.get("failures", 0):
                raise trioperator.TemporaryError("not yet", delay=20)

        @on.create(*selector, registry=registry, id="then")
        async def then(name: str, **_: Any) -> None:
            await self.call(f"then {name}", 10)

        @on.resume(*selector, registry=registry)
        async def resume(name: str, **_: Any) -> None:
            await self.call(f"resume {name}", 10)

        @on.update(*selector, registry=registry)
        async def update(name: str, new: Any, memo: trioperator.Memo, **_: Any) -> None:
            await self.call(f"update {name} {new['spec']['size']}", 10)

        @trioperator.daemon(*selector, registry=registry)
        async def once(name: str, **_: Any) -> None:
            self.calls.append(f"daemon {name}")

    async def call(self, name: str, seconds: float) -> None:
        self.calls.append(name)
        self.at_work += 1
        self.at_once = max(self.at_once, self.at_work)
        await trio.sleep(seconds)
        self.at_work -= 1


@pytest.mark.parametrize("moment", [0.0, 5, 10, 15, 25, 60])
@pytest.mark.parametrize("name", ["v2", "v1beta1"])
async def test_another_version_changes_nothing_about_what_is_handled(
    name: str, moment: float, bench: Bench, autojump_clock: MockClock
) -> None:
    work = Work(bench, "widgets")
    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(moment)
        await serve(bench, "v1", name)
        await settle(60)
        await serve(bench, "v1", name, "v3")
        await settle(60)
        await serve(bench, "v1")
        await settle(60)
        assert sorted(work.calls) == ["create w", "daemon w", "then w"]
        assert work.at_once == 1
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
    assert sorted(work.calls) == ["create w", "daemon w", "then w", "update w 2"]


async def test_a_daemon_that_ends_while_the_first_event_of_another_version_is_handled_is_not_called_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.event("widgets", registry=bench.registry)
    async def note(**_: Any) -> None:
        await trio.sleep(10)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def once(memo: trioperator.Memo, **_: Any) -> None:
        await trio.sleep(35)
        calls.append("ended")
        memo.ended = True

    @trioperator.timer("widgets", registry=bench.registry, initial_delay=100, interval=1000)
    async def look(memo: trioperator.Memo, **_: Any) -> None:
        calls.append(f"ended: {memo.ended}")

    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(40)  # it has begun at 10
        await serve(bench, "v1", "v2")
        await settle(200)
    assert calls == ["ended", "ended: True"]


@pytest.mark.parametrize("indexed", [False, True])
async def test_objects_that_come_at_the_same_time_as_another_version_are_handled_once(
    indexed: bool, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        calls.append(name)
        await trio.sleep(2)

    if indexed:

        @trioperator.index("widgets", registry=bench.registry)
        async def sizes(name: str, **_: Any) -> dict[str, str]:
            await trio.lowlevel.checkpoint()
            return {name: name}

    names = [f"w{number}" for number in range(20)]
    async with bench.running():
        for number, name in enumerate(names):
            await serve(bench, *("v1", "v2")[: 1 + number % 2])
            await bench.cluster.create(widget(name, size=1))
            await settle(10)
    assert calls == names


@pytest.mark.parametrize("seconds", [0, 5])
async def test_a_daemon_of_several_versions_that_has_ended_is_not_called_again(
    seconds: float, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []
    await serve(bench, "v1", "v2")

    @trioperator.daemon("example.com", "v1", "widgets", registry=bench.registry)
    @trioperator.daemon("example.com", "v2", "widgets", registry=bench.registry)
    async def once(name: str, **_: Any) -> None:
        calls.append(name)
        await trio.sleep(seconds)

    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(60)
    assert calls == ["w"]


async def test_a_change_that_comes_with_another_version_is_handled_after_the_one_before(
    bench: Bench, autojump_clock: MockClock
) -> None:
    work = Work(bench, "widgets")
    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        await serve(bench, "v1", "v2")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(100)
    assert [call for call in work.calls if "daemon" not in call] == ["create w", "then w", "update w 2"]
    assert work.at_once == 1


async def test_attempts_are_counted_on_in_another_version(bench: Bench, autojump_clock: MockClock) -> None:
    work = Work(bench, "widgets")
    async with bench.running():
        await bench.cluster.create(widget("w", size=1, failures=2))
        await settle(15)
        await serve(bench, "v1", "v2")
        await settle(200)
    assert sorted(work.calls) == ["create w"] * 3 + ["daemon w", "then w"]
    assert work.at_once == 1


async def test_a_kind_that_is_not_served_for_a_while_is_remembered(bench: Bench, autojump_clock: MockClock) -> None:
    work = Work(bench, "widgets")
    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        await serve(bench, "v1", "v2", unserved="v1")
        await settle(1)
        await serve(bench, "v1", "v2")
        await settle(100)
        assert sorted(set(work.calls)) == ["create w", "daemon w", "then w"]
        work.calls.clear()
        await serve(bench, "v1", "v2", unserved="v2")
        await settle(30)
        await serve(bench, "v1", "v2", "v3", unserved="v1")
        await settle(100)
    assert work.calls == []
    assert work.at_once == 1


async def test_handlers_of_several_versions_of_an_object_never_run_at_the_same_time(
    bench: Bench, autojump_clock: MockClock
) -> None:
    general = Work(bench, "widgets")

    @on.create("example.com", "v1", "widgets", registry=bench.registry, id="first")
    async def first(name: str, **_: Any) -> None:
        await general.call(f"first {name}", 10)

    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        await serve(bench, "v1", "v2")
        await settle(200)
    assert general.at_once == 1
    assert "resume w" not in general.calls
    assert general.calls.count("daemon w") == 1


async def test_what_was_handled_in_another_version_is_remembered_over_pauses(
    bench: Bench, autojump_clock: MockClock
) -> None:
    work = Work(bench, "widgets")
    await bench.cluster.apply(peering_crd())
    await bench.cluster.create(peering())
    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(60)
        before = sorted(work.calls)
        await serve(bench, "v1", "v2", unserved="v1")
        await settle(5)
        await announce(10)(bench.cluster)
        await settle(5)
        await serve(bench, "v1", "v3")
        await settle(5)
        await withdraw(bench.cluster)
        await settle(60)
        await serve(bench, "v1", "v2", unserved="v2")
        await announce(10)(bench.cluster)  # before its objects are listed
        await settle(5)
        await withdraw(bench.cluster)
        await settle(60)
    assert sorted(work.calls) == before


async def test_index_functions_share_the_memos_of_objects_over_versions(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[list[str]] = []

    @on.index("widgets", registry=bench.registry)
    async def indexed(memo: trioperator.Memo, resource: trioperator.Resource) -> None:
        memo.setdefault("versions", []).append(resource.version)

    @on.event("widgets", registry=bench.registry)
    async def event(memo: trioperator.Memo) -> None:
        seen.append(list(memo["versions"]))

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(5)
        await serve(bench, "v2", "v1")
        await settle(60)
    assert seen == [["v1"], ["v1", "v2"]]


@pytest.mark.parametrize("change", ["changed", "deleted"])
@pytest.mark.parametrize("versions", [["v2"], ["v2", "v3"]])
@pytest.mark.parametrize("delay", [0.0, 5])
async def test_a_change_after_another_version_has_come_interrupts_what_is_at_work(
    change: str,
    versions: list[str],
    delay: float,
    bench: Bench,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: MockClock,
) -> None:
    calls: list[str] = []

    @on.create("widgets", registry=bench.registry, on_change="cancel")
    @on.update("widgets", registry=bench.registry, on_change="cancel")
    async def handle(spec: trioperator.Spec) -> None:
        calls.append(f"begin {spec['size']}")
        try:
            await trio.sleep(1000 if spec["size"] == 1 else 1)
        except trio.Cancelled:
            calls.append("interrupted")
            raise

    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        for count in range(len(versions)):
            await serve(bench, "v1", *versions[: count + 1])
            await settle(delay)
        if change == "changed":
            await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        else:
            await bench.cluster.delete("widgets", "w")
        await settle(20)
        assert calls[:2] == ["begin 1", "interrupted"]
        assert calls[2:] == ["begin 2"] * (change == "changed")
    assert "could not be handled" not in caplog.text


@pytest.mark.parametrize("edited", [False, True])
async def test_a_handler_that_has_ended_is_not_called_again_as_the_next_version_knows_an_older_state(
    edited: bool, bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.persistence.write_delay = 30
    calls: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")
        await trio.sleep(10)

    @on.create("widgets", registry=bench.registry)
    async def second(retry: int, **_: Any) -> None:
        calls.append("second")
        await trio.sleep(10)
        if retry == 0:
            raise trioperator.TemporaryError("not yet", delay=1)

    plan = FaultPlan()
    plan.add(Fault.lag(0.5), verb="watch", resource="widgets")  # so that other states come later than own writes
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        await serve(bench, "v1", "v2")
        await settle(1)
        await serve(bench, "v1", "v2", "v3")
        await settle(1)
        if edited:
            await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"by": "others"}}})
        await settle(60)
    assert calls == ["first", "second", "second"]


async def test_what_is_to_be_stored_on_an_object_that_is_gone_with_its_version_is_dropped(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def mark(patch: trioperator.Patch, **_: Any) -> None:
        await trio.sleep(5)
        patch.meta.annotations["mark"] = "yes"

    plan = FaultPlan()
    plan.add(Fault.status(503), verb="patch", resource="widgets", until=trio.current_time() + 20)
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget())
        await settle(6)
        await serve(bench, "v1", "v2")
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await bench.cluster.create(widget())
        await settle(100)
        bench.cluster.requests.clear()
        await settle(1000)
    assert [request.path for request in bench.cluster.requests if request.verb == "patch"] == []


async def test_memories_are_handed_on_over_versions_that_have_not_been_listed(
    bench: Bench, autojump_clock: MockClock
) -> None:
    work = Work(bench, "widgets")
    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w", size=1))
        await settle(60)
        before = sorted(work.calls)
        plan.add(Fault.stall(), verb="list", resource="widgets", times=1)
        await serve(bench, "v1", "v2")
        await settle(1)
        await serve(bench, "v1", "v2", "v3")
        await settle(60)
    assert sorted(work.calls) == before


async def test_a_list_of_another_version_that_is_late_does_not_bring_back_what_was_handled_meanwhile(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls, plan = list[str](), FaultPlan()

    @on.create("widgets", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        calls.append(f"create {name}")
        await trio.sleep(10)

    @on.update("widgets", registry=bench.registry)
    async def update(name: str, **_: Any) -> None:
        calls.append(f"update {name}")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        plan.add(Fault.delay(after=20), verb="list", resource="widgets")
        await serve(bench, "v1", "v2")
        await settle(15)
        assert calls == ["create w"]
        await settle(60)
        assert calls == ["create w"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
    assert calls == ["create w", "update w"]


async def test_a_list_of_another_version_that_is_late_does_not_bring_back_what_was_deleted_meanwhile(
    bench: Bench, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    calls, plan = list[str](), FaultPlan()

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("create")
        await trio.sleep(10)

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        plan.add(Fault.delay(after=20), verb="list", resource="widgets")
        plan.add(Fault.lag(5), verb="watch", resource="widgets")
        await serve(bench, "v1", "v2")
        await settle(10)
        await bench.cluster.delete("widgets", "w")
        await settle(60)
    assert calls == ["create", "delete"]
    assert "could not be handled" not in caplog.text


@pytest.mark.parametrize("lag", [0, 5])
async def test_delete_handlers_that_were_called_in_another_version_are_not_called_again(
    lag: float, bench: Bench, autojump_clock: MockClock
) -> None:
    calls, plan = list[str](), FaultPlan()

    @on.delete("widgets", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")
        await trio.sleep(10)

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def second(**_: Any) -> None:
        calls.append("second")

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        plan.add(Fault.lag(lag), verb="watch", resource="widgets")
        await serve(bench, "v1", "v2")
        await settle(60)
        assert await bench.cluster.find("widgets", "w") is None
    assert sorted(calls) == ["first", "second"]


async def test_delete_handlers_that_were_called_before_a_pause_are_not_called_again(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls = list[str]()
    await bench.cluster.apply(peering_crd())
    await bench.cluster.create(peering())

    @on.delete("widgets", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def second(**_: Any) -> None:
        calls.append("second")

    async with bench.running():
        body = widget("w", size=1)
        body["metadata"]["finalizers"] = ["example.com/others"]
        await bench.cluster.create(body)
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        await announce(10)(bench.cluster)
        await settle(5)
        await withdraw(bench.cluster)
        await settle(60)
        await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
        await settle(60)
        assert await bench.cluster.find("widgets", "w") is None
    assert sorted(calls) == ["first", "second"]


@pytest.mark.parametrize("unserved", ["at once", "later"])
async def test_what_is_not_stored_yet_is_stored_before_the_next_version_is_handled(
    unserved: str, bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.persistence.write_delay = 30
    bench.settings.networking.error_backoffs = []
    calls: list[str] = []

    def see(spec: trioperator.Spec, patch: trioperator.Patch) -> None:
        patch.fns.append(lambda body: body.setdefault("status", {}).update(seen=spec["size"]))

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("create")

    @on.create("widgets", registry=bench.registry)
    async def see_first(spec: trioperator.Spec, patch: trioperator.Patch, **_: Any) -> None:
        await trio.sleep(10)
        see(spec, patch)

    @on.update("widgets", registry=bench.registry)
    async def see_next(spec: trioperator.Spec, patch: trioperator.Patch, **_: Any) -> None:
        see(spec, patch)

    plan = FaultPlan()
    plan.add(Fault.status(503), verb="patch", resource="widgets", times=1)  # when the handler ends
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        if unserved == "later":
            await serve(bench, "v1", "v2")
            await settle(1)
        await serve(bench, "v1", "v2", unserved="v1")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(60)
        stored = await bench.cluster.get("widgets", "w")
    assert calls == ["create"]
    assert stored["status"]["seen"] == 2


async def test_records_of_handlers_are_removed_though_the_last_one_ends_after_another_version_has_come(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.update("widgets", registry=bench.registry)
    async def first(spec: trioperator.Spec, **_: Any) -> None:
        calls.append(f"first {spec['size']}")

    @on.update("widgets", registry=bench.registry)
    async def second(spec: trioperator.Spec, retry: int, **_: Any) -> None:
        if spec["size"] == 2 and retry == 0:
            raise trioperator.TemporaryError("not yet", delay=5)
        await trio.sleep(10)
        calls.append(f"second {spec['size']}")

    async with bench.running():
        await bench.cluster.create(widget("w", size=1))
        await settle(5)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        await serve(bench, "v1", "v2")
        await settle(20)
        stored = await bench.cluster.get("widgets", "w")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(20)
    names = {name.removeprefix("trioperator.dev/") for name in stored["metadata"]["annotations"]}
    assert names == {"kopf-managed", "last-handled-configuration"}
    assert calls == ["first 2", "second 2", "first 3", "second 3"]


@pytest.mark.parametrize("labels", [None, {"on": "yes"}])
async def test_deletions_before_another_version_is_listed_are_handled(
    labels: Any, bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[tuple[str, str]] = []

    @on.delete("widgets", optional=True, labels=labels, registry=bench.registry)
    async def delete(name: str, memo: trioperator.Memo, **_: Any) -> None:
        calls.append((f"delete {memo.size}", name))

    @on.event("widgets", labels=labels, registry=bench.registry)
    async def event(type: str | None, name: str, memo: trioperator.Memo, spec: trioperator.Spec, **_: Any) -> None:
        memo.size = spec["size"]
        if type == "DELETED":
            calls.append((type, name))

    plan = FaultPlan()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        for name in ("deleted", "kept", "left"):
            made = widget(name, size=1)
            made["metadata"]["labels"] = {"on": "yes"}
            await bench.cluster.create(made)
        await settle(5)
        plan.add(Fault.delay(before=3), verb="list", resource="widgets", until=trio.current_time() + 2)
        await serve(bench, "v1", "v2")
        await settle(1)
        await bench.cluster.delete("widgets", "deleted")
        if labels:
            await bench.cluster.patch("widgets", "left", {"metadata": {"labels": {"on": "no"}}})
        await settle(60)
    assert calls == [("DELETED", "deleted"), ("delete 1", "deleted")]


async def test_a_deletion_that_waits_for_a_handler_is_handled_though_another_version_comes(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @on.delete("widgets", optional=True, registry=bench.registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    @on.event("widgets", registry=bench.registry)
    async def event(type: str | None, **_: Any) -> None:
        calls.append(str(type))
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget("w"))
        await settle(5)
        await bench.cluster.delete("widgets", "w")
        await serve(bench, "v1", "v2")
        await settle(60)
    assert calls == ["ADDED", "DELETED", "delete"]


def _create(notes: list[str], registry: trioperator.OperatorRegistry) -> None:
    @on.create("example.com", "v1", "widgets", registry=registry)
    async def create(**_: Any) -> None:
        notes.append("created")


def _event(notes: list[str], registry: trioperator.OperatorRegistry) -> None:
    on.event("example.com", "v1", "widgets", registry=registry)(lambda **_: None)


def _reconcile(notes: list[str], registry: trioperator.OperatorRegistry) -> None:
    @on.reconcile("example.com", "v1", "widgets", owns=["configmaps"], registry=registry)
    async def reconcile(**_: Any) -> list[Any]:
        return []


def _delete(notes: list[str], registry: trioperator.OperatorRegistry) -> None:
    @on.delete("widgets", registry=registry)
    async def delete(retry: int, **_: Any) -> None:
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=10)
        notes.append("deleted")


def _daemon(notes: list[str], registry: trioperator.OperatorRegistry) -> None:
    @trioperator.daemon("widgets", registry=registry)
    async def daemon(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        await trio.sleep(20)
        notes.append("daemon ended")


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("earlier", [_create, _event, _reconcile])
@pytest.mark.parametrize("preferred", [[_delete], [_daemon], [_delete, _daemon]])
async def test_handlers_of_several_versions_agree_on_the_finalizer(
    bench: Bench, earlier: Any, preferred: list[Any], restarts: bool, autojump_clock: MockClock
) -> None:
    notes: list[str] = []
    for declare in (earlier, *preferred):
        declare(notes, bench.registry)
    await serve(bench, "v1", "v2")
    async with bench.running() as stop:
        await bench.cluster.create(widget())
        await settle(1)
        writes = bench.writes()
        assert len(writes) <= 3
        await settle(60)
        assert bench.writes() == writes
        if restarts:
            stop()
            await settle(60)
        notes.clear()
        await bench.cluster.delete("widgets", "w")
        await settle(60)
    async with bench.running():
        await settle(60)
        assert await bench.cluster.find("widgets", "w") is None
    ends = {"_delete": "deleted", "_daemon": "daemon ended"}
    expected = sorted(ends[declare.__name__] for declare in preferred)
    assert sorted(notes) == ([note for note in expected if note == "deleted"] if restarts else expected)
