"""Daemons: when they are spawned, what they see, what they want stored, and how they end."""

from __future__ import annotations

import logging
import threading
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.objects import WIDGETS, Queue, body, raw
from trioperator import DaemonStoppingReason, on
from trioperator._handling.declaring.registry import KindHandlers
from trioperator._model import lazy_object
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.kind import Kind
from trioperator._runtime.causes import Essences
from trioperator._runtime.daemons.loops import DaemonLoops
from trioperator._runtime.daemons.manager import DaemonManager
from trioperator._runtime.patching.pending import PendingPatches

FINALIZERS = ["trioperator.dev/finalizer"]
SIGNALLED = DaemonStoppingReason.DAEMON_SIGNALLED
DELETED = DaemonStoppingReason.RESOURCE_DELETED
MISMATCH = DaemonStoppingReason.FILTERS_MISMATCH
EXITING = DaemonStoppingReason.OPERATOR_EXITING
PAUSING = DaemonStoppingReason.OPERATOR_PAUSING
CANCELLED = DaemonStoppingReason.DAEMON_CANCELLED
ABANDONED = DaemonStoppingReason.DAEMON_ABANDONED


def labelled(name: str = "w", **labels: str) -> dict[str, Any]:
    manifest = widget(name)
    manifest["metadata"]["labels"] = labels
    return manifest


async def finalizers(bench: Bench) -> list[str]:
    found = await bench.cluster.get("widgets", "w")
    return list(found["metadata"].get("finalizers", []))


# ------------------------------------------------------------------------------------------- spawning


async def test_a_daemon_is_spawned_for_each_object(bench: Bench, autojump_clock: MockClock) -> None:
    spawned: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(name: str, retry: int, spec: Any, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        spawned.append((name, retry, dict(spec), bool(stopped), stopped.reason))
        await stopped.wait()

    await bench.cluster.create(widget("before"))
    async with bench.running():
        await bench.cluster.create(widget("after"))
        await settle(1)
        assert sorted(spawned) == [(name, 0, {"size": 1}, False, None) for name in ("after", "before")]
        found = await bench.cluster.get("widgets", "after")
        assert found["metadata"]["finalizers"] == FINALIZERS
        assert "annotations" not in found["metadata"]
        assert bench.writes() == ["PATCH main"] * 2


async def test_a_daemon_is_not_spawned_before_the_finalizer_is_on_the_object(
    bench: Bench, autojump_clock: MockClock
) -> None:
    present: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(meta: trioperator.Meta, **_: Any) -> None:
        present.append(meta["finalizers"])

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert present == [FINALIZERS]


async def test_a_daemon_without_a_finalizer_costs_no_request(bench: Bench, autojump_clock: MockClock) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        reasons.append(stopped.reason)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert reasons == [DELETED]
    assert bench.writes() == []


async def test_an_object_that_is_being_deleted_gets_no_daemon(bench: Bench, autojump_clock: MockClock) -> None:
    spawned: list[str] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(name: str, **_: Any) -> None:
        spawned.append(name)

    found = widget()
    found["metadata"]["finalizers"] = ["example.com/other"]
    await bench.cluster.create(found)
    await bench.cluster.delete("widgets", "w")
    async with bench.running():
        await settle(1)
    assert spawned == []


async def test_stacked_decorators_make_one_daemon(bench: Bench, autojump_clock: MockClock) -> None:
    running: list[str] = []

    @trioperator.daemon("widgets", labels={"one": trioperator.PRESENT}, registry=bench.registry)
    @trioperator.daemon("widgets", labels={"other": trioperator.PRESENT}, registry=bench.registry)
    async def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        running.append(name)
        await stopped.wait()
        running.remove(name)

    async with bench.running():
        await bench.cluster.create(labelled(one="1", other="2"))
        await settle(1)
        assert running == ["w"]
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"other": None}}})
        await settle(1)
        assert running == ["w"]
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"one": None}}})
        await settle(1)
        assert running == []


async def test_an_initial_delay_is_waited_for_but_not_when_it_has_to_stop(
    bench: Bench, autojump_clock: MockClock
) -> None:
    times: dict[str, float] = {}

    @trioperator.daemon("widgets", initial_delay=lambda spec, **_: spec["delay"], registry=bench.registry)
    async def watch(name: str, **_: Any) -> None:
        times[name] = trio.current_time()

    async with bench.running():
        began = trio.current_time()
        for name, delay in (("a", 10), ("b", 20), ("c", 1000)):
            await bench.cluster.create(widget(name, delay=delay))
        await settle(30)
        assert times == {"a": began + 10, "b": began + 20}
        await bench.cluster.delete("widgets", "c")
        await settle()
        assert sorted(found["metadata"]["name"] for found in await bench.cluster.list("widgets")) == ["a", "b"]


