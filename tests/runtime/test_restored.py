"""An etcd that is restored from a backup: resource versions go back, and the cluster is taken as it is now."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster
from trioperator.apiserver.store.data_file import DataFile

on = trioperator.on


def with_versions(*names: str) -> dict[str, Any]:
    """Return the definition of widgets with these versions; the first one is that which is stored."""
    crd = copy.deepcopy(CRD)
    (version,) = crd["spec"]["versions"]
    crd["spec"]["versions"] = [{**version, "name": name, "storage": name == names[0]} for name in names]
    return crd


class Switch(httpx.AsyncBaseTransport):
    """A transport to one server after another, or to none. What is *slow* is not answered."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.inner: httpx.AsyncBaseTransport | None = inner
        self.slow: str | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == self.slow:
            await trio.sleep_forever()
        if self.inner is None:
            raise httpx.ConnectError("down", request=request)
        return await self.inner.handle_async_request(request)


class Memory(DataFile):
    """A data file in memory: writes to a real one take no virtual time, and end in the future."""

    def __init__(self) -> None:
        super().__init__("", -1)

    async def flush(self) -> None:
        await trio.lowlevel.checkpoint()

    def copy(self) -> Memory:
        other = Memory()
        other.objects, other.facts, other.revision = {**self.objects}, {**self.facts}, self.revision
        return other


class Restored:
    """An operator, whose cluster is replaced by a backup of itself."""

    def __init__(self, data: Memory, old: Cluster, switch: Switch) -> None:
        self.old = old
        self._data = self._backup = data
        self._switch = switch

    def back_up(self) -> None:
        self._backup = self._data.copy()

    async def restore(self, *, outage: float, slow: str | None = None) -> Cluster:
        """Replace the cluster by its backup, after an *outage* in seconds, if any; one path may be *slow* then."""
        self._switch.slow = slow
        if outage:
            self._switch.inner = None
        new = Cluster(clock=wall_now, data=self._backup)
        await trio.sleep(outage)
        self._switch.inner = new.transport()
        return new


@contextlib.asynccontextmanager
async def running(
    registry: trioperator.OperatorRegistry, *, client_timeout: float | None = 20
) -> AsyncIterator[Restored]:
    settings = trioperator.OperatorSettings()
    settings.posting.loggers = False
    settings.watching.client_timeout = client_timeout  # the watches of before end, at the latest
    data = Memory()
    old = Cluster(clock=wall_now, data=data)
    await old.apply(CRD)
    switch = Switch(old.transport())
    async with Bench(old, registry, settings).running(transport=switch):
        yield Restored(data, old, switch)


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
        assert calls == [1, 2, "interrupted"]


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
        assert calls == [1, 2, "interrupted"]
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
