"""Operators with asyncio handlers, each on an API server in memory and in virtual time.

They run in a process of their own, in which ``import kopf`` means trioperator: ``python -m tests.kopf.scenarios``
prints, as JSON, the traceback of each scenario that fails, null for others. The tests are in ``test_bridge.py``.
"""

# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import itertools
import json
import math
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Final

import anyio
import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from trioperator.apiserver import Cluster
from trioperator.errors import ActivityError
from trioperator.kopf import bridge, install
from trioperator.kopf.bridge import current_loop
from trioperator.kopf.host import open_loop
from trioperator.kopf.indexers import OperatorIndexers
from trioperator.testing import (
    Fault,
    FaultPlan,
    FaultyTransport,
    OperatorRunner,
    eventually,
    open_runner,
    pause_autojump_for_threads,
)

with install():  # not an import statement: type checkers would take it for the one that is installed
    kopf: Any = importlib.import_module("kopf")

Scenario = Callable[[OperatorRunner, Cluster], Awaitable[None]]

SCENARIOS: Final[dict[str, Scenario]] = {}
REAL_TIME: Final[set[str]] = set()


def scenario(fn: Scenario) -> Scenario:
    SCENARIOS[fn.__name__] = fn
    return fn


def in_real_time(fn: Scenario) -> Scenario:
    REAL_TIME.add(fn.__name__)
    return fn


def config_map(name: str = "c", **more: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **more}}


async def run(operator: OperatorRunner, cluster: Cluster, handler: str = "fn", **options: Any) -> Any:
    """Run the operator until a handler has finished for a new object, and return the result of the last call."""
    await operator.start(**options)
    await cluster.create(config_map())
    await eventually(lambda: any(call.final for call in operator.calls.select(handler=handler)), timeout=1000)
    return operator.calls.select(handler=handler)[-1].result


@scenario
async def primitives(operator: OperatorRunner, cluster: Cluster) -> None:
    @kopf.on.create("configmaps")
    async def fn(**_: Any) -> Any:
        loop = asyncio.get_running_loop()
        event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue[str]()
        loop.call_later(10, event.set)
        task = asyncio.create_task(queue.get())
        async with lock:
            await asyncio.wait_for(event.wait(), 20)
        queue.put_nowait("queue")
        async with asyncio.TaskGroup() as group:
            members = [group.create_task(asyncio.sleep(n, str(n))) for n in range(3)]
        found = [await task, *(member.result() for member in members)]
        try:
            async with asyncio.timeout(5):
                await asyncio.sleep(100)
        except TimeoutError:
            found.append("timeout")
        assert asyncio.current_task() is not None
        return [*found, *await asyncio.gather(asyncio.sleep(1, "gather"), asyncio.sleep(0, "ed"))]

    result = await run(operator, cluster)
    assert result == ["queue", "0", "1", "2", "timeout", "gather", "ed"], result
    (call,) = operator.calls.select(handler="fn")
    assert call.ended is not None
    assert round(call.ended - call.started) == 18, "time is Trio's"


@scenario
async def processes_and_threads(operator: OperatorRunner, cluster: Cluster) -> None:
    @kopf.on.create("configmaps")
    async def fn(**_: Any) -> Any:
        echo = await asyncio.create_subprocess_exec("echo", "hello", stdout=asyncio.subprocess.PIPE)
        return (await echo.communicate())[0].decode() + await asyncio.to_thread(str, "thread")

    clock = trio.lowlevel.current_clock()
    assert isinstance(clock, MockClock)
    clock.autojump_threshold, clock.rate = math.inf, 1.0  # these take real time
    assert await run(operator, cluster) == "hello\nthread"


@scenario
async def libraries_for_both(operator: OperatorRunner, cluster: Cluster) -> None:
    async def library() -> str:
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 1)
        return anyio.get_current_task().name or ""

    @kopf.on.create("configmaps")
    async def fn(**_: Any) -> Any:
        return await library()

    @trioperator.on.create("configmaps")
    async def native(**_: Any) -> Any:
        await trio.sleep(1)
        return await library()

    await operator.start()
    await cluster.create(config_map())
    await eventually(lambda: len([call for call in operator.calls if call.final]) == 2)


