"""Functions of users that are no handlers, and raise anything: the operator goes on, and so do the other handlers."""

from __future__ import annotations

import asyncio
import itertools
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.conftest import PLAIN_CRD, Bench, settle, widget

on = trioperator.on

ERRORS: Mapping[str, Callable[[], BaseException]] = {
    "ValueError": lambda: ValueError("something"),
    "CancelledError": lambda: asyncio.CancelledError("by asyncio"),
    "ExceptionGroup": lambda: ExceptionGroup("several", [ValueError("one"), KeyError("two")]),
}


@pytest.fixture(params=ERRORS)
def error(request: pytest.FixtureRequest) -> BaseException:
    """Return an error that functions of users may raise."""
    return ERRORS[request.param]()


class SilentError(Exception):
    """An error that cannot be represented."""

    def __repr__(self) -> str:
        raise ValueError("no repr")


async def patch(bench: Bench, name: str = "w", **spec: Any) -> None:
    await bench.cluster.patch("widgets", name, {"spec": spec})


@pytest.fixture
def calls(bench: Bench) -> list[str]:
    """Names of the widgets for which a handler without any functions of the user's was called."""
    calls: list[str] = []

    @on.create("widgets", id="other", registry=bench.registry)
    @on.update("widgets", id="other", registry=bench.registry)
    async def other(name: str, **_: Any) -> None:
        calls.append(name)

    return calls


