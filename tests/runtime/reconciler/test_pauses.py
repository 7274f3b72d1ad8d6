"""Tests for :mod:`trioperator._runtime.reconciler.pauses`.

Thirty ways in which an object is paused, and what is done afterwards.

In each, nothing is written to the object's spec, status and children while the pause is in effect, but the condition
that says so; and everything that was missed is done when it is over.
"""

from __future__ import annotations

import datetime
import threading
from typing import Any

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, settle, widget
from tests.runtime.daemons.test_wall_clock import set_clock
from tests.runtime.pausing import PAUSED, POKED, World, config_map, crd_with_conditions, make_settled
from trioperator import on
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan
from trioperator.testing.plans import Selection

# All writes of widgets, and those of their statuses only.
WRITES: list[Selection] = [{"verb": "patch", "resource": "widgets"}, {"verb": "patch", "subresource": "status"}]

SHARDS = 4


@pytest.fixture
async def world(cluster: Cluster) -> World:
    await cluster.apply(crd_with_conditions())
    return World(cluster)


# The pause itself.


async def test_a_paused_object_gets_one_condition_and_one_event(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        before = len(world.writes())
        await world.pause("until=2099-12-01T00:00Z reason=DBA at work")
        assert world.writes()[before:] == ["patch widgets/w status"]
        assert await world.condition() == ("True", "PausedByAnnotation", "until 2099-12-01T00:00:00Z: DBA at work")
        async with world.quiet():
            await settle(3600)
    assert await world.events() == [("Normal", "Paused", "until 2099-12-01T00:00:00Z: DBA at work")]


async def test_the_condition_goes_with_the_pause(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        before = len(world.writes())
        await world.unpause()
        assert await world.condition() is None
        assert world.writes()[before:] == ["patch widgets/w status"]
    assert [text for _, _, text in await world.events()] == ["It is paused.", "It is no longer paused."]


async def test_a_changed_reason_is_shown(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause("reason=one")
        async with world.quiet("patch widgets/w status"):
            await world.pause("reason=two")
        assert await world.condition() == ("True", "PausedByAnnotation", "two")


async def test_a_value_that_cannot_be_read_pauses_and_is_told(
    world: World, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause("until=tomorrow")
        condition = await world.condition()
        assert condition is not None
        assert condition[:2] == ("True", "InvalidAnnotation")
        assert "'until=tomorrow'" in condition[2]
        async with world.quiet():
            await world.edit(2)
    assert [(sort, reason) for sort, reason, _ in await world.events()] == [("Warning", "Paused")]
    assert "'until=tomorrow'" in caplog.text


async def test_false_does_not_pause(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause("false")
        await world.edit(2)
        assert (await world.get())["status"]["size"] == 2


async def test_a_kind_without_conditions_gets_an_event_only(
    world: World, cluster: Cluster, autojump_clock: MockClock
) -> None:
    await cluster.apply(CRD)
    async with world.running_operator():
        await make_settled(world)
        async with world.quiet():
            await world.pause()
            await settle(3600)
        assert await world.condition() is None
    assert [reason for _, reason, _ in await world.events()] == ["Paused"]


@pytest.mark.parametrize("status", [{"size": {"type": "integer"}}, {"conditions": {"type": "string"}}])
async def test_a_status_whose_schema_has_no_list_of_conditions_gets_none(
    status: dict[str, Any], world: World, cluster: Cluster, autojump_clock: MockClock
) -> None:
    crd = crd_with_conditions()
    (version,) = crd["spec"]["versions"]
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = {"type": "object", "properties": status}
    await cluster.apply(crd)
    async with world.running_operator():
        await make_settled(world)
        async with world.quiet():
            await world.pause()
            await settle(3600)
    assert [reason for _, reason, _ in await world.events()] == ["Paused"]


# What happens meanwhile.


async def test_an_edit_is_handled_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        async with world.quiet():
            await world.edit(2)
            await world.edit(3)
            await settle(600)
        mark = len(world.calls)
        await world.unpause()
        assert world.since(mark).count("update") == 1
        assert (await world.get())["status"]["size"] == 3
        assert await world.children() == {"w-a": "3", "w-b": "3"}


async def test_an_edit_that_was_taken_back_is_none(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        await world.edit(2)
        await world.edit(1)
        mark = len(world.calls)
        await world.unpause()
        assert "update" not in world.since(mark)


async def test_labels_that_were_changed_call_field_handlers_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        async with world.quiet():
            await world.cluster.patch("widgets", "w", {"metadata": {"labels": {"a": "b"}}})
        mark = len(world.calls)
        await world.unpause()
        assert "field" in world.since(mark)


async def test_raw_events_are_passed_on_once_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        await world.edit(2)
        await world.edit(3)
        mark = len(world.calls)
        await world.unpause()
        assert world.since(mark)[0] == "event MODIFIED"


async def test_indices_follow_a_paused_object(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        await world.edit(7)
        probe = {**config_map("probe", 0), "data": {}}
        probe["metadata"] = {"name": "probe", "labels": {"probe": "yes"}}
        await world.cluster.create(probe, "default")
        await settle(1)
        assert world.calls[-1] == "index 7"


async def test_a_drifted_child_is_mended_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        async with world.quiet():
            await world.cluster.patch("configmaps", "w-a", {"data": {"size": "9"}}, "default")
            await settle(60)
        await world.unpause()
        assert await world.children() == {"w-a": "1", "w-b": "1"}


async def test_a_deleted_child_comes_back_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        async with world.quiet():
            await world.cluster.delete("configmaps", "w-b", "default")
            await settle(60)
        await world.unpause()
        assert await world.children() == {"w-a": "1", "w-b": "1"}


async def test_a_mapper_that_names_a_paused_object_does_nothing(world: World, autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @on.reconcile("widgets", watches={"secrets": lambda **_: ["w"]}, registry=registry)
    async def reconcile(**_: Any) -> None:
        world.calls.append("reconcile")

    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "default"}}
    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(1)
        await world.pause()
        async with world.quiet():
            await world.cluster.create(secret)
        await world.unpause()
        assert world.calls == ["reconcile", "reconcile"]


async def test_an_object_that_is_created_paused_is_created_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        manifest = widget()
        manifest["metadata"]["annotations"] = {PAUSED: "true"}
        async with world.quiet("patch widgets/w status"):
            await world.cluster.create(manifest)
            await settle(60)
        assert "finalizers" not in (await world.get())["metadata"]
        await world.unpause()
        await settle(10)
        assert world.since(0)[:1] == ["event ADDED"]
        assert world.since(0).count("create") == 1
        assert await world.children() == {"w-a": "1", "w-b": "1"}
        assert world.running == ["daemon"]


# Deletion.


async def test_deletion_goes_on(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        await world.cluster.delete("widgets", "w")
        await settle(10)
        assert await world.cluster.find("widgets", "w") is None
        assert world.since(0).count("delete") == 1


async def test_a_setting_holds_the_deletion(world: World, autojump_clock: MockClock) -> None:
    settings = world.settings("one")
    settings.pausing.holds_deletion = True
    async with world.running_operator(settings=settings):
        await make_settled(world)
        await world.pause()
        async with world.quiet():
            await world.cluster.delete("widgets", "w")
            await settle(3600)
        await world.unpause()
        await settle(10)
        assert await world.cluster.find("widgets", "w") is None
        assert world.since(0).count("delete") == 1


# The end.


async def test_a_deletion_that_is_held_goes_on_when_the_pause_expires(
    world: World, cluster: Cluster, autojump_clock: MockClock
) -> None:
    settings = world.settings("one")
    settings.pausing.holds_deletion = True
    async with world.running_operator(settings=settings):
        await make_settled(world)
        await world.pause(f"until={(wall_now() + datetime.timedelta(minutes=10)).isoformat()}")
        await cluster.delete("widgets", "w")
        async with world.quiet():
            await settle(580)
        await settle(60)
        assert world.calls.count("delete") == 1
        assert await cluster.list("widgets", "default") == []


async def test_a_pause_holds_the_retries_of_a_deletion_only_if_that_is_set(
    world: World, cluster: Cluster, autojump_clock: MockClock
) -> None:
    settings = world.settings("one")
    settings.pausing.holds_deletion = True
    async with world.running_operator(settings=settings) as stop:
        await make_settled(world)
        world.fail.add("delete")
        await cluster.delete("widgets", "w")
        await world.pause()
        async with world.quiet():
            await settle(300)
        stop()
    async with world.running_operator():
        await settle(300)
        assert world.calls.count("delete") > 2
        world.fail.clear()
        await settle(61)
        assert await cluster.list("widgets", "default") == []


async def test_a_child_is_not_paused_by_an_annotation_of_its_own(
    world: World, cluster: Cluster, autojump_clock: MockClock
) -> None:
    async with world.running_operator():
        await make_settled(world)
        await cluster.patch("configmaps", "w-a", {"metadata": {"annotations": {PAUSED: "true"}}})
        await cluster.patch("configmaps", "w-a", {"data": {"size": "9"}})
        await settle(5)
        child = await cluster.get("configmaps", "w-a")
        assert (child["data"]["size"], child["metadata"]["annotations"][PAUSED]) == ("1", "true")


async def test_it_expires_by_itself(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        until = wall_now() + datetime.timedelta(minutes=10)
        await world.pause(f"until={until.isoformat()} reason=short")
        async with world.quiet():
            await world.edit(2)
            await settle(580)
        mark = len(world.calls)
        await settle(60)
        assert (await world.get())["status"]["size"] == 2
        assert await world.condition() is None
        assert world.running == ["daemon"]
        assert world.since(mark)[0] == "event MODIFIED"
        assert await world.children() == {"w-a": "2", "w-b": "2"}


async def test_it_expires_within_a_minute_of_a_wall_clock_that_is_set_forward(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause(f"until={(wall_now() + datetime.timedelta(hours=10)).isoformat()}")
        await world.edit(2)
        set_clock(9.9 * 3600)
        await settle(300)
        assert await world.condition() is not None
        set_clock(0.1 * 3600)
        await settle(61)
        assert (await world.get())["status"]["size"] == 2
        assert await world.condition() is None


async def test_one_that_is_over_does_not_pause(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause("until=2020-12-01T00:00Z")
        await world.edit(2)
        assert (await world.get())["status"]["size"] == 2
        assert await world.condition() is None


async def test_nothing_is_written_afterwards_if_nothing_was_missed(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        mark = len(world.calls)
        before = len(world.writes())
        await world.unpause()
        assert world.writes()[before:] == ["patch widgets/w status"]  # the condition is removed
        assert not {"update", "create", "resume"} & set(world.calls[mark:])


# Other processes.


async def test_it_holds_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
    mark = len(world.calls)
    await world.edit(2)
    async with world.quiet(), world.running_operator():
        await settle(60)
    assert world.calls[mark:] == []
    async with world.running_operator():
        await settle(60)
        await world.unpause()
        await settle(15)
        assert world.since(mark).count("update") == 1
        assert world.running == ["daemon"]
        assert await world.children() == {"w-a": "2", "w-b": "2"}
    assert [reason for _, reason, _ in await world.events()] == ["Paused", "Resumed"]


async def test_one_that_began_and_ended_while_the_operator_was_down_leaves_nothing(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
    await world.annotate({PAUSED: None})
    async with world.running_operator():
        await settle(15)
        assert await world.condition() is None
        assert world.running == ["daemon"]


async def test_it_holds_over_a_crash(world: World, autojump_clock: MockClock) -> None:
    with trio.CancelScope() as scope:
        async with world.running_operator():
            await make_settled(world)
            await world.pause()
            world.plan.add(Fault.refuse())
            scope.cancel()
            await trio.lowlevel.checkpoint()
    world.plan = FaultPlan()
    await world.edit(2)
    async with world.running_operator():
        async with world.quiet():
            await settle(600)
        await world.unpause()
        assert (await world.get())["status"]["size"] == 2


async def test_it_holds_for_another_leader(world: World, autojump_clock: MockClock) -> None:
    settings = {name: world.settings(name) for name in ("one", "two")}
    for each in settings.values():
        each.leadership.enabled = True
    async with world.running_operator(settings=settings["one"]) as stop:
        await make_settled(world)
        await world.pause()
        async with world.running_operator(settings=settings["two"]):
            async with world.quiet():
                stop()
                await settle(60)
                await world.edit(2)
            await world.unpause()
            await settle(15)
            assert (await world.get())["status"]["size"] == 2
            assert world.running == ["daemon"]


async def test_it_holds_when_its_shard_moves(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator(settings=world.settings("one"), shards=SHARDS) as stop:
        await settle(5)
        await make_settled(world)
        await world.pause()
        async with world.running_operator(settings=world.settings("two"), shards=SHARDS) as stop_other:
            async with world.quiet():
                await settle(60)
                stop()
                await settle(60)
                await world.edit(2)
            stop_other()
            await settle(5)
            async with world.running_operator(settings=world.settings("three"), shards=SHARDS):
                async with world.quiet():
                    await settle(60)
                await world.unpause()
                await settle(15)
                assert (await world.get())["status"]["size"] == 2
                assert world.running == ["daemon"]


async def test_an_object_that_leaves_the_selector_of_its_watch_is_let_go(
    world: World, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()

    @on.delete("widgets", labels={"tier": "gold"}, registry=registry)
    async def delete(**_: Any) -> None: ...

    manifest = widget()
    manifest["metadata"]["labels"] = {"tier": "gold"}
    async with world.running_operator(registry=registry):
        await world.cluster.create(manifest)
        await settle(1)
        assert (await world.get())["metadata"]["finalizers"]
        await world.pause()
        await world.cluster.patch("widgets", "w", {"metadata": {"labels": None}})
        await settle(5)
        assert "finalizers" not in (await world.get())["metadata"]


# What is at work when the pause comes.


async def test_a_daemon_ends_and_what_it_wants_is_stored_before_the_pause_is_in_effect(
    world: World, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()

    @on.daemon("widgets", registry=registry)
    async def daemon(stopped: Any, patch: Any, **_: Any) -> None:
        world.calls.append("begin")
        await stopped.wait()
        await trio.sleep(20)
        patch.status["left"] = str(stopped.reason)

    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(1)
        await world.pause()
        assert await world.events() == []
        await settle(25)
        assert "FILTERS_MISMATCH" in (await world.get())["status"]["left"]
        assert [reason for _, reason, _ in await world.events()] == ["Paused"]
        async with world.quiet():
            await settle(600)
        await world.unpause()
        assert world.calls == ["begin", "begin"]


async def test_a_daemon_that_is_ending_when_the_pause_is_over_begins_again(
    world: World, autojump_clock: MockClock
) -> None:
    world.slow["daemon"] = 20
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        await world.unpause()
        assert world.running == ["daemon"]
        await settle(30)
        assert world.running == ["daemon"]
        assert len(world.stopped) == 1


async def test_a_daemon_that_was_abandoned_writes_nothing(world: World, autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @on.daemon("widgets", registry=registry, cancellation_timeout=1)
    async def daemon(patch: Any, **_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(60)
        patch.status["late"] = "yes"

    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(1)
        await world.pause()
        await settle(10)
        assert [reason for _, reason, _ in await world.events()] == ["Paused"]
        async with world.quiet():
            await settle(600)
        await world.unpause()
        assert (await world.get())["status"]["late"] == "yes"


async def test_timers_are_not_called(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        await world.pause()
        mark = len(world.calls)
        await settle(600)
        assert world.calls[mark:] == []
        await world.unpause()
        await settle(30)
        assert world.calls[mark:].count("timer") >= 3


async def test_the_thread_of_a_sync_handler_ends_and_what_it_wants_is_stored(
    world: World, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()
    began = threading.Event()

    @on.update("widgets", registry=registry)
    def update(patch: Any, **_: Any) -> None:
        began.set()
        world.hold.wait(30)
        patch.status["done"] = True

    @on.update("widgets", registry=registry)
    async def then(**_: Any) -> None:
        world.calls.append("then")

    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(1)
        await world.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await trio.to_thread.run_sync(began.wait)
        await world.annotate({PAUSED: "true"})
        world.hold.set()
        await trio.to_thread.run_sync(lambda: None)
        await settle(5)
        assert (await world.get())["status"]["done"] is True
        assert await world.condition() is not None
        assert world.calls == []
        async with world.quiet():
            await settle(600)
        began.clear()
        await world.unpause()
        assert world.calls == ["then"]
        assert not began.is_set()  # it is not called twice


async def test_sub_handlers_are_left_for_later(world: World, autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", registry=registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler(id="one")
        async def one(**_: Any) -> None:
            world.calls.append("one")

        @trioperator.subhandler(id="two")
        async def two(**_: Any) -> None:
            world.calls.append("two")

        await trio.sleep(10)

    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(5)
        await world.pause()
        await settle(600)
        assert world.calls == []
        await world.unpause()
        await settle(15)
        assert world.calls == ["one", "two"]


async def test_a_pause_that_the_response_to_an_own_write_brings_leaves_what_has_not_begun(
    world: World, autojump_clock: MockClock
) -> None:
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", registry=registry)
    async def first(patch: trioperator.Patch, **_: Any) -> None:
        patch.status["first"] = True

    @on.create("widgets", registry=registry)
    async def create(**_: Any) -> None:
        @trioperator.subhandler(id="one")
        async def one(**_: Any) -> None:
            world.calls.append("one")
            await trio.sleep(10)

        @trioperator.subhandler(id="two")
        async def two(**_: Any) -> None:
            world.calls.append("two")

    world.plan.add(Fault.delay(before=2), resource="widgets", verb="patch")  # the pause is stored before it
    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(1)
        assert world.calls == ["one"]
        await world.pause()
        await settle(600)
        assert world.calls == ["one"]
        await world.unpause()
        await settle(60)
        assert world.calls == ["one", "two"]


async def test_children_of_a_reconcile_that_is_at_work_are_left_for_later(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.slow["reconcile"] = 10
        await world.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        await world.pause()
        await settle(60)
        assert await world.children() == {"w-a": "1", "w-b": "1"}
        assert await world.condition() is not None
        async with world.quiet():
            await settle(600)
        world.slow.clear()
        await world.unpause()
        assert await world.children() == {"w-a": "2", "w-b": "2"}


async def test_a_pause_between_two_children_leaves_the_second(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.plan.add(Fault.delay(before=10), verb="patch", resource="configmaps", name="w-a")
        await world.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        await world.pause()
        await settle(60)
        assert await world.children() == {"w-a": "2", "w-b": "1"}
        await world.unpause()
        assert await world.children() == {"w-a": "2", "w-b": "2"}


# Retries and pokes.


async def test_a_retry_is_left_until_the_pause_is_over(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.pause()
        async with world.quiet():
            await settle(3600)
        world.fail.clear()
        await world.unpause()
        assert (await world.get())["status"]["size"] == 2  # its timeout of 300 s does not count the pause


async def test_whoever_applies_the_annotation_can_also_remove_it_between_two_attempts(
    world: World, autojump_clock: MockClock
) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.apply_by("gitops", {"annotations": {PAUSED: "reason=maintenance"}})
        await settle(1)
        assert await world.condition() == ("True", "PausedByAnnotation", "maintenance")
        async with world.quiet():
            await world.edit(3)
            await settle(300)
        world.fail.clear()
        await world.apply_by("gitops", {})
        await settle(61)
        assert (await world.get())["status"]["size"] == 3
        assert await world.condition() is None
        assert await world.children() == {"w-a": "3", "w-b": "3"}


async def test_a_retry_that_is_not_due_when_the_pause_is_over_waits_on(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.pause()
        mark = len(world.calls)
        await world.unpause()
        await settle(10)
        assert "update" not in world.since(mark)
        world.fail.clear()
        await settle(60)
        assert (await world.get())["status"]["size"] == 2


async def test_timeouts_do_not_count_a_pause_that_was_over_a_restart(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.pause()
    await settle(3600)
    world.fail.clear()
    async with world.running_operator():
        await settle(1)
        await world.unpause()
        assert (await world.get())["status"]["size"] == 2


async def test_a_poke_calls_what_waits_for_a_retry(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        world.fail.clear()
        await world.annotate({POKED: "1"})
        await settle(1)
        assert (await world.get())["status"]["size"] == 2
        assert (await world.get())["metadata"]["annotations"].keys() & {
            "trioperator.dev/last-handled-reconcile-at"
        } == set()


async def test_a_poke_of_a_paused_object_counts_afterwards(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.fail.add("update")
        await world.edit(2)
        await world.pause()
        world.fail.clear()
        async with world.quiet():
            await world.annotate({POKED: "1"})
            await settle(10)
        await world.unpause()
        assert (await world.get())["status"]["size"] == 2


async def test_a_pause_comes_before_the_backoff_of_an_error(world: World, autojump_clock: MockClock) -> None:
    settings = world.settings("one")
    settings.networking.error_backoffs = ()
    async with world.running_operator(settings=settings):
        await make_settled(world)
        world.plan.add(Fault.status(500), verb="patch", resource="widgets")
        await world.edit(2)
        await settle(120)
        await world.annotate({PAUSED: "true"})
        await settle(1)
        assert world.running == []  # daemons are stopped, whatever can be stored
        world.plan.clear()
        await settle(700)
        assert await world.condition() is not None


async def test_without_the_right_to_set_the_condition_it_holds_all_the_same(
    world: World, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running_operator():
        await make_settled(world)
        world.plan.add(Fault.status(403), verb="patch", resource="widgets")
        await world.pause()
        assert "The condition Paused cannot be set" in caplog.text
        async with world.quiet():
            await world.edit(2)
            await settle(3600)
        world.plan.clear()
        await world.unpause()
        assert (await world.get())["status"]["size"] == 2


@pytest.mark.parametrize("selection", WRITES)
@pytest.mark.parametrize("seconds", [0, 90])
async def test_a_condition_that_was_forbidden_once_or_for_a_while_is_set_later(
    seconds: float, selection: Selection, world: World, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running_operator():
        await make_settled(world)
        rule = world.plan.add(Fault.status(403), **selection, times=None if seconds else 2)
        await world.pause()
        assert await world.condition() is None
        await settle(seconds)
        world.plan.remove(rule)
        await settle(130)
        assert await world.condition() is not None
        async with world.quiet():
            await settle(3600)
        assert caplog.text.count("The condition Paused cannot be set") == 1
        assert len([event for event in await world.events() if "Paused" in event]) == 1
        await world.unpause()
        assert await world.condition() is None


@pytest.mark.parametrize("selection", WRITES)
async def test_a_condition_that_stays_forbidden_is_tried_once_a_minute(
    selection: Selection, world: World, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with world.running_operator():
        await make_settled(world)
        rule = world.plan.add(Fault.status(403), **selection)
        await world.pause()
        mark = rule.hits
        await settle(600)
        assert rule.hits - mark <= 2 * 10 + 2  # a try, and whether it is about what was to be written
        assert caplog.text.count("The condition Paused cannot be set") == 1
        assert len([event for event in await world.events() if "Paused" in event]) == 1


async def test_the_annotation_can_have_another_name(world: World, autojump_clock: MockClock) -> None:
    settings = world.settings("one")
    settings.pausing.annotation = "example.org/hold"
    async with world.running_operator(settings=settings):
        await make_settled(world)
        async with world.quiet("patch widgets/w status"):
            await world.annotate({"example.org/hold": "true"})
        mark = len(world.calls)
        await world.annotate({"example.org/hold": None})
        await settle(1)
        assert "update" not in world.since(mark)  # the annotation itself is no change
        await world.pause()
        await world.edit(2)
        assert (await world.get())["status"]["size"] == 2


async def test_a_condition_of_others_with_the_same_type_is_left_alone(world: World, autojump_clock: MockClock) -> None:
    async with world.running_operator():
        await make_settled(world)
        theirs = {"type": "Paused", "status": "False", "reason": "Theirs", "message": ""}
        await world.cluster.patch("widgets", "w", {"status": {"conditions": [theirs]}}, subresource="status")
        await settle(1)
        async with world.quiet():
            await world.pause()
        await world.unpause()
        assert await world.condition() == ("False", "Theirs", "")


async def test_log_messages_do_not_crowd_out_the_event(world: World, autojump_clock: MockClock) -> None:
    registry = trioperator.OperatorRegistry()

    @on.timer("widgets", interval=1, registry=registry)
    async def talk(logger: Any, **_: Any) -> None:
        logger.info("%s", trio.current_time())

    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(100)
        await world.pause()
    assert [reason for _, reason, _ in await world.events()] == ["Paused"]


async def test_timers_go_on_when_a_pause_expires_though_a_daemon_has_not_ended(
    world: World, autojump_clock: MockClock
) -> None:
    await world.cluster.apply(CRD)  # without conditions, the object does not change when the pause is over
    registry = trioperator.OperatorRegistry()

    @on.daemon("widgets", registry=registry)
    async def stubborn(**_: Any) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(3600)

    @on.timer("widgets", interval=10, registry=registry)
    async def timer(**_: Any) -> None:
        world.calls.append("timer")

    async with world.running_operator(registry=registry):
        await world.cluster.create(widget())
        await settle(15)
        await world.pause(f"until={(wall_now() + datetime.timedelta(minutes=10)).isoformat()}")
        before = len(world.calls)
        await settle(540)
        assert len(world.calls) == before
        await settle(100)
        assert len(world.calls) > before