@scenario
async def what_handlers_before_have_written(operator: OperatorRunner, cluster: Cluster) -> None:
    """However late the watch is."""

    def write(**labels: str) -> Awaitable[Any]:
        return cluster.patch("configmaps", "c", {"metadata": {"labels": labels}})

    @kopf.on.create("configmaps")
    async def first(**_: Any) -> None:
        await current_loop.get().start(functools.partial(write, first="async"))

    @kopf.on.create("configmaps")
    def second(**_: Any) -> None:
        trio.from_thread.run(functools.partial(write, second="sync"))

    seen: list[dict[str, str]] = []

    @kopf.on.create("configmaps")
    async def fn(labels: Any, **_: Any) -> None:
        seen.append(dict(labels))

    plan = FaultPlan()
    plan.add(Fault.lag(2), watch=True)
    await run(operator, cluster, transport=FaultyTransport(cluster.transport(), plan))
    assert seen == [{"first": "async", "second": "sync"}], seen


@scenario
async def patches_of_parents(operator: OperatorRunner, cluster: Cluster) -> None:
    """Each change is stored once."""
    seen: list[Any] = []

    @kopf.on.create("configmaps")
    async def fn(patch: Any, **_: Any) -> None:
        patch.meta.labels["parent"] = "yes"
        patch.fns.append(lambda body: body.setdefault("data", {}).update(calls=body["data"].get("calls", "") + "x"))

        @kopf.subhandler()
        async def one(patch: Any, **_: Any) -> None:
            seen.append((bool(patch), json.loads(json.dumps(patch))))
            patch.meta.labels["child"] = "one"

        @kopf.subhandler()
        def two(patch: Any, **_: Any) -> None:
            seen.append((bool(patch), json.loads(json.dumps(patch))))

    await run(operator, cluster, settings=kopf.OperatorSettings())
    inherited = (True, {"metadata": {"labels": {"parent": "yes"}}})
    assert seen == [inherited, inherited], seen
    await operator.stop()
    found = await cluster.get("configmaps", "c")
    assert found["metadata"]["labels"] == {"parent": "yes", "child": "one"}, found
    assert found["data"] == {"calls": "x"}, found


@scenario
async def fields_that_objects_lack(operator: OperatorRunner, cluster: Cluster) -> None:
    """Objects without the field of a handler are not in scope: with it, they count as new."""
    seen: list[Any] = []
    created = {"labels": {"mine": "yes"}}

    @kopf.on.create("configmaps", labels=created["labels"])
    @kopf.on.update("configmaps", labels=created["labels"])
    async def of_mine(name: str, reason: str, **_: Any) -> None:
        seen.append((name, reason))

    @kopf.on.update("configmaps", field="data.key")
    @kopf.on.field("configmaps", field="data.key")
    async def of_field(name: str, old: Any, new: Any, **_: Any) -> None:
        seen.append((name, old, new))

    await operator.start(settings=kopf.OperatorSettings())
    await cluster.create(config_map("a"))
    await cluster.create(config_map("b"))
    await trio.sleep(10)
    assert not any("annotations" in each["metadata"] for each in await cluster.list("configmaps")), "not written to"
    await cluster.patch("configmaps", "a", {"metadata": created})
    for value in ("1", "2", None):
        await trio.sleep(10)
        await cluster.patch("configmaps", "b", {"data": {"key": value}})
    await trio.sleep(10)
    assert seen == [("a", "create"), ("b", None, "1"), ("b", "1", "2"), ("b", "2", None)], seen


@scenario
async def exceptions(operator: OperatorRunner, cluster: Cluster) -> None:
    operator.expect_failures()
    raised: list[type[BaseException]] = [ValueError, ExceptionGroup, asyncio.CancelledError, kopf.PermanentError]

    @kopf.on.create("configmaps", backoff=1)
    async def fn(retry: int, **_: Any) -> None:
        await asyncio.sleep(0.1)
        if retry == 1:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        raise raised[retry]("it failed")

    async def fail() -> None:
        raise LookupError("in a task")

    await run(operator, cluster)
    calls = operator.calls.select(handler="fn")
    assert [call.retry for call in calls] == [0, 1, 2, 3]
    assert isinstance(calls[0].error, ValueError)
    assert isinstance(calls[3].error, kopf.PermanentError)
    tracebacks = [line.record.exc_info for line in operator.logs.select(level="ERROR") if line.record.exc_info]
    assert tracebacks[0][2] is not None
    assert traceback.extract_tb(tracebacks[0][2])[0].name == "fn", "the traceback begins in the user's code"
    assert isinstance(calls[1].error, LookupError), calls[1].error


