"""Daemons and timers."""

from __future__ import annotations

from typing import Any

import pytest
import trio

import trioperator
from tests.both.conftest import Server
from tests.both.kinds import GADGETS, WIDGETS, manifest
from trioperator._model.resource import Resource

FINALIZERS = ["trioperator.dev/finalizer"]


def is_finalized(body: dict[str, Any]) -> bool:
    return bool(body["metadata"].get("finalizers") == FINALIZERS)


async def test_a_daemon_runs_beside_an_object_and_sees_its_changes(server: Server) -> None:
    @trioperator.daemon(*WIDGETS, id="watch", registry=server.registry)
    async def watch(spec: trioperator.Spec, stopped: trioperator.DaemonStopped) -> str:
        server.notes.add("begins", spec["size"])
        while spec["size"] == 1:  # noqa: ASYNC110 -- the view is live
            await trio.sleep(0.01)
        server.notes.add("sees", spec["size"])
        await stopped.wait()
        server.notes.add("ends", str(stopped.reason))
        return "bye"

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1))
        await server.notes.until(1)
        body = await server.until(WIDGETS, "one", is_finalized)
        assert "annotations" not in body["metadata"]
        await server.patch(WIDGETS, "one", {"spec": {"size": 2}})
        await server.notes.until(2)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    reason = "DaemonStoppingReason.RESOURCE_DELETED"
    assert server.notes.all == [("begins", 1), ("sees", 2), ("ends", reason)]


@pytest.mark.parametrize("resource", [WIDGETS, GADGETS], ids=["with a status subresource", "without one"])
async def test_patches_of_daemons_are_stored_and_a_finished_daemon_does_not_block_deletion(
    server: Server, resource: Resource
) -> None:
    @trioperator.daemon(*resource, id="watch", registry=server.registry)
    async def watch(retry: int, patch: trioperator.Patch) -> dict[str, int]:
        patch.spec["retry"] = retry
        patch.fns.append(lambda body: body["spec"].setdefault("list", []).append(retry))
        if retry < 2:
            raise trioperator.TemporaryError("again", delay=0)
        return {"retry": retry}

    async with server.operating():
        await server.create(resource, manifest(resource, size=1))
        body = await server.until(
            resource, "one", lambda body: body.get("status") and "finalizers" not in body["metadata"]
        )
        assert body["status"] == {"watch": {"retry": 2}}
        body = await server.until(resource, "one", lambda body: len(body["spec"].get("list", ())) == 3)
        assert body["spec"] == {"size": 1, "retry": 2, "list": [0, 1, 2]}


async def test_filters_stop_and_start_a_daemon(server: Server) -> None:
    @trioperator.daemon(*WIDGETS, labels={"on": "yes"}, registry=server.registry)
    def watch(stopped: trioperator.SyncDaemonStopperChecker) -> None:
        trio.from_thread.run_sync(server.notes.add, "begins")
        stopped.wait()
        trio.from_thread.run_sync(server.notes.add, str(stopped.reason))

    def is_free(body: dict[str, Any]) -> bool:
        return "finalizers" not in body["metadata"]

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        for number in range(2):
            await server.patch(WIDGETS, "one", {"metadata": {"labels": {"on": "yes"}}})
            await server.notes.until(2 * number + 1)
            await server.patch(WIDGETS, "one", {"metadata": {"labels": {"on": "no"}}})
            await server.notes.until(2 * number + 2)
            await server.until(WIDGETS, "one", is_free)
    assert server.notes.all == ["begins", "DaemonStoppingReason.FILTERS_MISMATCH"] * 2


async def test_a_daemon_that_does_not_end_is_abandoned(server: Server, recwarn: pytest.WarningsRecorder) -> None:
    @trioperator.daemon(*WIDGETS, cancellation_backoff=0.1, cancellation_timeout=0.1, registry=server.registry)
    async def watch(stopped: trioperator.DaemonStopped) -> None:
        server.notes.add("begins")
        with trio.move_on_after(20, shield=True):
            await gone.wait()
        server.notes.add(str(stopped.reason))

    gone = trio.Event()
    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        await server.notes.until(1)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
        gone.set()
        await server.notes.until(2)
    assert "ABANDONED" in server.notes.all[1]
    assert "did not exit in time" in str(recwarn.pop(ResourceWarning).message)


async def test_a_delete_handler_and_a_daemon_both_block_deletion(server: Server) -> None:
    @trioperator.daemon(*WIDGETS, registry=server.registry)
    async def watch(stopped: trioperator.DaemonStopped) -> None:
        server.notes.add("begins")
        await stopped.wait()
        await deleted.wait()
        server.notes.add("ends")

    @trioperator.on.delete(*WIDGETS, registry=server.registry)
    async def delete() -> None:
        server.notes.add("deleted")
        deleted.set()

    deleted = trio.Event()
    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        await server.until_handled(WIDGETS, "one")
        await server.notes.until(1)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all == ["begins", "deleted", "ends"]


async def test_daemons_are_stopped_and_spawned_again_by_a_restart(server: Server) -> None:
    @trioperator.daemon(*WIDGETS, id="watch", registry=server.registry)
    async def watch(stopped: trioperator.DaemonStopped, patch: trioperator.Patch) -> None:
        server.notes.add("begins")
        await stopped.wait()
        patch.spec["parting"] = str(stopped.reason)

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        await server.notes.until(1)
    body = await server.get(WIDGETS, "one")
    assert body["spec"]["parting"] == "DaemonStoppingReason.OPERATOR_EXITING"
    assert body["metadata"]["finalizers"] == FINALIZERS
    await server.delete(WIDGETS, "one")
    async with server.operating():
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all == ["begins"]


async def test_a_timer_is_called_again_and_again(server: Server) -> None:
    @trioperator.timer(*WIDGETS, id="beat", interval=0.05, registry=server.registry)
    async def beat(status: trioperator.Status, retry: int) -> dict[str, int]:
        count = (status.get("beat") or {}).get("count", 0) + 1
        server.notes.add(count)
        return {"count": count}

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS))
        await server.notes.until(5)
        await server.until(WIDGETS, "one", lambda body: (body.get("status") or {}).get("beat", {}).get("count", 0) >= 4)
        await server.delete(WIDGETS, "one")
        await server.until_gone(WIDGETS, "one")
    assert server.notes.all == list(range(1, len(server.notes.all) + 1))


async def test_only_changes_by_others_reset_idling(server: Server) -> None:
    @trioperator.timer(*WIDGETS, id="settle", idle=0.3, registry=server.registry)
    async def settle(spec: trioperator.Spec, patch: trioperator.Patch) -> None:
        server.notes.add(spec["size"])
        patch.spec["settled"] = spec["size"]

    async with server.operating():
        await server.create(WIDGETS, manifest(WIDGETS, size=1))
        for size in (2, 3):
            await server.patch(WIDGETS, "one", {"spec": {"size": size}})
        await server.until(WIDGETS, "one", lambda body: body["spec"].get("settled") == 3)
        await server.patch(WIDGETS, "one", {"spec": {"size": 4}})
        await server.until(WIDGETS, "one", lambda body: body["spec"].get("settled") == 4)
    assert server.notes.all[-2:] == [3, 4]
