"""The finalizer of the operator: when it is added and removed, and what that means for the reconcile."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from tests.runtime.harness import LOGGER, Harness, make_state, open_harness, patched
from trioperator._model.patch import Patch
from trioperator._runtime.patching.requests import StaleError
from trioperator._runtime.reconciler.finalizers import Finalizers
from trioperator._runtime.result import AGAIN, DONE
from trioperator.apiserver import Cluster

NAME = "example.com/f"
OTHERS = {"metadata": {"finalizers": ["example.com/others"]}}


@pytest.fixture
async def harness(cluster: Cluster) -> AsyncIterator[Harness]:
    async with open_harness(cluster) as harness:
        yield harness


@pytest.fixture
def finalizers(harness: Harness) -> Finalizers:
    return Finalizers(NAME, patcher=harness.patcher, pending=harness.pending, progress=harness.progress)


async def test_a_finalizer_is_added_with_what_is_pending_in_one_request(
    harness: Harness, finalizers: Finalizers
) -> None:
    state = await harness.make()
    harness.pending.contribute(state, {"spec": {"size": 5}}, [], by="Handler", logger=LOGGER)
    assert await finalizers.adjust(state, LOGGER, blocked=True, finalized=False) is AGAIN
    body = await harness.get()
    assert body["metadata"]["finalizers"] == [NAME]
    assert body["spec"]["size"] == 5
    assert harness.patches == 1
    assert state.body == body


@pytest.mark.parametrize("blocked", [True, False])
async def test_a_finalizer_that_is_as_it_is_to_be_is_left_alone(
    harness: Harness, finalizers: Finalizers, blocked: bool
) -> None:
    state = await harness.make()
    assert await finalizers.adjust(state, LOGGER, blocked=blocked, finalized=blocked) is None
    assert harness.patches == 0


async def test_no_finalizer_is_added_to_what_is_being_deleted(harness: Harness, finalizers: Finalizers) -> None:
    await harness.make()
    await harness.cluster.patch("widgets", "w", OTHERS)
    await harness.cluster.delete("widgets", "w")
    state = make_state(await harness.get())
    assert await finalizers.adjust(state, LOGGER, blocked=True, finalized=False) is None
    assert harness.patches == 0


async def test_a_finalizer_that_nothing_needs_is_removed_and_the_object_reconciled_again(
    harness: Harness, finalizers: Finalizers
) -> None:
    await harness.make()
    state = make_state(await harness.cluster.patch("widgets", "w", {"metadata": {"finalizers": [NAME]}}))
    assert await finalizers.adjust(state, LOGGER, blocked=False, finalized=True) is AGAIN
    assert not (await harness.get())["metadata"].get("finalizers")
    assert not state.deletion_handled


async def test_a_finalizer_that_is_needed_now_and_then_is_added_at_once(
    harness: Harness, finalizers: Finalizers, caplog: pytest.LogCaptureFixture
) -> None:
    state = await harness.make()
    for _ in range(10):
        assert await finalizers.adjust(state, LOGGER, blocked=True, finalized=False) is AGAIN
        assert await finalizers.adjust(state, LOGGER, blocked=False, finalized=True) is AGAIN
    assert harness.patches == 20
    assert "others" not in caplog.text


async def test_with_the_finalizer_of_what_is_being_deleted_all_is_done(
    harness: Harness, finalizers: Finalizers
) -> None:
    await harness.make()
    both = [NAME, *OTHERS["metadata"]["finalizers"]]
    await harness.cluster.patch("widgets", "w", {"metadata": {"finalizers": both}})
    await harness.cluster.delete("widgets", "w")
    state = make_state(await harness.get())
    assert await finalizers.remove(state, Patch(), LOGGER) is DONE
    assert state.deletion_handled
    assert (await harness.get())["metadata"]["finalizers"] == OTHERS["metadata"]["finalizers"]


async def test_a_finalizer_is_not_changed_in_another_version_of_the_object(
    harness: Harness, finalizers: Finalizers
) -> None:
    state = await harness.make()
    await harness.cluster.patch("widgets", "w", OTHERS)
    with pytest.raises(StaleError) as stale:
        await finalizers.adjust(state, LOGGER, blocked=True, finalized=False)
    assert stale.value.body == await harness.get()
    assert patched(dict(stale.value.body), {})["metadata"]["finalizers"] == OTHERS["metadata"]["finalizers"]


@pytest.mark.parametrize("name", ["new.example.com/finalizer", None])
async def test_a_finalizer_of_a_former_release_that_nobody_removes_is_reported(
    bench: Bench, name: str | None, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    calls: list[str] = []

    @trioperator.on.delete("widgets", registry=bench.registry)
    async def delete(**_: Any) -> None:
        calls.append("deleted")

    caplog.set_level("INFO")
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
    bench.settings.persistence.finalizer = name
    async with bench.running():
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
        assert calls == ([] if name is None else ["deleted"])
    assert "until others have removed their finalizers: trioperator.dev/finalizer." in caplog.text


async def test_of_very_many_finalizers_that_a_deletion_waits_for_some_are_named(
    harness: Harness, finalizers: Finalizers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    state = await harness.make()
    others = [f"example.com/other-{number}" for number in range(30)]
    await harness.cluster.patch("widgets", "w", {"metadata": {"finalizers": [NAME, *others]}})
    await harness.cluster.delete("widgets", "w")
    state.body = await harness.get()
    assert await finalizers.remove(state, Patch(), LOGGER) is DONE
    assert "example.com/other-9 and 20 more." in caplog.text


class Amending(httpx.AsyncBaseTransport):
    """A server whose admission control undoes each change of finalizers."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.is_active = True
        self.patches = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.method == "PATCH" and b"/metadata/finalizers" in request.content and self.is_active:
            self.patches += 1
            ops = [op for op in json.loads(request.content) if not op["path"].startswith("/metadata/finalizers")]
            headers = {name: value for name, value in request.headers.items() if name != "content-length"}
            request = httpx.Request("PATCH", request.url, headers=headers, content=json.dumps(ops).encode())
        return await self._inner.handle_async_request(request)


@pytest.mark.parametrize("deleting", [False, True])
async def test_finalizers_that_the_server_does_not_keep_are_no_storm_but_an_error(
    deleting: bool, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[str] = []

    @trioperator.on.create("widgets", registry=bench.registry)
    @trioperator.on.delete("widgets", registry=bench.registry)
    async def handle(reason: str, **_: Any) -> None:
        called.append(reason)

    amending = Amending(bench.cluster.transport())
    amending.is_active = not deleting
    async with bench.running(transport=amending):
        await bench.cluster.create(widget())
        await settle(1)
        if deleting:
            amending.is_active = True
            await bench.cluster.delete("widgets", "w")
        await settle(100)
        assert 4 <= amending.patches <= 12
        verb = "remove" if deleting else "keep"
        error = f"could not be handled: the server did not {verb} the finalizer trioperator.dev/finalizer: an admission"
        assert error in caplog.text
        amending.is_active = False
        await settle(100)
        assert called == (["create", "delete"] if deleting else ["create"])
        assert len(await bench.cluster.list("widgets")) == (not deleting)
