"""An etcd that is restored from a backup: resource versions go back, and the cluster is taken as it is now."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from tests.runtime.restoring import Memory, Switch
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


def with_versions(*names: str) -> dict[str, Any]:
    """Return the definition of widgets with these versions; the first one is that which is stored."""
    crd = copy.deepcopy(CRD)
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**version, "name": name, "storage": name == names[0]} for name in names]
    return crd


class Restored:
    """An operator, whose cluster is replaced by a backup of itself."""

    def __init__(self, data: Memory, old: Cluster, switch: Switch) -> None:
        self.old = old
        self.switch = switch
        self._data = self._backup = data

    def back_up(self) -> None:
        self._backup = self._data.copy()

    async def restore(self, *, outage: float, slow: str | None = None) -> Cluster:
        """Replace the cluster by its backup, after an *outage* in seconds, if any; one path may be *slow* then."""
        self.switch.slow = slow
        if outage:
            self.switch.inner = None
        new = Cluster(clock=wall_now, data=self._backup)
        await trio.sleep(outage)
        self.switch.inner = new.transport()
        return new


@contextlib.asynccontextmanager
async def running(
    registry: trioperator.OperatorRegistry, *, client_timeout: float | None = 20, **options: Any
) -> AsyncIterator[Restored]:
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False
    settings.watching.client_timeout = client_timeout  # the watches of before end, at the latest
    data = Memory()
    old = Cluster(clock=wall_now, data=data)
    await old.apply(CRD)
    switch = Switch(old.transport())
    async with Bench(old, registry, settings).running(transport=switch, **options):
        yield Restored(data, old, switch)


async def grow(cluster: Cluster, number: int) -> None:
    """Let the versions of a cluster grow by changes that concern nobody."""
    for value in range(number):
        labels = {"value": str(value)}
        await cluster.apply(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
        )


@pytest.mark.parametrize("outage", [60, 0])
async def test_after_a_restore_all_changes_are_handled(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, outage: float
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", registry=registry)
    async def create(name: str, **_: Any) -> None:
        calls.append(("create", name))

    @on.update("widgets", registry=registry)
    async def update(name: str, diff: Any, **_: Any) -> None:
        calls.append(("update", name, diff[0].old, diff[0].new))

    @on.delete("widgets", optional=True, registry=registry)
    async def delete(name: str, **_: Any) -> None:
        calls.append(("delete", name))

    @on.reconcile("widgets", owns=["configmaps"], registry=registry)
    async def reconcile(name: str, spec: Any, **_: Any) -> dict[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name},
            "data": {"size": str(spec["size"])},
        }

    @trioperator.index("widgets", registry=registry)
    async def sizes(name: str, spec: Any, **_: Any) -> dict[str, int]:
        return {name: spec["size"]}

    @on.probe(registry=registry)
    async def probe(sizes: Any, **_: Any) -> Any:
        return {name: list(values) for name, values in sizes.items()}

    async with running(registry, client_timeout=20 if outage else None) as it:
        for name in "ab":
            await it.old.create(widget(name, size=1))
        await settle(10)
        it.back_up()
        await it.old.patch("widgets", "a", {"spec": {"size": 2}})
        await it.old.create(widget("c", size=1))
        for number in range(20):
            await it.old.patch("widgets", "b", {"status": {"number": number}}, subresource="status")
        await settle(30)
        calls.clear()
        new = await it.restore(outage=outage)
        await trio.sleep(1000)
        assert ("delete", "c") in calls
        assert ("update", "a", 2, 1) not in calls  # it is what was handled at the time of the backup
        calls.clear()
        await new.patch("widgets", "b", {"spec": {"size": 3}})
        await new.create(widget("d", size=1))
        await settle(30)
        assert sorted(calls) == [("create", "d"), ("update", "b", 1, 3)]
        found = {name: (await new.get("configmaps", name))["data"]["size"] for name in "abd"}
        assert found == {"a": "1", "b": "3", "d": "1"}
        assert await new.find("configmaps", "c") is None
    assert "has gone back from version" in caplog.text


async def test_what_was_handled_after_the_backup_only_is_handled_again(autojump_clock: MockClock) -> None:
    calls: list[Any] = []
    failed: list[bool] = []
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", registry=registry)
    async def create(spec: Any, **_: Any) -> None:
        calls.append(("create", spec["size"]))
        if not failed:
            failed.append(True)
            raise trioperator.TemporaryError("not yet", delay=60)

    @on.update("widgets", registry=registry)
    async def update(**_: Any) -> None:
        calls.append("update")

    @on.resume("widgets", registry=registry)
    async def resume(spec: Any, **_: Any) -> None:
        calls.append(("resume", spec["size"]))

    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        await settle(100)
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        assert calls == [("create", 1), ("create", 1), "update"]
        calls.clear()
        await it.restore(outage=60)
        await trio.sleep(200)
    assert calls == [("create", 1)]


async def test_a_handler_that_waits_for_what_was_wanted_after_the_backup_is_interrupted(
    autojump_clock: MockClock,
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", on_change="cancel", registry=registry)
    @on.update("widgets", on_change="cancel", registry=registry)
    async def handle(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])
        if spec["size"] == 2:
            try:
                await trio.sleep_forever()
            finally:
                calls.append("interrupted")

    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        await it.restore(outage=60)
        await settle(100)
        assert calls == [1, 2, "interrupted", 1]


async def test_a_handler_is_interrupted_by_a_restore_that_the_next_version_of_its_kind_is_the_first_to_notice(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", on_change="cancel", registry=registry)
    @on.update("widgets", on_change="cancel", registry=registry)
    async def handle(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])
        if spec["size"] == 2:
            try:
                await trio.sleep_forever()
            finally:
                calls.append("interrupted")

    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        for number in range(20):
            await it.old.patch("widgets", "w", {"status": {"number": number}}, subresource="status")
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        new = await it.restore(outage=60, slow="/apis/example.com/v1/widgets")
        await settle(30)
        await new.apply(with_versions("v2", "v1"))
        await settle(100)
        assert calls == [1, 2, "interrupted", 1]
    assert caplog.text.count("has gone back from version") == 1


@pytest.mark.parametrize("outage", [60, 0])
async def test_an_object_is_handled_on_though_its_kind_goes_back_to_another_version(
    autojump_clock: MockClock, outage: float
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", registry=registry)
    @on.update("widgets", registry=registry)
    async def handle(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])

    @on.resume("widgets", registry=registry)
    async def resume(spec: Any, **_: Any) -> None:
        calls.append(f"resume {spec['size']}")

    @on.delete("widgets", registry=registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    async with running(registry, client_timeout=20 if outage else None) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        await it.old.apply(with_versions("v1", "v2"))
        await settle(10)
        for size in range(2, 20):
            await it.old.patch("widgets", "w", {"spec": {"size": size}})
        await settle(10)
        calls.clear()
        new = await it.restore(outage=outage)
        await trio.sleep(1000)
        await new.patch("widgets", "w", {"spec": {"size": 100}})
        await settle(10)
        assert calls == ["resume 1", 100]
        await new.delete("widgets", "w")
        await settle(10)
        assert calls[2:] == ["delete"]
        assert await new.find("widgets", "w") is None


async def test_a_kind_goes_back_to_another_version_though_the_restored_cluster_has_reached_the_versions_from_before(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.update("widgets", registry=registry)
    async def update(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])

    @on.delete("widgets", registry=registry)
    async def delete(**_: Any) -> None:
        calls.append("delete")

    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        await it.old.apply(with_versions("v1", "v2"))
        await settle(10)
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        new = await it.restore(outage=0)  # the watches go on at the server of before for some seconds
        for number in range(40):
            await new.patch("widgets", "w", {"status": {"number": number}}, subresource="status")
        await settle(60)
        assert calls == [2]
        await new.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(10)
        await new.delete("widgets", "w")
        await settle(10)
        assert calls == [2, 3, "delete"]
        assert await new.find("widgets", "w") is None
    assert caplog.text.count("Versions have gone back") == 1


@pytest.mark.parametrize("versions", [(), ("v1", "v2")])
async def test_a_handler_at_work_is_interrupted_by_changes_after_a_restore(
    versions: tuple[str, ...], autojump_clock: MockClock
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.create("widgets", on_change="cancel", registry=registry)
    @on.update("widgets", on_change="cancel", registry=registry)
    async def handle(spec: Any, **_: Any) -> None:
        calls.append(spec["size"])
        if spec["size"] == 1:
            await trio.sleep_forever()

    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        for size in (2, 1):
            await it.old.patch("widgets", "w", {"spec": {"size": size}})
            await settle(10)
        if versions:
            await it.old.apply(with_versions(*versions))
            await settle(10)
        assert calls == [1, 2, 1]
        new = await it.restore(outage=60)
        await settle(100)
        assert calls == [1, 2, 1]  # it is what the handler is at work for
        await new.patch("widgets", "w", {"spec": {"size": 3}})
        await settle(10)
    assert calls == [1, 2, 1, 3]


async def test_children_that_a_restore_has_taken_back_are_applied_again(autojump_clock: MockClock) -> None:
    value, registry = "old", trioperator.OperatorRegistry()

    @on.reconcile("widgets", owns=["configmaps"], registry=registry)
    async def reconcile(name: str, **_: Any) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"value": value}}

    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await settle(10)
        it.back_up()
        value = "new"  # as if it came from elsewhere
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(10)
        assert (await it.old.get("configmaps", "w"))["data"] == {"value": "new"}
        new = await it.restore(outage=60)
        await settle(100)
        assert (await new.get("configmaps", "w"))["data"] == {"value": "new"}


async def test_after_a_restore_finalizers_of_objects_that_are_not_selected_are_removed_again(
    autojump_clock: MockClock,
) -> None:
    registry = trioperator.OperatorRegistry()

    @on.delete("widgets", labels={"tier": "gold"}, registry=registry)
    async def delete(**_: Any) -> None:
        pass

    async with running(registry) as it:
        body = widget(size=1)
        body["metadata"] |= {"labels": {"tier": "gold"}}
        await it.old.create(body)
        await settle(5)
        (finalizer,) = (await it.old.get("widgets", "w"))["metadata"]["finalizers"]
        left = widget("left", size=1)  # it has just left, and the operator is about to notice
        left["metadata"]["finalizers"] = [finalizer]
        await it.old.create(left)
        it.back_up()
        await it.old.patch("widgets", "left", {"metadata": {"finalizers": []}})
        for size in range(20):
            await it.old.patch("widgets", "w", {"spec": {"size": size}})
        await settle(5)
        new = await it.restore(outage=60)
        await settle(120)
        assert "finalizers" not in (await new.get("widgets", "left"))["metadata"]


async def test_a_restore_shows_in_the_response_to_a_write_while_the_watch_tells_nothing(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.update("widgets", registry=registry)
    async def update(name: str, spec: Any, **_: Any) -> None:
        calls.append((name, spec["size"]))
        if spec["size"] == 2:
            await trio.sleep(5)

    async with running(registry, client_timeout=None) as it:
        for name in "ab":
            await it.old.create(widget(name, size=1))
        await settle(10)
        it.back_up()
        for number in range(20):
            await it.old.patch("widgets", "b", {"status": {"number": number}}, subresource="status")
        await settle(10)
        await it.old.patch("widgets", "a", {"spec": {"size": 2}})
        await settle(1)
        new = await it.restore(outage=0)  # the watch goes on at the server of before
        await new.patch("widgets", "b", {"spec": {"size": 3}})
        await settle(10)
        assert sorted(calls) == [("a", 1), ("a", 2), ("b", 3)]  # what was stored after the backup is taken back
    assert "Versions have gone back in a response" in caplog.text


async def test_a_restore_shows_in_an_older_object_of_a_list_and_all_other_kinds_are_listed_again(
    autojump_clock: MockClock,
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.event("widgets", registry=registry)
    async def event(**_: Any) -> None:
        pass

    @on.create("configmaps", registry=registry)
    @on.update("configmaps", registry=registry)
    async def handle(body: Any, **_: Any) -> None:
        calls.append(body["data"]["size"])

    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}}
    async with running(registry) as it:
        await it.old.create(widget(size=1))
        await it.old.create({**config, "data": {"size": "1"}})
        await settle(10)
        it.back_up()
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await it.old.patch("configmaps", "c", {"data": {"size": "2"}})
        await settle(10)
        new = await it.restore(outage=0)
        await new.patch("configmaps", "c", {"data": {"size": "3"}})
        for number in range(40):  # the versions grow beyond those that were seen
            labels = {"number": str(number)}
            await new.apply(
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}
            )
        it.switch.expired = "/apis/example.com/v1/widgets"
        await settle(60)
        assert calls == ["1", "2", "3"]


async def test_a_restore_that_a_kind_shows_brings_back_namespaces_of_which_the_watch_has_gone_on(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.update("widgets", registry=registry)
    async def update(namespace: str, spec: Any, **_: Any) -> None:
        calls.append((namespace, spec["size"]))

    def in_namespace(name: str) -> dict[str, Any]:
        body = widget(size=1)
        body["metadata"]["namespace"] = name
        return body

    async with running(registry, namespaces=["team-*"]) as it:
        for name in ("team-a", "team-b"):
            await it.old.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
            await it.old.create(in_namespace(name))
        await settle(10)
        it.back_up()
        await it.old.delete("namespaces", "team-a")
        await settle(10)
        for number in range(40):
            await it.old.patch("widgets", "w", {"status": {"number": number}}, "team-b", subresource="status")
        await settle(10)
        new = await it.restore(outage=0)
        await grow(new, 20)  # beyond what was seen of namespaces, and not of widgets
        it.switch.expired = "/apis/example.com/v1/namespaces/team-b/widgets"
        await settle(60)
        await new.patch("widgets", "w", {"spec": {"size": 2}}, "team-a")
        await settle(10)
        assert calls == [("team-a", 2)]
    assert caplog.text.count("has gone back from version") == 1


async def test_nothing_but_a_restore_counts_as_one(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    resumed: list[str] = []
    registry = trioperator.OperatorRegistry()

    @on.resume("widgets", registry=registry)
    async def resume(uid: str, **_: Any) -> None:
        resumed.append(uid)

    @on.create("widgets", registry=registry)
    @on.update("widgets", registry=registry)
    async def handle(spec: Any, patch: Any, **_: Any) -> None:
        patch.status["size"] = spec["size"]
        await patch.store()
        patch.status["phase"] = "Ready"

    @trioperator.timer("widgets", interval=0.7, registry=registry)
    async def tick(patch: Any, retry: int, **_: Any) -> None:
        patch.status["time"] = trio.current_time()  # beside the others

    @on.reconcile("widgets", owns=["configmaps"], registry=registry)
    async def reconcile(name: str, spec: Any, **_: Any) -> dict[str, Any]:
        meta = {"name": name, "labels": {"of": name}}
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"size": str(spec["size"])}}

    data = Memory()
    cluster = Cluster(clock=wall_now, data=data)
    await cluster.apply(CRD)
    plan = FaultPlan(seed=1)
    plan.add(Fault.delay(after=0.3), verb=["patch", "list"], chance=0.3)  # overtaken by what comes later
    plan.add(Fault.lose_answer(), verb="patch", chance=0.1)
    plan.add(Fault.error_event(410, lines=2), watch=True, chance=0.3)
    plan.add(Fault.duplicate(), watch=True, chance=0.3)
    transport = FaultyTransport(cluster.transport(), plan)
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False
    settings.watching.client_timeout = 5
    async with Bench(cluster, registry, settings).running(transport=transport):
        for number in range(60):
            name = "abc"[number % 3]
            if await cluster.find("widgets", name) is None:
                await cluster.create(widget(name, size=number))
            elif number % 5 == 0:
                await cluster.delete("widgets", name)  # and it is created again in the place of the next change
            else:
                await cluster.patch("widgets", name, {"spec": {"size": number}})
            if number % 10 == 0:
                await cluster.apply(with_versions("v1", "v2") if number % 20 else CRD)
                cluster.compact()
            await settle(0.4)
        await settle(60)
    assert "gone back" not in caplog.text
    assert len(resumed) == len(set(resumed))


async def test_a_change_after_a_restore_is_handled_though_the_watch_had_not_come_to_newer_own_writes(
    autojump_clock: MockClock,
) -> None:
    calls: list[Any] = []
    registry = trioperator.OperatorRegistry()

    @on.update("widgets", registry=registry)
    async def update(new: Any, patch: trioperator.Patch, **_: Any) -> None:
        calls.append(new["spec"]["size"])
        await trio.sleep(30)
        patch.status["size"] = new["spec"]["size"]

    async with running(registry) as it:
        await it.old.create(widget("w", size=1))
        await settle(1)
        await it.old.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        it.back_up()
        await grow(it.old, 10)
        it.switch.slow = "/apis/example.com/v1/widgets"  # the next watch does not begin
        await settle(31)
        assert (await it.old.get("widgets", "w"))["status"] == {"size": 2}
        new = await it.restore(outage=0)
        await new.patch("widgets", "w", {"spec": {"size": 4}})
        await settle(60)
    assert calls == [2, 4]
