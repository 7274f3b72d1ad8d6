"""The order in which an operator starts and stops."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
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
        f"{run_} (cancelled in 12 s), {create_} (cancelled in 14 s), {see_} (cancelled in 14 s).",
        f"{run_} (cancelled in 6 s), {create_} (cancelled in 9 s).",
        f"{run_} (cancelled in 2 s), {create_} (cancelled in 4 s).",
        "Activity 'clean' (cancelled in 9 s).",
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
    assert "Waiting for the state of Widget default/w to be stored (cancelled in 14 s)." in caplog.messages


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


async def test_a_single_namespace_is_given_as_a_list() -> None:
    with pytest.raises(TypeError, match="as a list"):
        await trioperator.operator(namespaces="default")


async def test_a_field_that_no_object_can_have_is_warned_of_once_and_keeps_nothing_from_running(
    bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    @on.create("widgets", field="metadata.annotations.example.com/x", registry=bench.registry)
    async def never(**_: Any) -> None:
        seen.append("never")

    @on.create("widgets", registry=bench.registry)
    async def create(name: str | None, **_: Any) -> None:
        seen.append(str(name))

    async with bench.running():
        obj = widget()
        obj["metadata"]["annotations"] = {"example.com/x": "1"}
        await bench.cluster.create(obj)
        await settle(5)
    assert seen == ["w"]
    [warning] = [each.getMessage() for each in caplog.records if "which no object can have" in each.getMessage()]
    assert "pass field=('metadata', 'annotations', 'example.com/x')" in warning