async def test_an_initial_delay_that_fails_is_reported_and_none(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    times: list[float] = []

    @trioperator.daemon("widgets", initial_delay=lambda **_: 1 / 0, registry=bench.registry)
    async def watch(**_: Any) -> None:
        times.append(trio.current_time())

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(1)
    assert times == [began]
    assert "The initial delay of Daemon" in caplog.text


# ------------------------------------------------------------------------------------------- errors


async def test_a_daemon_that_returns_is_not_started_again_and_holds_nothing(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[int] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(**_: Any) -> dict[str, bool]:
        calls.append(1)
        return {"finished": True}

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        found = await bench.cluster.get("widgets", "w")
        assert found["status"] == {watch.__qualname__: {"finished": True}}
        assert "finalizers" not in found["metadata"]
        assert bench.writes() == ["PATCH main", "PATCH status", "PATCH main"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
        assert len(calls) == 1
    async with bench.running():
        await settle(1)
    assert len(calls) == 2


async def test_errors_are_retried_and_counted(bench: Bench, autojump_clock: MockClock) -> None:
    attempts: list[Any] = []

    @trioperator.daemon("widgets", backoff=7, registry=bench.registry)
    async def watch(retry: int, runtime: Any, patch: trioperator.Patch, **_: Any) -> None:
        attempts.append((retry, round(runtime.total_seconds()), trio.current_time()))
        patch.status["retry"] = retry
        if retry == 0:
            raise trioperator.TemporaryError("again", delay=5)
        if retry == 1:
            raise ValueError("again")
        if retry == 2:
            raise trioperator.TemporaryError("at once", delay=None)
        raise trioperator.PermanentError("never again")

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(1000)
        found = await bench.cluster.get("widgets", "w")
        assert found["status"] == {"retry": 3}
        assert "finalizers" not in found["metadata"]
        assert attempts == [(0, 0, began), (1, 5, began + 5), (2, 12, began + 12), (3, 12, began + 12)]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1000)
    assert len(attempts) == 4


async def test_retries_and_timeouts_end_a_daemon(bench: Bench, autojump_clock: MockClock) -> None:
    attempts: list[Any] = []

    @trioperator.daemon("widgets", id="retried", retries=3, backoff=1, registry=bench.registry)
    async def retried(retry: int, **_: Any) -> None:
        attempts.append(retry)
        raise ValueError

    @trioperator.daemon("widgets", id="timed", timeout=100, registry=bench.registry)
    async def timed(**_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            attempts.append(trio.current_time())

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(1000)
        assert await finalizers(bench) == []
    assert attempts == [0, 1, 2, began + 100]


# ------------------------------------------------------------------------------------------- filters


async def test_filters_stop_a_daemon_and_spawn_it_again_when_the_old_one_has_ended(
    bench: Bench, autojump_clock: MockClock
) -> None:
    notes: list[Any] = []

    @trioperator.daemon("widgets", labels={"on": "yes"}, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        notes.append("begins")
        await stopped.wait()
        await trio.sleep(10)
        notes.append(stopped.reason)

    async def switch(state: str) -> None:
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"on": state}}})
        await settle(1)

    async with bench.running():
        await bench.cluster.create(labelled(on="no"))
        await settle(1)
        assert notes == []
        assert await finalizers(bench) == []
        await switch("yes")
        assert notes == ["begins"]
        assert await finalizers(bench) == FINALIZERS
        await switch("no")
        await switch("yes")
        assert notes == ["begins"]
        await settle(8)
        assert notes == ["begins", MISMATCH, "begins"]
        await switch("no")
        assert await finalizers(bench) == FINALIZERS
        await settle(9)
        assert await finalizers(bench) == []
    assert notes[3:] == [MISMATCH]