@scenario
async def timeouts(operator: OperatorRunner, cluster: Cluster) -> None:
    operator.expect_failures()
    seen: list[str] = []

    @kopf.on.create("configmaps", timeout=5)
    async def fn(**_: Any) -> None:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            await asyncio.sleep(1)  # cleaning up may take its time
            seen.append("cleaned up")
            raise

    await run(operator, cluster)
    assert seen == ["cancelled", "cleaned up"]
    (call,) = operator.calls.select(handler="fn")
    assert isinstance(call.error, kopf.HandlerTimeoutError)


@scenario
async def cancellation_that_is_swallowed(operator: OperatorRunner, cluster: Cluster) -> None:
    @kopf.on.create("configmaps", timeout=5)
    async def fn(**_: Any) -> str:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
        return "a result nevertheless"

    assert await run(operator, cluster) == "a result nevertheless"


@scenario
async def daemons(operator: OperatorRunner, cluster: Cluster) -> None:
    seen: list[object] = []

    @kopf.daemon("configmaps")
    async def polite(stopped: Any, **_: Any) -> None:
        assert isinstance(stopped, kopf.AsyncDaemonStopperChecker)
        assert not stopped
        assert stopped.reason is None
        while not await stopped.wait(10):
            seen.append("waited")
        await stopped.wait()  # returns at once
        seen.append(stopped.is_set() and stopped.reason is not None)

    @kopf.daemon("configmaps", cancellation_timeout=10)
    async def cancelled(**_: Any) -> None:
        try:
            await asyncio.sleep(1e6)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    @kopf.daemon("configmaps", cancellation_backoff=20, cancellation_timeout=10)
    async def waiting(stopped: Any, **_: Any) -> None:
        await asyncio.wait_for(stopped.wait(), 1e6)
        seen.append("woken")

    await operator.start()
    await cluster.create(config_map())
    await trio.sleep(25)
    await cluster.delete("configmaps", "c")
    await trio.sleep(30)
    assert await cluster.find("configmaps", "c") is None
    assert seen[:2] == ["waited", "waited"], seen
    assert set(seen[2:]) == {True, "cancelled", "woken"}, seen


@scenario
async def objects_that_begin_to_match_are_modified_for_event_handlers(
    operator: OperatorRunner, cluster: Cluster
) -> None:
    seen: list[str] = []

    @kopf.on.event("configmaps", labels={"l": "1"})
    async def event(type: str, **_: Any) -> None:
        seen.append(type)

    await operator.start(settings=kopf.OperatorSettings())
    await cluster.create(config_map())
    await trio.sleep(1)
    await cluster.patch("configmaps", "c", {"metadata": {"labels": {"l": "1"}}})
    await trio.sleep(1)
    assert seen == ["MODIFIED"], seen


@scenario
async def one_of_several_functions_with_the_same_id_is_called(operator: OperatorRunner, cluster: Cluster) -> None:
    seen: list[tuple[Any, ...]] = []
    for number in range(2):

        @kopf.daemon("configmaps", id="daemon", param=number)
        async def daemon(param: int, stopped: Any, **_: Any) -> None:
            seen.append(("daemon", param))
            await stopped.wait()

        @kopf.index("configmaps", id="values", param=number)
        async def index(name: str, param: int, **_: Any) -> dict[str, int]:
            return {name: param}

        @kopf.on.create("configmaps", id="create", param=number)
        async def create(param: int, values: Any, **_: Any) -> None:
            seen.append(("create", param, [*values["c"]]))

    await operator.start(settings=kopf.OperatorSettings(), lifecycle=kopf.lifecycles.asap)
    await cluster.create(config_map())
    await trio.sleep(5)
    assert sorted(seen) == [("create", 0, [1]), ("daemon", 0)], seen