async def test_a_handler_whose_result_cannot_be_stored_has_failed_and_the_others_go_on(
    bench: Bench, calls: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    tries: list[str] = []

    @on.create("widgets", id="bad", registry=bench.registry)
    async def bad(name: str, **_: Any) -> Any:
        tries.append(name)
        return {"x": object()}

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(1000)
    assert (tries, calls) == (["w"], ["w"])
    assert "Handler 'bad' failed permanently: The result is not JSON-serializable: x is of the type" in caplog.text
    assert "Creation is processed: 1 succeeded; 1 failed." in caplog.text


# -------------------------------------------------------------------------------------------- selectors


async def test_a_selector_that_fails_for_a_new_kind_ends_nothing(
    error: BaseException,
    bench: Bench,
    calls: list[str],
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    new = {
        **PLAIN_CRD,
        "metadata": {"name": "things.example.com"},
        "spec": {**PLAIN_CRD["spec"], "names": {"kind": "Thing", "plural": "things", "singular": "thing"}},
    }
    created: list[str] = []

    def select(resource: Any) -> bool:
        if resource.plural == "things":
            raise error
        return bool(resource.plural == "gadgets")

    @on.create(select, id="selected", registry=bench.registry)
    async def selected(name: str, **_: Any) -> None:
        created.append(name)

    @on.create("things", id="thing", registry=bench.registry)
    async def thing(name: str, **_: Any) -> None:
        created.append(name)

    async with bench.running():
        await bench.cluster.create(widget("before"))
        await settle(5)
        await bench.cluster.apply(new)
        await settle(5)
        await bench.cluster.create(widget("after"))
        await bench.cluster.create(widget("thing", kind="Thing"))
        await settle(5)
        assert calls == ["before", "after"]
        assert created == ["thing"]
    assert "has failed" in caplog.text
    assert "Its handlers are not called." in caplog.text


async def test_a_selector_that_fails_at_start_concerns_only_its_handlers(
    error: BaseException, bench: Bench, calls: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def select(resource: Any) -> bool:
        raise error

    @on.create(select, id="never", registry=bench.registry)
    async def never(**_: Any) -> None:
        raise AssertionError

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert calls == ["w"]
    assert "Its handlers are not called." in caplog.text


async def test_a_selector_that_raises_what_cannot_be_represented_ends_nothing(
    bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    def select(resource: Any) -> bool:
        raise SilentError

    @on.create(select, id="never", registry=bench.registry)
    async def never(**_: Any) -> None:
        raise AssertionError

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert calls == ["w"]


# --------------------------------------------------------------------------------------------- storages


class Failure:
    """An error that the methods of a storage raise while it is switched on, and how often they did."""

    def __init__(self, error: BaseException) -> None:
        self.error = error
        self.on = False
        self.times: list[float] = []

    def check(self) -> None:
        if self.on:
            self.times.append(trio.current_time())
            raise self.error


class ProgressStorage(trioperator.AnnotationsProgressStorage):
    """A storage of the user's for the progress."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(prefix="example.com")
        self._failure = failure

    def store(self, **kwargs: Any) -> None:
        self._failure.check()
        super().store(**kwargs)


class DiffBaseStorage(trioperator.AnnotationsDiffBaseStorage):
    """A storage of the user's for the last-handled configuration."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(prefix="example.com")
        self._failure = failure

    def fetch(self, **kwargs: Any) -> Any:
        self._failure.check()
        return super().fetch(**kwargs)


@pytest.mark.parametrize(
    "error_name",
    [
        "ValueError",
        "ExceptionGroup",
        "CancelledError",
    ],
)
async def test_a_diffbase_storage_in_a_combined_one_that_fails_ends_no_operator(
    error_name: str, bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    failure = Failure(ERRORS[error_name]())
    bench.settings.persistence.diffbase_storage = trioperator.MultiDiffBaseStorage([DiffBaseStorage(failure)])
    failure.on = True
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        failure.on = False
        await settle(60)
        assert calls == ["w"]


async def test_a_diffbase_storage_that_fails_is_retried_with_a_backoff(
    error: BaseException, bench: Bench, calls: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failure = Failure(error)
    bench.settings.persistence.diffbase_storage = DiffBaseStorage(failure)
    bench.settings.queueing.error_delays = (1, 2, 4, 8)
    failure.on = True
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        assert [round(time - failure.times[0]) for time in failure.times] == [0, 1, 3, 7]
        assert calls == []
        failure.on = False
        await settle(10)
        assert calls == ["w"]
    assert caplog.text.count("The object could not be handled: The storage ") == 4
    assert "It is tried again in 8 seconds." in caplog.text


async def check_that_the_handler_at_work_goes_on(bench: Bench, failure: Failure) -> None:
    """Run two handlers, while the progress of the first cannot be stored during the second."""
    calls: list[str] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")

    @on.create("widgets", id="second", registry=bench.registry)
    async def second(**_: Any) -> None:
        calls.append("second")
        await trio.sleep(60)
        calls.append("end")

    failure.on = True
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(30)
        assert len(failure.times) > 1  # the progress of the first handler, again and again
        assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(failure.times))
        assert calls == ["first", "second"]
        failure.on = False
        await settle(60)
    assert calls == ["first", "second", "end"]


async def test_a_progress_storage_that_fails_does_not_cancel_the_handler_at_work(
    error: BaseException, bench: Bench, autojump_clock: MockClock
) -> None:
    failure = Failure(error)
    bench.settings.persistence.progress_storage = ProgressStorage(failure)
    await check_that_the_handler_at_work_goes_on(bench, failure)


async def test_a_progress_storage_in_a_combined_one_that_fails_does_not_cancel_the_handler_at_work(
    error: BaseException, bench: Bench, autojump_clock: MockClock
) -> None:
    failure = Failure(error)
    combined = trioperator.MultiProgressStorage([ProgressStorage(failure), trioperator.StatusProgressStorage()])
    bench.settings.persistence.progress_storage = combined
    await check_that_the_handler_at_work_goes_on(bench, failure)


async def test_a_progress_storage_that_cannot_be_represented_does_not_cancel_the_handler_at_work(
    bench: Bench, autojump_clock: MockClock
) -> None:
    class SilentStorage(ProgressStorage):
        def __repr__(self) -> str:
            raise ValueError("no repr")

    failure = Failure(ValueError("something"))
    bench.settings.persistence.progress_storage = SilentStorage(failure)
    await check_that_the_handler_at_work_goes_on(bench, failure)


async def test_a_progress_storage_that_fails_between_attempts_repeats_no_handler_that_has_ended(
    error: BaseException, bench: Bench, autojump_clock: MockClock
) -> None:
    failure = Failure(error)
    bench.settings.persistence.progress_storage = ProgressStorage(failure)
    calls: list[str] = []

    @on.create("widgets", id="first", registry=bench.registry)
    async def first(**_: Any) -> None:
        calls.append("first")

    @on.create("widgets", id="second", registry=bench.registry)
    async def second(retry: int, **_: Any) -> None:
        calls.append(f"second {retry}")
        if not retry:
            raise trioperator.TemporaryError("not yet", delay=5)

    failure.on = True
    async with bench.running():
        await bench.cluster.create(widget())
        await settle(2)
        failure.on = False
        await settle(60)
        assert calls == ["first", "second 0", "second 1"]
    assert failure.times


# ----------------------------------------------------------------------------- filters and their company


@pytest.mark.parametrize("option", ["when", "labels"])
async def test_a_filter_that_fails_for_one_object_concerns_no_other(
    option: str,
    error: BaseException,
    bench: Bench,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = True
    calls: list[str] = []

    def filter(*_: Any, name: str, **__: Any) -> bool:
        if failing and name == "bad":
            raise error
        return True

    options: dict[str, Any] = {"when": filter} if option == "when" else {"labels": {"a": filter}}

    @on.create("widgets", id="create", registry=bench.registry, **options)
    async def create(name: str, **_: Any) -> None:
        calls.append(name)

    async with bench.running():
        await bench.cluster.create(widget("bad"))
        await bench.cluster.create(widget("good"))
        await settle(5)
        assert calls == ["good"]
        assert "The object could not be handled: A filter of Handler 'create' has failed" in caplog.text
        [record, *_] = [record for record in caplog.records if "A filter of Handler" in record.getMessage()]
        assert record.exc_info is not None
        assert traceback.extract_tb(record.exc_info[2])[0].name == "filter"
        failing = False
        await settle(60)
        assert calls == ["good", "bad"]


async def test_a_filter_of_raw_events_that_fails_concerns_no_other_object(
    error: BaseException, bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    events: list[str] = []

    def when(name: str, **_: Any) -> bool:
        if name == "bad":
            raise error
        return True

    @on.event("widgets", id="event", when=when, registry=bench.registry)
    async def event(name: str, **_: Any) -> None:
        events.append(name)

    async with bench.running():
        await bench.cluster.create(widget("bad"))
        await bench.cluster.create(widget("good"))
        await settle(60)
    assert set(events) == {"good"}
    assert "good" in calls


async def test_a_filter_of_a_daemon_that_fails_leaves_the_daemon_running(
    error: BaseException, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    log: list[str] = []

    def when(spec: Any, **_: Any) -> bool:
        if spec["size"] == 2:
            raise error
        return bool(spec["size"] == 1)

    @on.daemon("widgets", id="daemon", when=when, cancellation_timeout=1, registry=bench.registry)
    async def daemon(**_: Any) -> None:
        log.append("begin")
        try:
            await trio.sleep_forever()
        finally:
            log.append("end")

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(5)
        await patch(bench, size=2)
        await settle(5)
        assert log == ["begin"]
        assert "A filter of Daemon 'daemon' has failed" in caplog.text
        await patch(bench, size=3)
        await settle(5)
        assert log == ["begin", "end"]


async def test_an_initial_delay_that_fails_counts_as_none(
    error: BaseException, bench: Bench, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    begun: list[str] = []

    def delay(**_: Any) -> float:
        raise error

    @on.daemon("widgets", id="daemon", initial_delay=delay, registry=bench.registry)
    async def daemon(**_: Any) -> None:
        begun.append("daemon")

    @on.timer("widgets", id="timer", interval=1000, initial_delay=delay, registry=bench.registry)
    async def timer(**_: Any) -> None:
        begun.append("timer")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert sorted(begun) == ["daemon", "timer"]
    assert caplog.text.count("It starts at once.") == 2


@pytest.mark.parametrize(
    "delay",
    [
        "soon",
        None,
        -5,
        10**400,
    ],
    ids=["text", "None", "negative", "too big"],
)
async def test_an_initial_delay_that_is_not_a_duration_counts_as_none(
    delay: Any, bench: Bench, autojump_clock: MockClock
) -> None:
    begun: list[float] = []

    @on.daemon("widgets", id="daemon", initial_delay=lambda **_: delay, registry=bench.registry)
    async def daemon(**_: Any) -> None:
        begun.append(trio.current_time())

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(5)
    assert len(begun) == 1


async def test_a_lifecycle_that_fails_postpones_the_handlers(
    error: BaseException, bench: Bench, calls: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    failing = True

    def lifecycle(handlers: Any, **_: Any) -> Any:
        if failing:
            raise error
        return handlers

    async with bench.running(lifecycle=lifecycle):
        await bench.cluster.create(widget())
        await settle(50)
        assert calls == []
        assert "lifecycle has failed" in caplog.text
        failing = False
        await settle(60)
        assert calls == ["w"]


class UnhashableLifecycle:
    """A lifecycle that is an object, such as an instance of a dataclass."""

    __hash__ = None  # type: ignore[assignment]

    def __call__(self, handlers: Any, **_: Any) -> Any:
        return handlers


async def test_a_lifecycle_need_not_be_hashable(bench: Bench, calls: list[str], autojump_clock: MockClock) -> None:
    async with bench.running(lifecycle=UnhashableLifecycle()):
        await bench.cluster.create(widget())
        await settle(5)
    assert calls == ["w"]


@pytest.mark.parametrize(
    "error_name",
    [
        "ValueError",
        "ExceptionGroup",
        "CancelledError",
    ],
)
async def test_a_function_of_a_patch_that_fails_is_dropped_and_the_others_are_applied(
    error_name: str, bench: Bench, calls: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(body: dict[str, Any]) -> None:
        body["spec"]["lost"] = True
        raise ERRORS[error_name]()

    def change(body: dict[str, Any]) -> None:
        body["spec"]["kept"] = True

    @on.create("widgets", id="create", registry=bench.registry)
    async def create(patch: Any, **_: Any) -> None:
        patch.fns.append(fail)
        patch.fns.append(change)

    async with bench.running():
        await bench.cluster.create(widget(size=1))
        await settle(10)
        assert (await bench.cluster.get("widgets", "w"))["spec"] == {"size": 1, "kept": True}
    assert "A function in the patch of Handler 'create' has failed" in caplog.text
    assert "it is dropped." in caplog.text
    assert "w" in calls


async def test_a_function_of_a_timers_patch_that_fails_is_dropped_and_the_timer_goes_on(
    error: BaseException, bench: Bench, calls: list[str], autojump_clock: MockClock
) -> None:
    times: list[float] = []

    def fail(body: dict[str, Any]) -> None:
        raise error

    @on.timer("widgets", id="timer", interval=5, registry=bench.registry)
    async def timer(patch: Any, **_: Any) -> None:
        times.append(trio.current_time())
        patch.fns.append(fail)

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(20)
    assert len(times) >= 4
    assert "w" in calls


async def test_a_storage_that_cannot_clear_essences_interrupts_no_handler(
    error: BaseException, bench: Bench, autojump_clock: MockClock
) -> None:
    class Storage(trioperator.AnnotationsProgressStorage):
        failing = False

        def clear(self, **kwargs: Any) -> Any:
            if self.failing:
                raise error
            return super().clear(**kwargs)

    storage = bench.settings.persistence.progress_storage = Storage(prefix="example.com")
    calls: list[str] = []

    @on.create("widgets", id="create", on_change="cancel", registry=bench.registry)
    async def create(**_: Any) -> None:
        calls.append("begin")
        await trio.sleep(30)
        calls.append("end")

    async with bench.running():
        await bench.cluster.create(widget())
        await settle(10)
        storage.failing = True
        await patch(bench, size=2)
        await settle(30)
        storage.failing = False
        await settle(60)
    assert calls == ["begin", "end"]


@pytest.mark.parametrize("error_type", [SystemExit, KeyboardInterrupt])
async def test_a_filter_that_ends_the_process_ends_the_operator(
    error_type: type[BaseException], bench: Bench, autojump_clock: MockClock
) -> None:
    def when(**_: Any) -> bool:
        raise error_type

    @on.create("widgets", id="create", when=when, registry=bench.registry)
    async def create(**_: Any) -> None:
        raise AssertionError

    with pytest.RaisesGroup(error_type, flatten_subgroups=True):
        async with bench.running():
            await bench.cluster.create(widget())
            await trio.sleep_forever()


async def test_a_cancellation_that_a_handler_gets_from_another_task_ends_no_worker(
    bench: Bench, calls: list[str], autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    shared: list[trio.Cancelled] = []

    @on.create("widgets", id="share", registry=bench.registry)
    async def share(retry: int, **_: Any) -> None:
        with trio.move_on_after(1):  # it could as well be the first of two handlers that await the same result
            try:
                await trio.sleep_forever()
            except trio.Cancelled as cancelled:
                shared.append(cancelled)
                raise
        if not retry:
            raise shared[0]

    async with bench.running():
        await bench.cluster.create(widget("one"))
        await settle(5)
        await bench.cluster.create(widget("two"))
        await settle(200)
    assert calls == ["one", "two"]
    assert len(shared) == 4
    assert "belongs to another task" in caplog.text