async def test_a_filter_that_fails_changes_nothing(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    running: list[str] = []

    @trioperator.daemon("widgets", when=lambda spec, **_: spec["on"] == 1, registry=bench.registry)
    async def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        running.append(name)
        await stopped.wait()
        running.remove(name)

    async with bench.running():
        await bench.cluster.create(widget("good", on=1))
        await bench.cluster.create(widget("bad", off=1))
        await settle(1)
        assert running == ["good"]
        assert "A filter of Daemon" in caplog.text
        await bench.cluster.patch("widgets", "good", {"spec": {"on": None, "off": 1}})
        await settle(1)
        assert running == ["good"]


async def test_a_daemon_may_exclude_itself_for_ever(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[int] = []

    @trioperator.daemon("widgets", annotations={"never-again": trioperator.ABSENT}, registry=bench.registry)
    async def watch(patch: trioperator.Patch, **_: Any) -> None:
        calls.append(1)
        patch.metadata.annotations["never-again"] = "yes"

    for _ in range(2):
        async with bench.running():
            if not calls:
                await bench.cluster.create(widget())
            await settle(1)
    assert len(calls) == 1
    assert await finalizers(bench) == []


# ------------------------------------------------------------------------------------------- stages of the end


async def test_a_deleted_object_vanishes_at_the_moment_when_its_last_daemon_ends(
    bench: Bench, autojump_clock: MockClock
) -> None:
    ended: list[Any] = []

    for seconds in (30, 100):

        @trioperator.daemon("widgets", id=f"d{seconds}", param=seconds, registry=bench.registry)
        async def watch(stopped: trioperator.DaemonStopped, param: int, **_: Any) -> None:
            await stopped.wait()
            await trio.sleep(param)
            ended.append((trio.current_time() - asked, stopped.reason))

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        asked = trio.current_time()
        await bench.cluster.delete("widgets", "w")
        await settle(99.9)
        assert await bench.cluster.list("widgets")
        await settle(0.1)
        assert not await bench.cluster.list("widgets")
    assert ended == [(30, DELETED), (100, DELETED)]
    assert bench.writes() == ["PATCH main"] * 2


async def test_a_daemon_is_cancelled_after_its_backoff(bench: Bench, autojump_clock: MockClock) -> None:
    notes: list[Any] = []

    @trioperator.daemon("widgets", cancellation_backoff=5, cancellation_timeout=10, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, patch: trioperator.Patch, **_: Any) -> None:
        try:
            await trio.sleep_forever()
        except trio.Cancelled as cancelled:
            notes.append((trio.current_time() - asked, stopped.reason, str(cancelled)))
            patch.spec["parting"] = "words"
            raise

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        other = await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": [*FINALIZERS, "example.com/x"]}})
        assert other["metadata"]["finalizers"] == [*FINALIZERS, "example.com/x"]
        await settle(1)
        asked = trio.current_time()
        await bench.cluster.delete("widgets", "w")
        await settle(4.9)
        assert notes == []
        await settle(0.2)
        [(when, reason, why)] = notes
        assert (when, reason) == (5, DELETED | SIGNALLED | CANCELLED)
        assert "the cancellation backoff is over" in why
        found = await bench.cluster.get("widgets", "w")
        assert found["metadata"]["finalizers"] == ["example.com/x"]
        assert found["spec"] == {"size": 1, "parting": "words"}


async def test_a_sync_daemon_that_waits_by_its_client_is_cancelled_after_its_backoff(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    notes: list[Any] = []

    @trioperator.daemon("widgets", cancellation_backoff=5, cancellation_timeout=10, registry=bench.registry)
    def follow(stopped: trioperator.DaemonStopped, client: trioperator.SyncClient, **_: Any) -> None:
        try:
            with client.watch("configmaps") as events:
                notes.extend(event.object["metadata"]["name"] for event in events)
        except trio.Cancelled:
            notes.append(stopped.reason)
            raise

    async with bench.running():
        await bench.cluster.create(widget())
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "default"}}
        await bench.cluster.create(body)
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(4.9)
        assert notes == ["one"]
        await settle(0.2)
        assert notes == ["one", DELETED | SIGNALLED | CANCELLED]
        assert await bench.cluster.find("widgets", "w", "default") is None
    assert "Leaving it orphaned" not in caplog.text


async def test_a_daemon_that_does_not_end_is_abandoned_and_its_object_released(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", cancellation_backoff=5, cancellation_timeout=10, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        with trio.move_on_after(1000, shield=True):
            await trio.sleep_forever()
        reasons.append(stopped.reason)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(14.9)
        assert await bench.cluster.list("widgets")
        await settle(0.1)
        assert not await bench.cluster.list("widgets")
        await settle(1000)
    assert reasons == [DELETED | SIGNALLED | CANCELLED | ABANDONED]
    assert "did not exit in time. Leaving it orphaned." in caplog.text
    assert "did not exit in time" in str(recwarn.pop(ResourceWarning).message)


async def test_an_abandoned_daemon_is_not_followed_by_another_one_until_it_has_ended(
    bench: Bench, autojump_clock: MockClock, recwarn: pytest.WarningsRecorder
) -> None:
    spawned: list[float] = []

    @trioperator.daemon("widgets", labels={"on": "yes"}, cancellation_timeout=1, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        spawned.append(trio.current_time() - began)
        await stopped.wait()
        with trio.move_on_after(100, shield=True):
            await trio.sleep_forever()

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(labelled(on="yes"))
        await settle(10)
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"on": "no"}}})
        await settle(10)
        assert await finalizers(bench) == []
        await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"on": "yes"}}})
        await settle(89)
        assert spawned == [0]
        await settle(2)
        assert spawned == [0, 110]
    assert "did not exit in time" in str(recwarn.pop(ResourceWarning).message)