@scenario
async def timers(operator: OperatorRunner, cluster: Cluster) -> None:
    times: list[float] = []

    @kopf.timer("configmaps", interval=10, initial_delay=1)
    async def fn(**_: Any) -> None:
        await asyncio.sleep(1)
        times.append(trio.current_time())

    await operator.start()
    await cluster.create(config_map())
    await eventually(lambda: len(times) == 3, timeout=100)
    assert [round(after - before) for before, after in itertools.pairwise(times)] == [11, 11]


@scenario
async def subhandlers(operator: OperatorRunner, cluster: Cluster) -> None:
    called: list[str] = []

    async def more(name: str, item: str, **_: Any) -> None:
        await asyncio.sleep(1)
        called.append(item)

    @kopf.on.create("configmaps")
    async def fn(retry: int, **_: Any) -> None:
        for item in "ab":

            @kopf.subhandler(id=item)
            async def sub(item: str = item, retry: int = 0, **_: Any) -> None:
                await asyncio.sleep(1)
                if item == "b" and not retry:
                    raise kopf.TemporaryError("not yet", delay=5)
                called.append(item)

        await kopf.execute()
        assert called[:2] == ["a", "b"]
        await asyncio.gather(
            kopf.execute(fns={"c": functools.partial(more, item="c")}),
            kopf.execute(fns={"d": functools.partial(more, item="d")}),
        )
        kopf.register(functools.partial(more, item="e"), id="e")

    await run(operator, cluster)
    assert called[:2] == ["a", "b"], called
    assert sorted(called[2:]) == ["c", "d"], called  # execute() has called the declared ones already
    assert sorted({call.handler for call in operator.calls}) == ["fn", "fn/a", "fn/b", "fn/c", "fn/d"]


@scenario
async def declared_subhandlers(operator: OperatorRunner, cluster: Cluster) -> None:
    @kopf.on.create("configmaps")
    def fn(**_: Any) -> None:
        @kopf.subhandler(id="in-asyncio")
        async def sub(**_: Any) -> None:
            await asyncio.sleep(1)

    await run(operator, cluster)
    assert operator.calls.select(handler="fn/in-asyncio")


@scenario
async def context(operator: OperatorRunner, cluster: Cluster) -> None:
    @kopf.on.create("configmaps")
    async def fn(body: Any, memo: Any, logger: Any, **_: Any) -> None:
        await asyncio.sleep(1)
        child = config_map("child")
        kopf.adopt(child)
        assert child["metadata"]["ownerReferences"][0]["name"] == body.metadata.name
        kopf.info(body, reason="Test", message="in asyncio")
        memo.lock = asyncio.Lock()
        logger.info("logged in asyncio")

    @kopf.on.update("configmaps")
    async def changed(memo: Any, patch: Any, **_: Any) -> None:
        async with memo.lock:
            patch.metadata.annotations["locked"] = "yes"

    @kopf.index("configmaps")
    async def names(name: str, **_: Any) -> str:
        await asyncio.sleep(0)
        return name

    @kopf.on.event("configmaps")
    async def seen(names: Any, **_: Any) -> Any:
        await asyncio.sleep(0)
        return list(names[None])

    await run(operator, cluster)
    (line,) = operator.logs.select(message="logged in asyncio")
    assert line.name == "c"
    await cluster.patch("configmaps", "c", {"data": {"a": "b"}})
    await cluster.wait_for("configmaps", "c", lambda found: "locked" in found["metadata"]["annotations"])
    await trio.sleep(10)
    assert "in asyncio" in [event["message"] for event in await operator.list_events("c")]
    assert operator.calls.select(handler="seen")[0].result == ["c"]


