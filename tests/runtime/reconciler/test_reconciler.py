"""What happens to an object: causes, handlers, retries, and what is stored."""

from __future__ import annotations

import collections.abc
import functools
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import Bench, settle, widget
from trioperator._runtime.cache.cache import ObjectCache
from trioperator.errors import PausedError
from trioperator.testing import FaultPlan, FaultyTransport

on = trioperator.on
LAST = "trioperator.dev/last-handled-configuration"


async def test_a_created_object_reaches_its_handler(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, spec: trioperator.Spec, reason: str, retry: int, diff: Any, old: Any, **_: Any) -> None:
        seen.append((name, dict(spec), reason, retry, old, tuple(diff)))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(1)
    assert seen == [("w", {"size": 1}, "create", 0, None, (("add", (), None, {"spec": {"size": 1}}),))]
    body = await bench.cluster.get("widgets", "w")
    assert json.loads(body["metadata"]["annotations"][LAST]) == {"spec": {"size": 1}}


async def test_sync_handlers_run_in_threads(bench: Bench) -> None:
    called = trio.Event()
    token = trio.lowlevel.current_trio_token()

    @on.create("widgets", id="create", registry=bench.registry)
    def create(name: str) -> int:
        trio.from_thread.run_sync(called.set, trio_token=token)
        return 5

    with trio.fail_after(60):
        async with bench.running():
            await bench.cluster.create(widget())
            await called.wait()
            while "status" not in await bench.cluster.get("widgets", "w"):  # noqa: ASYNC110 -- seen from outside
                await trio.sleep(0.01)
    assert (await bench.cluster.get("widgets", "w"))["status"] == {"create": 5}


async def test_a_huge_object_is_handled_once_and_its_changes_are_seen(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    @on.create("widgets", id="handle", registry=bench.registry)
    @on.update("widgets", id="handle", registry=bench.registry)
    async def handle(reason: str, diff: Any, **_: Any) -> None:
        calls.append((reason, [item.field for item in diff]))

    async with bench.running():
        await bench.cluster.create(widget(big="x" * 1_000_000, size=1))
        await settle(5)
        assert [reason for reason, _ in calls] == ["create"]
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(5)
        assert calls[1:] == [("update", [("spec", "size")])]
        await bench.cluster.patch("widgets", "w", {"spec": {"big": "y" * 1_000_000}})
        await settle(5)
        assert calls[2:] == [("update", [("spec", "big")])]
    assert "too big" in caplog.text


async def test_a_result_that_the_schema_prunes_is_warned_of_and_makes_no_loop(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []
    await bench.cluster.apply(
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": "stricts.example.com"},
            "spec": {
                "group": "example.com",
                "scope": "Namespaced",
                "names": {"kind": "Strict", "plural": "stricts", "singular": "strict"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "subresources": {"status": {}},
                        "schema": {
                            "openAPIV3Schema": {
                                "type": "object",
                                "properties": {
                                    "spec": {"type": "object", "properties": {"size": {"type": "integer"}}},
                                    "status": {"type": "object", "properties": {}},
                                },
                            }
                        },
                    }
                ],
            },
        }
    )

    @on.create("stricts", id="create", registry=bench.registry)
    async def create(**_: Any) -> int:
        calls.append("create")
        return 1

    async with bench.running():
        await bench.cluster.create(widget(kind="Strict", size=1))
        await settle(60)
    assert calls == ["create"]
    assert "status.create" in caplog.text