async def test_warnings_that_are_errors_do_not_end_the_operator(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.daemon("widgets", cancellation_timeout=1, registry=bench.registry)
    async def watch(**_: Any) -> None:
        with trio.move_on_after(100, shield=True):
            await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        assert not await bench.cluster.list("widgets")


@pytest.mark.parametrize("own", [None, 20])
async def test_a_daemon_without_a_timeout_is_waited_for_and_reported(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, own: float | None
) -> None:
    caplog.set_level(logging.DEBUG, "trioperator")
    bench.settings.background.cancellation_polling = 30

    @trioperator.daemon("widgets", cancellation_polling=own, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        await trio.sleep(95)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(90)
        assert await bench.cluster.list("widgets")
        await settle(10)
        assert not await bench.cluster.list("widgets")
    assert caplog.text.count("is still exiting. The next check is in") == (3 if own is None else 4)


async def test_delete_handlers_run_beside_daemons_that_end_and_are_called_once(
    bench: Bench, autojump_clock: MockClock
) -> None:
    notes: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        await trio.sleep(100)
        notes.append(("ended", trio.current_time() - asked))

    @on.delete("widgets", registry=bench.registry)
    async def delete(**_: Any) -> None:
        notes.append(("deleted", trio.current_time() - asked))

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        notes.append("created")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        asked = trio.current_time()
        await bench.cluster.delete("widgets", "w")
        await settle(50)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 5}})
        await settle(49)
        assert await bench.cluster.list("widgets")
        await settle(1)
        assert not await bench.cluster.list("widgets")
    assert notes == ["created", ("deleted", 0), ("ended", 100)]


async def test_an_operator_that_is_restarted_does_not_repeat_delete_handlers(
    bench: Bench, autojump_clock: MockClock
) -> None:
    notes: list[str] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        await trio.sleep(100)

    @on.delete("widgets", registry=bench.registry)
    async def delete(**_: Any) -> None:
        notes.append("deleted")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
    assert await bench.cluster.list("widgets")
    async with bench.running():
        await settle(1)
        assert not await bench.cluster.list("widgets")
    assert notes == ["deleted"]


async def test_a_vanished_object_stops_its_daemon(bench: Bench, autojump_clock: MockClock) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, patch: trioperator.Patch, **_: Any) -> str:
        await stopped.wait()
        reasons.append(stopped.reason)
        patch.spec["too"] = "late"
        return "too late"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert reasons == [DELETED]
    assert bench.writes() == ["PATCH main"]


async def test_a_kind_that_is_removed_stops_its_daemons(bench: Bench, autojump_clock: MockClock) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        reasons.append(stopped.reason)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("customresourcedefinitions", "widgets.example.com")
        await settle(1)
        assert reasons == [DELETED]


