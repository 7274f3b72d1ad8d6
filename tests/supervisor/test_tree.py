"""The order in which an operator starts and stops."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.coordination.test_peering import peering, peering_crd
from tests.runtime.conftest import CRD, Bench, settle, widget
from trioperator.apiserver import Cluster
from trioperator.testing import Fault, FaultPlan, FaultyTransport

on = trioperator.on


@pytest.fixture
async def bench(cluster: Cluster) -> Bench:
    await cluster.apply(CRD)
    return Bench(cluster, trioperator.OperatorRegistry(), trioperator.OperatorSettings())


async def test_startup_comes_before_all_requests_and_cleanup_after_them(
    bench: Bench, autojump_clock: MockClock
) -> None:
    requests: list[int] = []

    @on.startup(registry=bench.registry)
    async def start(settings: trioperator.OperatorSettings, **_: Any) -> None:
        await trio.sleep(5)
        settings.persistence.finalizer = "mine.example.com/it"
        requests.append(len(bench.cluster.requests))

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        requests.append(len(bench.cluster.requests))

    @on.delete("widgets", registry=bench.registry)
    async def delete(**_: Any) -> None:
        pass

    bench.cluster.requests.clear()
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1)
        assert (await bench.cluster.get("widgets", "w"))["metadata"]["finalizers"] == ["mine.example.com/it"]
    assert requests[0] == 0
    assert requests[1] == len(bench.cluster.requests)


async def test_a_startup_handler_that_fails_permanently_keeps_the_operator_from_starting(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cleaned: list[bool] = []

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        raise trioperator.PermanentError("no license")

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        cleaned.append(True)

    bench.cluster.requests.clear()
    with pytest.raises(trioperator.ActivityError, match="no license"):
        await trioperator.operator(
            registry=bench.registry,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=bench.cluster.transport(),
        )
    assert len(bench.cluster.requests) == 0
    assert cleaned == [True]
    assert "The operator has stopped." not in caplog.messages  # the error says more


async def test_a_startup_handler_that_always_fails_ends_the_operator_with_its_error(
    bench: Bench, autojump_clock: MockClock
) -> None:
    calls: list[float] = []

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        calls.append(trio.current_time())
        raise OSError("no database")

    with pytest.RaisesGroup(pytest.RaisesExc(trioperator.ActivityError, match="no database")):
        async with bench.running():
            raise AssertionError
    assert len(calls) == 10


@pytest.mark.parametrize("error", [AttributeError, ImportError, NameError, TypeError, trioperator.ConfigError])
async def test_an_error_of_the_programmer_in_a_startup_handler_ends_the_operator_at_once(
    error: type[Exception], bench: Bench, autojump_clock: MockClock
) -> None:
    attempts: list[int] = []

    @on.startup(registry=bench.registry)
    async def configure(retry: int, **_: Any) -> None:
        attempts.append(retry)
        raise error("settings.posting.levle")

    with pytest.raises(trioperator.ActivityError, match=r"levle"):
        await trioperator.operator(
            registry=bench.registry,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=bench.cluster.transport(),
        )
    assert attempts == [0]


async def test_a_startup_handler_that_says_how_errors_are_treated_is_retried(
    bench: Bench, autojump_clock: MockClock
) -> None:
    attempts: list[int] = []

    @on.startup(registry=bench.registry, errors=trioperator.ErrorsMode.TEMPORARY)
    async def configure(retry: int, **_: Any) -> None:
        attempts.append(retry)
        if retry < 2:
            raise TypeError("not yet")

    async with bench.running():
        assert attempts == [0, 1, 2]


async def test_startup_handlers_are_retried(bench: Bench, autojump_clock: MockClock) -> None:
    times: list[float] = []

    @on.startup(registry=bench.registry)
    async def start(retry: int, **_: Any) -> None:
        times.append(trio.current_time())
        if retry < 2:
            raise trioperator.TemporaryError("not yet", delay=30)

    async with bench.running():
        assert [round(t - times[0]) for t in times] == [0, 30, 60]


async def test_a_running_handler_finishes_and_is_stored_before_the_operator_exits(
    bench: Bench, autojump_clock: MockClock
) -> None:
    ended: list[float] = []

    @on.create("widgets", id="slow", registry=bench.registry)
    async def slow(**_: Any) -> str:
        await trio.sleep(10)
        ended.append(trio.current_time())
        return "done"

    @on.create("widgets", id="next", registry=bench.registry)
    async def next_one(**_: Any) -> None:
        ended.append(-1)

    async with bench.running() as stop:
        await bench.cluster.create(widget())
        await settle(1)
        stop()
        began = trio.current_time()
    assert 8 < trio.current_time() - began < 10
    body = await bench.cluster.get("widgets", "w")
    assert body["status"] == {"slow": "done"}
    assert '"success":true' in body["metadata"]["annotations"]["trioperator.dev/slow"]
    assert ended != []
    assert -1 not in ended


async def test_stopping_takes_no_longer_than_the_grace(bench: Bench, autojump_clock: MockClock) -> None:
    cancelled: list[str] = []

    @on.create("widgets", id="quick", registry=bench.registry)
    async def quick(**_: Any) -> None:
        pass

    @on.create("widgets", id="endless", registry=bench.registry)
    async def endless(**_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append("endless")

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        try:
            await trio.sleep_forever()
        finally:
            cancelled.append("clean")

    async with bench.running() as stop:
        await bench.cluster.create(widget())
        await settle(0.01)
        stop()
        began = trio.current_time()
    assert trio.current_time() - began <= 25.1
    assert cancelled == ["endless", "clean"]
    annotations = (await bench.cluster.get("widgets", "w"))["metadata"]["annotations"]
    assert '"success":true' in annotations["trioperator.dev/quick"]


async def test_a_stopping_operator_says_for_whom_it_waits_and_how_long(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        with contextlib.suppress(trio.Cancelled):  # swallowed once
            await trio.sleep_forever()
        await trio.sleep(3)

    @on.event("widgets", id="see", registry=bench.registry)
    async def see(name: str, **_: Any) -> None:
        if name == "other":
            await trio.sleep(4)

    @trioperator.daemon("widgets", id="run", cancellation_backoff=100, cancellation_timeout=5, registry=bench.registry)
    async def run(**_: Any) -> None:
        await trio.sleep_forever()

    @on.cleanup(id="clean", registry=bench.registry)
    async def clean(**_: Any) -> None:
        await trio.sleep(2)

    async with bench.running() as stop:
        await bench.cluster.create(widget())
        await settle(10)
        await bench.cluster.create(widget("other"))
        await settle(0.5)
        caplog.clear()
        stop()
    create_, see_ = "Handler 'create' of Widget default/w", "Handler 'see' of Widget default/other"
    run_ = "Daemon 'run' of Widget default/w"
    reports = [text.removeprefix("Waiting for ") for text in caplog.messages if text.startswith("Waiting for")]
    assert reports == [
        f"{run_} (12 s left), {create_} (14 s left), {see_} (14 s left).",
        f"{run_} (6 s left), {create_} (9 s left).",
        f"{run_} (2 s left), {create_} (4 s left).",
        "Activity 'clean' (9 s left).",
    ]
    assert caplog.messages[-1] == "The operator has stopped."


async def test_what_is_being_stored_is_waited_for_by_name(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    plan = FaultPlan()
    plan.add(Fault.stall(), verb="patch")

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(**_: Any) -> None:
        pass

    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)) as stop:
        await bench.cluster.create(widget())
        await settle(5)
        stop()
    assert "Waiting for the state of Widget default/w to be stored (14 s left)." in caplog.messages


async def test_a_quick_stop_reports_nothing(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @trioperator.daemon("widgets", registry=bench.registry)
    async def run(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert not [text for text in caplog.messages if text.startswith("Waiting for")]
    assert caplog.messages[-1] == "The operator has stopped."


async def test_a_cleanup_handler_whose_retry_lies_beyond_the_grace_is_given_up_at_once(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    @on.cleanup(id="first", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")
        raise OSError("the network is down")  # retried in 60 seconds, by default

    @on.cleanup(id="second", registry=bench.registry)
    async def second(retry: int, **_: Any) -> None:
        calls.append("second")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=5)

    began = trio.current_time()
    with pytest.RaisesGroup(pytest.RaisesExc(trioperator.ActivityError, match="first: OSError: the network is down$")):
        async with bench.running():
            pass
    assert calls == ["first", "second", "second"]
    assert trio.current_time() - began < 10
    assert "Activity 'first' is given up: it would be retried in 60 seconds, and the operator ends in" in caplog.text


async def test_signals_are_left_to_the_program_if_it_wants_so(bench: Bench, autojump_clock: MockClock) -> None:
    before = signal.getsignal(signal.SIGINT)
    async with bench.running(handle_signals=False):
        assert signal.getsignal(signal.SIGINT) is before
    async with bench.running(handle_signals=True):
        assert signal.getsignal(signal.SIGINT) is not before
    assert signal.getsignal(signal.SIGINT) is before


async def test_a_cancelled_operator_still_calls_cleanup_handlers(bench: Bench, autojump_clock: MockClock) -> None:
    cleaned: list[str] = []

    @on.create("widgets", id="endless", registry=bench.registry)
    async def endless(**_: Any) -> None:
        await trio.sleep_forever()

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        await trio.sleep(3)
        cleaned.append("yes")

    async with trio.open_nursery() as nursery:

        async def operate(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await trioperator.operator(
                registry=bench.registry,
                connection=trioperator.ConnectionInfo(server="http://embedded"),
                transport=bench.cluster.transport(),
                task_status=task_status,
            )

        await nursery.start(operate)
        await bench.cluster.create(widget())
        await settle(1)
        nursery.cancel_scope.cancel()
    assert cleaned == ["yes"]


async def test_threading_events_work_as_flags(bench: Bench) -> None:
    stop, ready = threading.Event(), threading.Event()

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        pass

    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:

            async def operate() -> None:
                await trioperator.operator(
                    registry=bench.registry,
                    connection=trioperator.ConnectionInfo(server="http://embedded"),
                    transport=bench.cluster.transport(),
                    stop_flag=stop,
                    ready_flag=ready,
                )

            nursery.start_soon(operate)
            await trio.to_thread.run_sync(ready.wait)
            stop.set()


def test_an_operator_runs_in_another_thread_than_the_main_one() -> None:
    outcomes: list[Any] = []
    registry = trioperator.OperatorRegistry()
    stop, ready = threading.Event(), threading.Event()

    def run() -> None:
        cluster = Cluster()
        outcomes.append(
            trioperator.run(
                registry=registry,
                connection=trioperator.ConnectionInfo(server="http://embedded"),
                transport=cluster.transport(),
                stop_flag=stop,
                ready_flag=ready,
            )
        )

    thread = threading.Thread(target=run)
    thread.start()
    assert ready.wait(60)
    stop.set()
    thread.join(60)
    assert outcomes == [None]


async def test_two_operators_with_separate_registries_are_independent(bench: Bench, autojump_clock: MockClock) -> None:
    calls: list[str] = []
    other = trioperator.OperatorRegistry()
    settings = trioperator.OperatorSettings()
    settings.persistence.progress_storage = trioperator.AnnotationsProgressStorage(prefix="other.example.com")
    settings.persistence.diffbase_storage = trioperator.AnnotationsDiffBaseStorage(prefix="other.example.com")

    @on.create("widgets", registry=bench.registry)
    async def one(**_: Any) -> None:
        calls.append("one")

    @on.create("widgets", registry=other)
    async def two(**_: Any) -> None:
        calls.append("two")

    async with bench.running(), bench.running(registry=other, settings=settings):
        await bench.cluster.create(widget())
        await settle(5)
    assert sorted(calls) == ["one", "two"]


async def test_unknown_arguments_are_reported_before_anything_starts(bench: Bench) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(spec: Any, no_such_thing: Any) -> None:
        pass

    with pytest.raises(trioperator.ConfigError, match=r"create.*no_such_thing"):
        await trioperator.operator(registry=bench.registry, transport=bench.cluster.transport())


async def test_a_stop_request_during_startup_is_honoured(bench: Bench, autojump_clock: MockClock) -> None:
    stop = trio.Event()

    @on.startup(registry=bench.registry)
    async def start(**_: Any) -> None:
        await trio.sleep_forever()

    async with trio.open_nursery() as nursery:

        async def operate() -> None:
            await trioperator.operator(registry=bench.registry, stop_flag=stop, transport=bench.cluster.transport())

        nursery.start_soon(operate)
        await trio.sleep(5)
        stop.set()
    assert trio.current_time() < 10


async def test_the_second_signal_ends_cleanup_handlers_too(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    began: list[float] = []

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        began.append(trio.current_time())
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(2)  # the first one, though the operator was stopping
        began.append(trio.current_time())
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(20)

    stop = trio.Event()
    stop.set()
    with pytest.raises(KeyboardInterrupt):
        await trioperator.operator(
            registry=bench.registry,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=bench.cluster.transport(),
            stop_flag=stop,
        )
    assert trio.current_time() - began[1] < 1
    assert "The cleanup handlers were cancelled: by the second signal." in caplog.messages


async def test_the_second_signal_does_not_blame_cleanup_handlers_that_do_not_exist(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(1)
        signal.raise_signal(signal.SIGINT)
        await trio.sleep(20)

    await bench.cluster.create(widget())
    with pytest.raises(KeyboardInterrupt):
        await trioperator.operator(
            registry=bench.registry,
            settings=bench.settings,
            connection=trioperator.ConnectionInfo(server="http://embedded"),
            transport=bench.cluster.transport(),
        )
    assert not [message for message in caplog.messages if "leanup" in message]


async def test_a_kind_whose_list_hangs_does_not_block_others(bench: Bench, autojump_clock: MockClock) -> None:
    plan = FaultPlan()
    plan.add(Fault.stall(), path="/widgets")
    created: list[float] = []

    @on.create("widgets", id="never", registry=bench.registry)
    async def never(**_: Any) -> None:
        raise AssertionError

    @on.create("v1", "configmaps", id="soon", registry=bench.registry)
    async def soon(**_: Any) -> None:
        created.append(trio.current_time())

    began = trio.current_time()
    async with bench.running(transport=FaultyTransport(bench.cluster.transport(), plan)):
        assert trio.current_time() - began < 10
        await bench.cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}, "default")
        await settle(5)
        assert len(created) == 1


async def test_a_single_namespace_is_given_as_a_list() -> None:
    with pytest.raises(TypeError, match="as a list"):
        await trioperator.operator(namespaces="default")


async def test_an_operator_that_fails_stops_handlers_and_daemons_in_order(
    bench: Bench, autojump_clock: MockClock
) -> None:
    class Broken(threading.Event):
        def set(self) -> None:
            raise RuntimeError("a flag of the user's that fails")

    ended: list[str] = []

    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None:
        await trio.sleep(10)
        ended.append("handler")

    @trioperator.daemon("widgets", registry=bench.registry)
    async def watch(stopped: trioperator.DaemonStopped, **_: Any) -> None:
        await stopped.wait()
        ended.append("daemon")

    @on.cleanup(registry=bench.registry)
    async def clean(**_: Any) -> None:
        ended.append("cleanup")

    manifest = widget()
    manifest["metadata"]["finalizers"] = [bench.settings.persistence.finalizer]
    await bench.cluster.create(manifest)
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        async with bench.running(ready_flag=Broken()):
            await trio.sleep_forever()
    assert ended == ["daemon", "handler", "cleanup"]


class CountedWatch(httpx.AsyncByteStream):
    """Stream of a watch that is counted until it is closed."""

    def __init__(self, inner: httpx.AsyncByteStream, transport: CountingTransport) -> None:
        self._inner = inner
        self._transport = transport

    def __aiter__(self) -> AsyncIterator[bytes]:
        return aiter(self._inner)

    async def aclose(self) -> None:
        self._transport.watches -= 1
        await self._inner.aclose()


class CountingTransport(httpx.AsyncBaseTransport):
    """Transport that counts the watches of widgets that are open."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self._inner = inner
        self.watches = 0

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path.endswith("/widgets") and "watch" in request.url.params:
            assert isinstance(response.stream, httpx.AsyncByteStream)
            self.watches += 1
            response.stream = CountedWatch(response.stream, self)
        return response


async def test_a_pause_is_logged_when_no_more_objects_come_in(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    @on.create("widgets", registry=bench.registry)
    async def create(**_: Any) -> None: ...

    await bench.cluster.apply(peering_crd())
    await bench.cluster.create(peering())
    transport = CountingTransport(bench.cluster.transport())
    open_watches: list[int] = []

    class Watching(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "Pausing operations" in record.getMessage():
                open_watches.append(transport.watches)

    caplog.set_level(logging.INFO)
    logger, handler = logging.getLogger("trioperator.supervisor"), Watching()
    logger.addHandler(handler)
    try:
        async with bench.running(transport=transport):
            assert transport.watches == 1
            async with bench.running(settings=preferred()):
                await settle(1)
    finally:
        logger.removeHandler(handler)
    assert open_watches == [0]


def preferred() -> trioperator.OperatorSettings:
    """Return the settings of an operator that others pause for."""
    settings = trioperator.OperatorSettings()
    settings.peering.priority = 10
    return settings