async def test_a_patch_that_the_server_rejects_is_reported_and_makes_no_loop(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("create")
        patch.meta.labels["not a label!"] = "x"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(600)
        assert LAST in (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert calls == ["create"]
    assert "rejected" in caplog.text


async def test_functions_of_a_patch_are_applied_to_the_newest_object(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["spec"].setdefault("items", []).append("more"))
        patch.fns.append(lambda body: body.setdefault("status", {}).update(done=True))

    async with bench.running():
        await bench.cluster.create(widget(items=["one"]))
        await settle(5)
        body = await bench.cluster.get("widgets", "w")
    assert body["spec"]["items"] == ["one", "more"]
    assert body["status"] == {"done": True}


async def test_a_rejected_patch_of_a_delete_handler_does_not_keep_the_object(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(patch: trioperator.Patch, **_: Any) -> None:
        patch.meta.labels["not a label!"] = "x"

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(5)
        assert await bench.cluster.list("widgets") == []
    assert "rejected" in caplog.text


async def test_a_function_of_a_patch_that_fails_is_reported_and_dropped(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("create")
        patch.fns.append(lambda body: body["no such key"])

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(600)
    assert calls == ["create"]
    assert "no such key" in caplog.text


async def test_each_event_reaches_event_handlers_in_order(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []
    await bench.cluster.create(widget(size=0))

    @on.event("widgets", id="event", registry=bench.registry)
    async def event(type: Any, event: Any, spec: trioperator.Spec, **_: Any) -> None:
        assert event["type"] == type
        seen.append((type, spec["size"]))
        raise ValueError("this is ignored")

    async with bench.running():
        await settle(1)
        for size in (1, 2, 3):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
        await settle(1)
        await bench.cluster.delete("widgets", "w")
        await settle(1)
    assert seen == [(None, 0), ("MODIFIED", 1), ("MODIFIED", 2), ("MODIFIED", 3), ("DELETED", 3)]
    assert bench.writes() == []


async def test_functions_that_share_an_id_are_warned_of(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", id="same", registry=bench.registry)
    async def one(**_: Any) -> None: ...

    @on.create("widgets", id="same", registry=bench.registry)
    async def other(**_: Any) -> None: ...

    @on.update("widgets", id="same", registry=bench.registry)
    @on.field("widgets", id="same", field="spec.size", registry=bench.registry)
    async def alone(**_: Any) -> None: ...

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        [warning] = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert warning.startswith("2 functions are handlers with the id 'same'")
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        await settle(1)
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == [warning]


async def test_a_memo_that_cannot_be_copied_is_an_error_at_once(bench: Bench) -> None:
    with pytest.raises(trioperator.ConfigError, match=r"The memo is copied for each object.*lock.*__copy__"):
        await trioperator.operator(registry=bench.registry, memo=threading.Lock())


async def test_memos_are_shared_by_the_handlers_of_an_object(bench: Bench, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    @on.event("widgets", id="count", registry=bench.registry)
    async def count(memo: trioperator.Memo, **_: Any) -> None:
        memo.count = memo.get("count", 0) + 1

    @on.update("widgets", id="update", registry=bench.registry)
    async def update(memo: trioperator.Memo, name: str, **_: Any) -> None:
        seen.append((name, memo.base, memo.count > 0))

    async with bench.running(memo=trioperator.Memo(base="b")):
        await bench.cluster.create(widget())
        await settle(1)
        await bench.cluster.patch("widgets", "w", {"spec": {"size": 5}})
        await settle(1)
    assert seen == [("w", "b", True)]


async def test_one_worker_is_enough_and_does_not_wait_for_what_is_due_later(
    bench: Bench, autojump_clock: MockClock
) -> None:
    bench.settings.queueing.worker_limit = 1
    seen: list[str] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, retry: int, **_: Any) -> None:
        seen.append(name)
        if name == "a" and not retry:
            raise trioperator.TemporaryError("later", delay=100)

    async with bench.running():
        for name in "abc":
            await bench.cluster.create(widget(name))
        await settle(10)
        assert seen == ["a", "b", "c"]
        await settle(100)
    assert seen == ["a", "b", "c", "a"]


async def test_fresh_events_are_not_stuck_behind_an_initial_list(bench: Bench, autojump_clock: MockClock) -> None:
    bench.settings.queueing.worker_limit = 1
    seen: list[str] = []
    for number in range(50):
        await bench.cluster.create(widget(f"old{number}"))

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(name: str, **_: Any) -> None:
        seen.append(name)
        await trio.sleep(1)

    async with bench.running():
        await settle(3)
        await bench.cluster.create(widget("fresh"))
        await settle(5)
        assert "fresh" in seen
        await settle(100)
    assert len(seen) == 51


async def test_what_has_ended_is_on_record_when_the_next_handler_is_cancelled(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.create("widgets", id="quick", registry=bench.registry)
    async def quick(**_: Any) -> None:
        pass

    @on.create("widgets", id="endless", registry=bench.registry)
    async def endless(**_: Any) -> None:
        await trio.sleep_forever()

    with trio.CancelScope() as operating:
        async with bench.running():
            await bench.cluster.create(widget())
            await settle(0.01)  # less than the delay of writing
            operating.cancel()
    annotations = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert '"success":true' in annotations["trioperator.dev/quick"]


async def test_an_object_whose_finalizer_is_taken_off_again_and_again_rests_in_between(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Stripping(FaultyTransport):
        async def handle_async_request(self, request: Any) -> Any:
            response = await super().handle_async_request(request)
            if request.method == "PATCH":
                await bench.cluster.patch("widgets", "w", {"metadata": {"finalizers": None}})
            return response

    @on.delete("widgets", id="delete", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    async with bench.running(transport=Stripping(bench.cluster.transport(), FaultPlan())):
        await bench.cluster.create(widget())
        await settle(10)
        assert len(bench.writes()) < 15
        text = "finalizer is removed by others again and again: it is not added again for 1 s."
        assert caplog.text.count(text) == 1
        await settle(3600)
        assert 60 <= len(bench.writes()) < 75


async def test_updates_of_an_object_at_work_are_not_heaped_up(bench: Bench, autojump_clock: MockClock) -> None:
    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        state = next(iter(caches[0]))
        for size in range(50):
            await bench.cluster.patch("widgets", "w", {"spec": {"size": size}})
            await trio.testing.wait_all_tasks_blocked()
        heaps.append(len(state.events or ()))

    heaps: list[int] = []
    caches: list[ObjectCache] = []
    init = ObjectCache.__init__

    def noting(self: ObjectCache, *args: Any, **options: Any) -> None:
        init(self, *args, **options)
        caches.append(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ObjectCache, "__init__", noting)
        async with bench.running():
            await bench.cluster.create(widget())
            await settle(5)
    assert heaps == [1]


async def test_a_wrong_setting_in_a_startup_handler_keeps_the_operator_from_starting(
    bench: Bench, autojump_clock: MockClock
) -> None:
    @on.startup(registry=bench.registry)
    async def configure(settings: trioperator.OperatorSettings, **_: Any) -> None:
        settings.persistence.write_delay = -1

    with pytest.raises(trioperator.ActivityError, match="write_delay"):
        await trioperator.operator(registry=bench.registry, transport=bench.cluster.transport())


async def test_a_storage_of_ones_own_is_flushed_after_each_batch(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []

    class Outside(trioperator.ProgressStorage):
        """Keep records beside the objects."""

        def __init__(self) -> None:
            self.records: dict[tuple[str, str], trioperator.ProgressRecord] = {}

        def fetch(self, *, key: str, body: trioperator.Body) -> trioperator.ProgressRecord | None:
            return self.records.get((body.meta.uid or "", key))

        def store(
            self, *, key: str, record: trioperator.ProgressRecord, body: trioperator.Body, patch: dict[str, Any]
        ) -> None:
            self.records[body.meta.uid or "", key] = record
            calls.append(f"store {key}")

        def purge(self, *, key: str, body: trioperator.Body, patch: dict[str, Any]) -> None:
            self.records.pop((body.meta.uid or "", key), None)
            calls.append(f"purge {key}")

        def flush(self) -> None:
            calls.append("flush")

    @on.create("widgets", id="one", registry=bench.registry)
    async def one(retry: int) -> None:
        if not retry:
            raise trioperator.TemporaryError("later", delay=5)

    @on.create("widgets", id="two", registry=bench.registry)
    async def two() -> None: ...

    bench.settings.persistence.progress_storage = Outside()
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
    assert calls == ["store one", "store two", "flush", "purge one", "purge two", "flush"]


async def test_later_handlers_see_what_the_functions_of_earlier_patches_do(
    bench: Bench, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(patch: trioperator.Patch, **_: Any) -> None:
        patch.fns.append(lambda body: body["spec"].update(size=body["spec"]["size"] + 1))
        patch.fns.append(lambda body: body["spec"].pop("nothing"))  # an error, reported when it is stored

    @on.create("widgets", id="second", registry=bench.registry)
    async def second(spec: Any, patch: trioperator.Patch, **_: Any) -> None:
        seen.append(spec["size"])
        patch.fns.append(lambda body: body["spec"].update(size=body["spec"]["size"] * 10))

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(10)
    assert seen == [2]
    assert (await bench.cluster.get("widgets", "w"))["spec"] == {"size": 20}


async def test_what_admission_control_forbids_is_dropped_and_not_tried_for_ever(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    class Admission(httpx.AsyncBaseTransport):
        inner = bench.cluster.transport()

        async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
            if request.method == "PATCH" and b"evil" in await request.aread():
                status = {"kind": "Status", "code": 403, "message": "admission webhook denied the request: no evil"}
                return httpx.Response(403, json=status)
            return await self.inner.handle_async_request(request)

    calls: list[str] = []

    @on.create("widgets", id="bad", registry=bench.registry)
    async def bad(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("bad")
        patch.spec["evil"] = True

    @on.create("widgets", id="good", registry=bench.registry)
    async def good(patch: trioperator.Patch, **_: Any) -> None:
        calls.append("good")
        patch.spec["kind"] = True

    async with bench.running(transport=Admission()):
        await bench.cluster.create(widget(size=1))
        await settle(100)
        bench.cluster.requests.clear()
        await settle(1000)
    assert calls == ["bad", "good"]
    assert (await bench.cluster.get("widgets", "w"))["spec"] == {"size": 1, "kind": True}
    assert "the changes by Handler 'bad' are dropped: HTTP 403: admission webhook denied" in caplog.text
    assert bench.writes() == []


class Unreadable(collections.abc.Mapping[str, int]):
    """A mapping that fails when it is read."""

    def __getitem__(self, key: str) -> int:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        raise OSError

    def __len__(self) -> int:
        return 1


async def test_a_handler_whose_result_cannot_be_read_has_failed(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[int] = []

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(retry: int) -> Any:
        calls.append(retry)
        return Unreadable()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(100)
    assert calls == [0]
    assert "Handler 'create' failed permanently: The result cannot be read: OSError()." in caplog.text


async def test_an_error_whose_text_cannot_be_sent_is_counted(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[int] = []

    @on.create("widgets", id="create", registry=bench.registry, backoff=1)
    async def create(retry: int) -> None:
        calls.append(retry)
        raise ValueError("a lone surrogate: \udcff")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(2.5)
    assert calls == [0, 1, 2]
    annotations = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert json.loads(annotations["trioperator.dev/create"])["message"] == "a lone surrogate: \\udcff"


@pytest.mark.parametrize("optional", [None, True])
async def test_a_handler_that_is_refused_a_write_is_called_again_a_second_later(
    optional: bool | None, bench: Bench, autojump_clock: MockClock
) -> None:
    called: list[tuple[float, int]] = []
    on_event = on.create if optional is None else functools.partial(on.delete, optional=True)

    @on_event("widgets", registry=bench.registry)
    async def handle(retry: int, **_: Any) -> None:
        called.append((trio.current_time() - began, retry))
        if len(called) <= 3:
            raise PausedError("the operator is paused")

    async with bench.running():
        began = trio.current_time()
        await bench.cluster.create(widget())
        if optional:
            await settle(1)
            began = trio.current_time()
            await bench.cluster.delete("widgets", "w")
        await settle(10)
    assert called == [(0, 0), (1, 0), (2, 0), (3, 0)]