async def test_a_daemon_follows_its_object_into_another_version_and_is_never_doubled(
    bench: Bench, autojump_clock: MockClock
) -> None:
    notes: list[Any] = []

    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def watch(body: trioperator.Body, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        notes.append(body["apiVersion"])
        await stopped.wait()
        notes.append(stopped.reason)
        await trio.sleep(10)
        notes.append("ends")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        crd = await bench.cluster.get("customresourcedefinitions", "widgets.example.com")
        [version] = crd["spec"]["versions"]
        versions = [{**version, "name": "v2"}, {**version, "storage": False, "served": False}]
        await bench.cluster.patch("customresourcedefinitions", "widgets.example.com", {"spec": {"versions": versions}})
        await settle(5)
        assert notes == ["example.com/v1", MISMATCH]
        await settle(10)
    assert notes[2:4] == ["ends", "example.com/v2"]


async def serve_in_version_2(bench: Bench) -> None:
    crd = await bench.cluster.get("customresourcedefinitions", "widgets.example.com")
    [version] = crd["spec"]["versions"]
    versions = [{**version, "name": "v2"}, {**version, "storage": False}]
    await bench.cluster.patch("customresourcedefinitions", "widgets.example.com", {"spec": {"versions": versions}})


@pytest.mark.parametrize("moment", ["before", "after", "leaving"])
async def test_a_daemon_that_is_ending_blocks_the_deletion_in_another_version_and_writes_nothing(
    bench: Bench, moment: str, autojump_clock: MockClock
) -> None:
    notes: list[Any] = []

    @trioperator.daemon("widgets", labels={"at": "work"}, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        notes.append("begins")
        await stopped.wait()
        await trio.sleep(60)
        notes.append(await bench.cluster.find("widgets", "w") is not None)

    async with bench.running():
        await bench.cluster.create({**widget(), "metadata": {**widget()["metadata"], "labels": {"at": "work"}}})
        await settle(1)
        if moment == "leaving":
            await bench.cluster.patch("widgets", "w", {"metadata": {"labels": {"at": "home"}}})
            await settle(5)
        if moment == "before":
            await bench.cluster.delete("widgets", "w")
            await settle(5)
        await serve_in_version_2(bench)
        await settle(5)
        if moment != "before":
            await bench.cluster.delete("widgets", "w")
        writes = bench.writes()
        await settle(30)
        assert bench.writes() == writes
        await settle(60)
        assert notes == ["begins", True]
        assert await bench.cluster.find("widgets", "w") is None


async def test_a_daemon_of_two_versions_of_a_kind_blocks_the_deletion_and_writes_nothing(
    bench: Bench, autojump_clock: MockClock
) -> None:
    notes: list[Any] = []

    @trioperator.daemon("example.com", "v1", "widgets", registry=bench.registry)
    @trioperator.daemon("example.com", "v2", "widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        notes.append("begins")
        await stopped.wait()
        await trio.sleep(10)
        notes.append(await bench.cluster.find("widgets", "w") is not None)

    await serve_in_version_2(bench)
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        writes = bench.writes()
        await settle(60)
        assert bench.writes() == writes
        await bench.cluster.delete("widgets", "w")
        await settle(20)
        assert notes == ["begins", True]
        assert await bench.cluster.find("widgets", "w") is None


async def test_a_daemon_that_ends_without_having_seen_the_flag_is_not_run_again_in_another_version(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def once(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        calls.append("async")
        assert not stopped
        await trio.sleep(10)

    @trioperator.daemon("widgets", registry=bench.registry)
    def once_in_thread(**_: Any) -> None:
        calls.append("sync")
        trio.from_thread.run(trio.sleep, 10)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def fail(**_: Any) -> None:
        calls.append("fails")
        await trio.sleep(10)
        raise trioperator.PermanentError("never again")

    @trioperator.timer("widgets", registry=bench.registry)
    async def failing_timer(**_: Any) -> None:
        calls.append("timer fails")
        await trio.sleep(10)
        raise trioperator.PermanentError("never again")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await serve_in_version_2(bench)
        await settle(60)
    assert sorted(calls) == ["async", "fails", "sync", "timer fails"]


async def test_a_daemon_that_has_seen_the_flag_or_was_cancelled_or_interrupted_is_run_in_another_version(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def look(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        calls.append("looks")
        while not stopped:  # noqa: ASYNC110 -- as in Kopf's documentation
            await trio.sleep(1)

    @trioperator.daemon("widgets", registry=bench.registry, cancellation_timeout=5)
    async def endure(**_: Any) -> None:
        calls.append("endures")
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def retry(**_: Any) -> None:
        calls.append("retries")
        raise trioperator.TemporaryError("not yet", delay=20)

    @trioperator.timer("widgets", registry=bench.registry, interval=100)
    async def tick(**_: Any) -> None:
        calls.append("ticks")
        await trio.sleep(10)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
        await serve_in_version_2(bench)
        await settle(15)
    assert sorted(calls) == sorted(["looks", "endures", "retries", "ticks"] * 2)


# ------------------------------------------------------------------------------------------- the operator stops


async def test_daemons_end_when_the_operator_stops_and_store_their_last_words(
    bench: Bench, autojump_clock: MockClock
) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", id="watch", registry=bench.registry)
    async def watch(name: str, stopped: trioperator.DaemonStopped, patch: trioperator.Patch, **_: Any) -> str:
        await stopped.wait()
        reasons.append(stopped.reason)
        patch.spec["parting"] = "words"
        return f"bye from {name}"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        stopped = trio.current_time()
    assert trio.current_time() == stopped
    assert reasons == [EXITING]
    found = await bench.cluster.get("widgets", "w")
    assert found["status"] == {"watch": "bye from w"}
    assert found["spec"] == {"size": 1, "parting": "words"}
    assert found["metadata"]["finalizers"] == FINALIZERS


async def test_a_daemon_without_a_timeout_is_cancelled_some_seconds_after_the_stop(
    bench: Bench, autojump_clock: MockClock
) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            reasons.append(stopped.reason)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        stopped = trio.current_time()
    assert trio.current_time() == stopped + 5
    assert reasons == [EXITING | CANCELLED]


@pytest.mark.parametrize(("backoff", "after"), [(2, 2), (60, 12.5)])
async def test_a_daemon_has_its_own_time_within_the_grace_when_the_operator_stops(
    bench: Bench, autojump_clock: MockClock, backoff: float, after: float
) -> None:
    @trioperator.daemon("widgets", cancellation_backoff=backoff, cancellation_timeout=5, registry=bench.registry)
    async def watch(**_: Any) -> None:
        await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        stopped = trio.current_time()
    assert trio.current_time() == stopped + after


async def test_a_daemon_that_is_waited_for_already_is_cancelled_when_the_operator_stops(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(**_: Any) -> None:
        await trio.sleep_forever()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(500)
        stopped = trio.current_time()
    assert trio.current_time() == stopped + 5


async def test_an_operator_that_is_cancelled_cancels_its_daemons(bench: Bench, autojump_clock: MockClock) -> None:
    notes: list[str] = []

    @trioperator.daemon("widgets", cancellation_timeout=5, registry=bench.registry)
    async def watch(**_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            notes.append("cancelled")

    with trio.CancelScope() as scope:
        async with bench.running():
            await bench.cluster.create(widget())
            await settle(1)
            scope.cancel()
    assert notes == ["cancelled"]


def make_manager(settings: trioperator.OperatorSettings) -> DaemonManager:
    diffbase = trioperator.AnnotationsDiffBaseStorage()
    essences = Essences(progress=trioperator.SmartProgressStorage(), diffbase=diffbase)
    pending = PendingPatches()
    loops = DaemonLoops(settings, pending)
    return DaemonManager(loops, pending=pending, essences=essences, settings=settings)


async def test_all_daemons_can_be_stopped_for_a_pause_and_none_is_spawned_then(
    bench: Bench, autojump_clock: MockClock
) -> None:
    reasons: list[Any] = []

    @trioperator.daemon("widgets", finalizer=False, registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        reasons.append((trio.current_time(), stopped.reason))

    @trioperator.timer("widgets", interval=10, finalizer=False, registry=bench.registry)
    async def tick(**_: Any) -> None:
        reasons.append(trio.current_time())

    manager = make_manager(bench.settings)
    kind = Kind(WIDGETS, KindHandlers.of(bench.registry.resource_handlers()))
    cache = ObjectCache(kind, Queue(), memo=None, consistency_timeout=5)
    for name in ("one", "two"):
        cache.observe("ADDED", raw(1, name=name, uid=name))
    one, two = cache
    async with trio.open_nursery() as nursery:
        await nursery.start(manager.serve)
        began = trio.current_time()
        one.body, two.body = body(1, name="one"), body(1, name="two")
        assert not manager.match(one)
        await trio.sleep(15)
        manager.stop_all(PAUSING)
        assert not manager.match(two)
    assert reasons == [began, began + 10, (began + 15, PAUSING)]
    assert trio.current_time() == began + 15


# ------------------------------------------------------------------------------------------- what it sees and stores


async def test_the_arguments_are_live(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(body: Any, spec: Any, status: Any, meta: Any, labels: Any, annotations: Any, **_: Any) -> None:
        while True:
            await trio.sleep(10)
            size = body["spec"]["size"]
            seen.append((size, spec["size"], dict(status), meta["generation"], dict(labels), dict(annotations)))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(11)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}, "metadata": {"labels": {"a": "b"}}})
        await bench.cluster.patch("widgets", "w", {"metadata": {"annotations": {"c": "d"}}})
        await bench.cluster.patch("widgets", "w", {"status": {"e": "f"}}, subresource="status")
        await settle(10)
    assert seen[:2] == [(1, 1, {}, 1, {}, {}), (2, 2, {"e": "f"}, 2, {"a": "b"}, {"c": "d"})]


async def test_a_daemon_sees_what_it_and_others_want_stored(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(retry: int, spec: Any, status: Any, patch: Any, **_: Any) -> None:
        seen.append((dict(spec), dict(status)))
        patch.spec[f"by{retry}"] = retry
        if retry < 2:
            raise trioperator.TemporaryError("again", delay=1)
        await trio.sleep(1)
        seen.append((dict(spec), dict(status)))

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> str:
        await trio.sleep(0.5)
        return "created"

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(10)
    assert seen == [
        ({"size": 1}, {}),
        ({"size": 1, "by0": 0}, {"create": "created"}),
        ({"size": 1, "by0": 0, "by1": 1}, {"create": "created"}),
        ({"size": 1, "by0": 0, "by1": 1}, {"create": "created"}),
    ]


async def test_daemons_store_beside_a_handler_at_work(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.daemon("widgets", id="watch", registry=bench.registry)
    async def watch(retry: int, patch: Any, **_: Any) -> None:
        patch.status["retry"] = retry
        raise trioperator.TemporaryError("again", delay=10)

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        await trio.sleep(1000)

    async with bench.running():
        await bench.cluster.create(widget())
        for retry in range(5):
            await settle(0.5)
            assert (await bench.cluster.get("widgets", "w"))["status"] == {"retry": retry}
            await settle(9.5)
        await settle(1000)
        found = await bench.cluster.get("widgets", "w")
        assert "trioperator.dev/last-handled-configuration" in found["metadata"]["annotations"]


async def test_a_daemon_cannot_get_ahead_of_what_is_stored(bench: Bench, autojump_clock: MockClock) -> None:
    attempts: list[int] = []

    class Slow(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "PATCH":
                await trio.sleep(10)
            return await inner.handle_async_request(request)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def spin(retry: int, patch: Any, **_: Any) -> None:
        attempts.append(retry)
        patch.spec["retry"] = retry
        raise trioperator.TemporaryError("at once", delay=0)

    inner = bench.cluster.transport()
    async with bench.running(transport=Slow()):
        await bench.cluster.create(widget())
        await settle(10 + 55)
        assert attempts == [0, 1, 2, 3, 4, 5]
        assert (await bench.cluster.get("widgets", "w"))["spec"]["retry"] == 4


async def test_patches_by_functions_are_stored(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(patch: trioperator.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["spec"].update(size=body["spec"]["size"] + 1))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
    assert (await bench.cluster.get("widgets", "w"))["spec"] == {"size": 2}


async def test_helpers_know_the_object(bench: Bench, autojump_clock: MockClock) -> None:
    owners: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(**_: Any) -> None:
        child: dict[str, Any] = {"metadata": {}}
        trioperator.adopt(child)
        owners.append(child["metadata"]["ownerReferences"][0]["name"])

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    assert owners == ["w"]


# ------------------------------------------------------------------------------------------- threads


async def test_sync_daemons_run_in_threads_and_wait_in_virtual_time(bench: Bench, autojump_clock: MockClock) -> None:
    beats: list[Any] = []

    @trioperator.daemon("widgets", id="watch", registry=bench.registry)
    def watch(stopped: trioperator.SyncDaemonStopperChecker, **_: Any) -> str:
        while not stopped.wait(600):
            beats.append(threading.current_thread() is threading.main_thread())
        beats.append(stopped.reason)
        return "bye"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(3600)
        assert beats[:5] == [False] * 5
        await bench.cluster.delete("widgets", "w")
        with trio.fail_after(60):
            while await bench.cluster.list("widgets"):  # noqa: ASYNC110 -- threads have no virtual time
                await trio.sleep(0.01)
    assert beats[-1] == DELETED


async def test_five_hundred_sync_daemons_run_and_starve_nobody(bench: Bench) -> None:
    bench.settings.queueing.worker_limit = None
    inside = trio.Event()
    names: set[str] = set()
    token = trio.lowlevel.current_trio_token()
    called = trio.Event()

    def note(name: str) -> None:
        names.add(name)
        if len(names) == 500:
            inside.set()

    @trioperator.daemon("widgets", registry=bench.registry)
    def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        trio.from_thread.run_sync(note, name, trio_token=token)
        stopped.wait()

    @on.create("gadgets", registry=bench.registry)
    def create(**_: Any) -> None:
        trio.from_thread.run_sync(called.set, trio_token=token)

    with trio.fail_after(60):
        async with bench.running():
            for number in range(500):
                await bench.cluster.create(widget(f"w{number}"))
            await inside.wait()
            await bench.cluster.create(widget("g", kind="Gadget"))
            await called.wait()


async def test_a_sync_daemon_beyond_the_threads_waits_and_logs_what_to_set(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.settings.background.max_threads = 1
    token = trio.lowlevel.current_trio_token()
    begun: dict[str, trio.Event] = {"one": trio.Event(), "two": trio.Event()}

    @trioperator.daemon("widgets", registry=bench.registry)
    def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        trio.from_thread.run_sync(begun[name].set, trio_token=token)
        stopped.wait()

    with trio.fail_after(60):
        async with bench.running():
            await bench.cluster.create(widget("one"))
            await begun["one"].wait()
            await bench.cluster.create(widget("two"))
            while "set settings.background.max_threads" not in caplog.text:  # noqa: ASYNC110
                await trio.sleep(0.01)
            assert "all 1 threads for daemons are taken" in caplog.text
            await bench.cluster.delete("widgets", "one")
            await begun["two"].wait()


async def test_a_daemon_that_waits_for_a_thread_can_be_stopped(bench: Bench) -> None:
    bench.settings.background.max_threads = 1
    token = trio.lowlevel.current_trio_token()
    names: list[str] = []
    begun = trio.Event()

    @trioperator.daemon("widgets", registry=bench.registry)
    def watch(name: str, stopped: trioperator.DaemonStopped, **_: Any) -> None:
        names.append(name)
        trio.from_thread.run_sync(begun.set, trio_token=token)
        stopped.wait()

    with trio.fail_after(60):
        async with bench.running():
            await bench.cluster.create(widget("one"))
            await begun.wait()
            await bench.cluster.create(widget("two"))
            await settle()
            await bench.cluster.delete("widgets", "two")
            while len(await bench.cluster.list("widgets")) > 1:  # noqa: ASYNC110
                await trio.sleep(0.01)
    assert names == ["one"]


async def test_a_thread_that_does_not_end_is_abandoned_and_does_not_keep_the_operator(bench: Bench) -> None:
    bench.settings.process.grace = 2
    token = trio.lowlevel.current_trio_token()
    begun = trio.Event()
    end = threading.Event()

    @trioperator.daemon("widgets", cancellation_timeout=0.2, registry=bench.registry)
    def watch(**_: Any) -> None:
        trio.from_thread.run_sync(begun.set, trio_token=token)
        end.wait()

    try:
        with trio.fail_after(60):
            async with bench.running():
                await bench.cluster.create(widget())
                await begun.wait()
                await bench.cluster.delete("widgets", "w")
                while await bench.cluster.list("widgets"):  # noqa: ASYNC110
                    await trio.sleep(0.01)
    finally:
        end.set()


async def test_the_api_being_away_keeps_what_daemons_want_stored(bench: Bench, autojump_clock: MockClock) -> None:
    @trioperator.daemon("widgets", id="watch", registry=bench.registry)
    async def watch(retry: int, **_: Any) -> str:
        if retry == 0:
            raise trioperator.TemporaryError("later", delay=5)
        away.append(True)
        return "done"

    away: list[bool] = []

    class Away(httpx.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if away and request.method == "PATCH" and trio.current_time() < began + 500:
                raise httpx.ConnectError("away")
            return await inner.handle_async_request(request)

    inner = bench.cluster.transport()
    async with bench.running(transport=Away()):
        began = trio.current_time()
        await bench.cluster.create(widget())
        await settle(400)
        assert "status" not in await bench.cluster.get("widgets", "w")
        await settle(2000)
        assert (await bench.cluster.get("widgets", "w"))["status"] == {"watch": "done"}


# ------------------------------------------------------------------------------------------- large objects


async def test_a_large_object_is_decoded_only_while_somebody_looks_at_it(
    bench: Bench, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_object, "_BUDGET", 0)
    views: list[trioperator.Body] = []
    seen: list[Any] = []

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(body: trioperator.Body, spec: trioperator.Spec, stopped: Any, **_: Any) -> None:
        views.append(body)
        while not stopped:
            seen.append((spec["number"], len(spec["items"]), body.status.get("ticks")))
            await stopped.wait(10)

    @trioperator.timer("widgets", interval=10, registry=bench.registry)
    def tick(spec: trioperator.Spec, patch: trioperator.Patch, **_: Any) -> None:
        patch.status["ticks"] = spec["number"]

    async with bench.running():
        await bench.cluster.create(widget(number=1, items=[[]] * 10_000))
        await settle(11)
        await bench.cluster.patch("widgets", "w", {"spec": {"number": 2}})
        await settle(20)
        (body,) = views
        kept = body._raw, body._own
        assert [isinstance(found, lazy_object.LazyObject) and found.is_decoded for found in kept] == [False, False]
        assert all(isinstance(found, lazy_object.LazyObject) for found in kept)
        assert seen[0][:2] == (1, 10_000)
        assert seen[-1] == (2, 10_000, 2)