@scenario
async def clients_of_their_own(operator: OperatorRunner, cluster: Cluster) -> None:
    """Handlers of Kopf's get no client: they may have one, and pass it on together with their ``**kwargs``."""

    def call(*, client: str, name: str, **_: Any) -> str:
        return f"{client} for {name}"

    @kopf.on.create("configmaps", id="sync")
    def sync(**kwargs: Any) -> str:
        return call(client="mine", **kwargs)

    @kopf.on.create("configmaps", id="default")
    def default(client: str = "mine", **_: Any) -> str:
        return client

    @kopf.on.event("configmaps", id="event")
    async def event(**kwargs: Any) -> str:
        return call(client="mine", **kwargs)

    @trioperator.on.create("configmaps", id="fn")
    async def native(client: Any) -> str:
        return type(client).__name__

    await run(operator, cluster)
    results = {name: operator.calls.select(handler=name)[0].result for name in ("sync", "default", "event", "fn")}
    assert results == {"sync": "mine for c", "default": "mine", "event": "mine for c", "fn": "Client"}

    def indexed(**kwargs: Any) -> Any:
        return kwargs["client"]

    assert bridge.adapt(indexed)(client="an index of this name") == "an index of this name"


@scenario
async def activities(operator: OperatorRunner, cluster: Cluster) -> None:
    locks: list[asyncio.Lock] = []
    called: list[str] = []

    @kopf.on.startup()
    async def start(settings: Any, retry: int, **_: Any) -> None:
        await asyncio.sleep(1)
        if not retry:
            raise kopf.TemporaryError("not yet", delay=1)
        locks.append(asyncio.Lock())
        settings.execution.default_backoff = 1

    @kopf.on.login()
    async def login(**_: Any) -> Any:
        await asyncio.sleep(1)
        called.append("login")
        return kopf.ConnectionInfo(server="http://cluster")

    @kopf.on.cleanup()
    async def clean(**_: Any) -> None:
        await asyncio.sleep(1)
        called.append("cleanup")

    @kopf.on.create("configmaps")
    async def fn(**_: Any) -> None:
        async with locks[0]:
            await asyncio.sleep(1)

    await run(operator, cluster, connection=None, transport=cluster.transport())
    await operator.stop()
    assert called == ["login", "cleanup"], called


@scenario
async def failing_startup(operator: OperatorRunner, cluster: Cluster) -> None:
    @kopf.on.startup()
    async def start(**_: Any) -> None:
        await asyncio.sleep(1)
        raise kopf.PermanentError("no way")

    with pytest.raises(ActivityError):
        await operator.start()


@scenario
async def tasks_that_are_left_behind(operator: OperatorRunner, cluster: Cluster) -> None:
    seen: list[str] = []

    async def work(fails: bool) -> None:
        await asyncio.sleep(10)
        if fails:
            raise RuntimeError("nobody awaits this")
        seen.append("done")

    @kopf.on.create("configmaps")
    async def fn(**_: Any) -> None:
        for fails in (True, False):
            asyncio.create_task(work(fails))  # noqa: RUF006 -- that is what is tested

    await run(operator, cluster)
    await eventually(lambda: seen == ["done"], timeout=100)
    import gc

    gc.collect()
    await trio.sleep(1)
    assert operator.is_running
    assert any("never retrieved" in str(line) for line in operator.logs)


@scenario
async def handlers_of_both_kinds(operator: OperatorRunner, cluster: Cluster) -> None:
    class Operator:
        async def method(self, **_: Any) -> None:
            await asyncio.sleep(1)

    async def with_item(item: str, **_: Any) -> str:
        await asyncio.sleep(1)
        return item

    one = Operator()
    kopf.on.create("configmaps", id="method")(one.method)
    kopf.on.resume("configmaps", id="method")(one.method)
    kopf.on.create("configmaps", id="partial")(functools.partial(with_item, item="x"))

    @kopf.on.resume("configmaps")
    @kopf.on.create("configmaps")
    async def stacked(retry: int, name: str) -> None:  # without **_, as it is allowed here
        await asyncio.sleep(1)

    @kopf.on.create("configmaps")
    def sync(**_: Any) -> None:
        pass

    @trioperator.on.create("configmaps")
    async def native(**_: Any) -> None:
        await trio.sleep(1)

    assert asyncio.iscoroutinefunction(stacked)
    await operator.start()
    await cluster.create(config_map())
    await eventually(lambda: len([call for call in operator.calls if call.final]) >= 5, timeout=100)
    await operator.stop()
    await operator.start()  # now it is resumed, where each function is called once
    await trio.sleep(100)
    counts = {call.handler: 0 for call in operator.calls}
    for call in operator.calls:
        counts[call.handler] += 1
    resumed = {name: 2 for name in counts if name.endswith(("method", "stacked"))}
    assert len(resumed) == 2
    assert counts == {**dict.fromkeys(counts, 1), **resumed}, counts
    assert operator.calls.select(handler="partial")[0].result == "x"


def review_of(name: str) -> dict[str, Any]:
    request = {
        "uid": "1",
        "operation": "CREATE",
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "userInfo": {},
        "object": config_map(name),
        "oldObject": None,
    }
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


async def serve_with(operator: OperatorRunner, server: Any) -> None:
    """Run an operator whose webhooks are served by an asyncio server."""

    @kopf.on.startup()
    async def configure(settings: Any, **_: Any) -> None:
        settings.admission.server = server

    @kopf.on.validate("configmaps", id="check")
    async def check(name: str, headers: Any, warnings: list[str], **_: Any) -> None:
        await asyncio.sleep(0.1)
        warnings.append(f"checked in asyncio for {headers.get('User-Agent')}")
        if name == "bad":
            raise kopf.AdmissionError("not this name", code=418)

    operator.expect_failures("check")
    await operator.start(settings=kopf.OperatorSettings())


@scenario
async def admission(operator: OperatorRunner, cluster: Cluster) -> None:
    responses: list[Any] = []
    steps: list[str] = []

    class Server:
        async def __aenter__(self) -> Any:
            await asyncio.sleep(0.1)
            steps.append("enter")
            return self

        async def __aexit__(self, *_: Any) -> None:
            await asyncio.sleep(0.1)
            steps.append("exit")

        async def __call__(self, fn: Any) -> Any:
            await asyncio.sleep(0.1)
            try:
                yield {"url": "https://localhost/"}
                task = asyncio.create_task(fn(review_of("bad"), webhook="check", headers={"User-Agent": "me"}))
                responses.append((await task)["response"])
                yield {"url": "https://localhost/moved"}
                await asyncio.Event().wait()
            finally:
                steps.append("end")

    await serve_with(operator, Server())
    await eventually(lambda: responses)
    [response] = responses
    assert (response["allowed"], response["status"]["code"]) == (False, 418), response
    assert response["warnings"] == ["checked in asyncio for me"]
    await operator.stop()
    assert steps == ["enter", "end", "exit"]


@scenario
async def admission_of_a_field(operator: OperatorRunner, cluster: Cluster) -> None:
    """Handlers with a field get the whole objects."""
    seen: list[Any] = []

    @kopf.on.startup()
    async def configure(settings: Any, **_: Any) -> None:
        settings.admission.server = serve

    @kopf.on.validate("configmaps", id="field", field="data.a")
    async def look(old: Any, new: Any, diff: Any, **_: Any) -> None:
        seen.append((old and old["data"], new["data"], [item.field for item in diff]))

    async def serve(fn: Any) -> Any:
        yield {"url": "https://localhost/"}
        for old in (None, {**config_map(), "data": {"a": "1"}}):
            review = review_of("c")
            review["request"] |= {"oldObject": old, "object": {**config_map(), "data": {"a": "2"}}}
            assert (await fn(review, webhook="field/data.a"))["response"]["allowed"]
        await asyncio.Event().wait()

    await operator.start(settings=kopf.OperatorSettings())
    await eventually(lambda: len(seen) == 2)
    assert seen == [(None, {"a": "2"}, [()]), ({"a": "1"}, {"a": "2"}, [("data", "a")])], seen


@scenario
@in_real_time  # as real sockets are waited for
async def a_tunnel_before_a_webhook_server(operator: OperatorRunner, cluster: Cluster) -> None:
    addresses: list[Any] = []

    class Tunnel(kopf.WebhookServer):  # type: ignore[misc]
        async def __call__(self, fn: Any) -> Any:
            async for address in super().__call__(fn):
                await asyncio.sleep(0.1)
                addresses.append(address)
                yield {**address, "url": "https://tunnel.example.com"}

    await serve_with(operator, Tunnel(insecure=True, port=0))
    url = addresses[0]["url"]
    async with httpx.AsyncClient(timeout=60) as client:
        response = await client.post(f"{url}/check", json=review_of("bad"), headers={"User-Agent": "me"})
    assert response.json()["response"]["status"]["code"] == 418
    assert response.json()["response"]["warnings"] == ["checked in asyncio for me"]
    await operator.stop()
    try:
        async with httpx.AsyncClient() as client:
            await client.get(url)
    except httpx.ConnectError:
        return
    raise AssertionError("The server is still listening.")


@scenario
async def a_handler_that_exits(operator: OperatorRunner, cluster: Cluster) -> None:
    cleaned: list[str] = []

    @kopf.on.cleanup()
    async def clean(**_: Any) -> None:
        await asyncio.sleep(1)  # the loop must still work
        cleaned.append("yes")

    @kopf.on.create("configmaps")
    async def fn(**_: Any) -> None:
        await asyncio.sleep(1)
        sys.exit(7)

    async with trio.open_nursery() as nursery:
        await nursery.start(_expect_exit, cluster)
        await cluster.create(config_map())
    assert cleaned == ["yes"]


@scenario
async def settings_of_the_program(operator: OperatorRunner, cluster: Cluster) -> None:
    """Handlers get the very object, whatever else is passed: the program reads it, and may change it later."""
    settings, stop, given = kopf.OperatorSettings(), trio.Event(), list[Any]()

    @kopf.on.startup()
    async def configure(settings: Any, **_: Any) -> None:
        given.append(settings)
        stop.set()

    connection = kopf.ConnectionInfo(server="http://cluster")
    options = {"transport": cluster.transport(), "handle_signals": False, "stop_flag": stop, "connection": connection}
    await kopf.operator(settings=settings, standalone=True, priority=7, peering_name="mine", **options)
    assert given[0] is settings
    peering = settings.peering
    assert (peering.standalone, peering.priority, peering.name, peering.mandatory) == (True, 7, "mine", True)
    with pytest.raises(TypeError, match="settings="):
        await kopf.operator(settings={}, standalone=True, **options)


@scenario
async def indices_outside_of_handlers(operator: OperatorRunner, cluster: Cluster) -> None:
    indexers = OperatorIndexers()
    memo, stop, found = kopf.Memo(indices=indexers.indices), trio.Event(), dict[str, Any]()
    assert "names" not in memo.indices

    @kopf.index("configmaps", id="names")
    async def index(name: Any, **_: Any) -> Any:
        return {name: 1}

    @kopf.on.event("configmaps")
    async def look(memo: Any, **_: Any) -> None:
        found.update({id: list(index) for id, index in memo.indices.items()})
        stop.set()

    await cluster.create(config_map())
    options = {"transport": cluster.transport(), "handle_signals": False, "stop_flag": stop, "memo": memo}
    connection = kopf.ConnectionInfo(server="http://cluster")
    await kopf.operator(indexers=indexers, standalone=True, connection=connection, clusterwide=True, **options)
    assert found == {"names": ["c"]}, found
    gc.collect()
    assert not memo.indices, "the registry keeps no index of an operator that has ended"


async def _expect_exit(cluster: Cluster, *, task_status: trio.TaskStatus[None]) -> None:
    options = {"transport": cluster.transport(), "handle_signals": False, "task_status": task_status}
    with pytest.raises(SystemExit) as raised:
        await kopf.operator(connection=kopf.ConnectionInfo(server="http://cluster"), **options)
    assert raised.value.code == 7


async def _run(fn: Scenario) -> None:
    async with open_loop():
        cluster = Cluster(seed=0)
        with trio.fail_after(10_000):
            async with open_runner(cluster) as operator:
                await fn(operator, cluster)


def main() -> None:
    pause_autojump_for_threads()
    results: dict[str, str | None] = {}
    for name in sys.argv[1:] or SCENARIOS:
        try:
            clock = None if name in REAL_TIME else MockClock(autojump_threshold=0)
            trio.run(_run, SCENARIOS[name], clock=clock)
        except BaseException as error:  # noqa: BLE001 -- whatever it is, the test shows it
            results[name] = "".join(traceback.format_exception(error))
        else:
            results[name] = None
    print(json.dumps(results))  # noqa: T201 -- for the test


if __name__ == "__main__":
    main()
