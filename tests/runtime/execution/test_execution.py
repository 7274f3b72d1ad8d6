"""Executions: which handlers of a cause are called, in which order, and what becomes of their patches and results."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import trioperator
from tests.runtime.harness import LOGGER, Harness, observe, open_harness
from trioperator._handling.arguments.cause import EventCause
from trioperator._handling.calls.invoke import Invoker
from trioperator._handling.calls.thread_limiter import ThreadLimiter
from trioperator._handling.handlers.handler import ChangeHandler, EventHandler, Reason
from trioperator._handling.handlers.lifecycles import Lifecycle, all_at_once, asap
from trioperator._model.resource import Selector
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.causes import make_cause
from trioperator._runtime.execution.execution import Execution, Executor
from trioperator._runtime.progress.saver import Saver
from trioperator.apiserver import Cluster

WIDGETS = Selector.parse("widgets")


class Executing:
    """An executor, with one object in the cluster."""

    def __init__(self, parts: Harness, state: ObjectState) -> None:
        self.parts = parts
        self.state = state
        invoker = Invoker(limiter=ThreadLimiter(2), backoff=60)
        self.executor = Executor(
            invoker,
            parts.progress,
            parts.pending,
            parts.essences,
            parts.causes,
            parts.patcher,
            parts.settings,
            trio.Event(),
            all_at_once,
        )
        self.calls: list[str] = []

    def handler(self, id: str, fn: Callable[..., Any] | None = None, **options: Any) -> ChangeHandler:
        """Return a handler that notes its calls."""

        async def call(**kwargs: Any) -> Any:
            self.calls.append(id)
            return None if fn is None else await fn(**kwargs)

        return ChangeHandler(fn=call, id=id, selector=WIDGETS, reason=Reason.CREATE, **options)

    async def run(self, handlers: Sequence[ChangeHandler], *, lifecycle: Lifecycle = all_at_once) -> None:
        """Call the handlers of the newest state that are due."""
        progress = self.parts.progress
        change = self.parts.detect(self.state)
        progress.begin(self.state, change.cause, handlers)
        async with trio.open_nursery() as nursery:
            with Saver(progress, self.parts.pending, state=self.state, nursery=nursery, logger=LOGGER) as saver:
                execution = Execution(self.executor, self.state, nursery=nursery, saver=saver, seen=change.encoded)
                await execution.run(handlers, change.cause, lifecycle)

    def states(self) -> dict[str, Any]:
        progress = self.parts.progress.get(self.state)
        assert progress is not None
        return dict(progress.states)

    @property
    def pending(self) -> Any:
        return self.parts.pending.get(self.state)

    @property
    def save_at(self) -> float | None:
        progress = self.parts.progress.get(self.state)
        assert progress is not None
        return progress.save_at


@pytest.fixture
async def bench(cluster: Cluster) -> AsyncIterator[Executing]:
    async with open_harness(cluster) as parts:
        yield Executing(parts, await parts.make(size=1))


# ------------------------------------------------------------------------------------------- which and when


async def test_handlers_are_called_in_order_and_their_success_is_due_to_be_stored(
    bench: Executing, autojump_clock: MockClock
) -> None:
    bench.parts.settings.persistence.write_delay = 3
    began = trio.current_time()
    await bench.run([bench.handler("a"), bench.handler("b")])
    assert bench.calls == ["a", "b"]
    assert [state.success for state in bench.states().values()] == [True, True]
    assert bench.save_at == began + 3
    assert bench.parts.patches == 0


async def test_handlers_that_have_ended_or_are_not_due_are_not_called(
    bench: Executing, autojump_clock: MockClock
) -> None:
    async def postpone(**_: Any) -> None:
        raise trioperator.TemporaryError("not yet", delay=10)

    async def fail(**_: Any) -> None:
        raise trioperator.PermanentError("never")

    handlers = [bench.handler("a"), bench.handler("b", postpone), bench.handler("c", fail)]
    await bench.run(handlers)
    bench.calls.clear()
    await bench.run(handlers)
    assert bench.calls == []
    await trio.sleep(10)
    await bench.run(handlers)
    assert bench.calls == ["b"]
    assert bench.states()["b"].retries == 2


async def test_the_lifecycle_is_called_again_for_the_rest(bench: Executing, autojump_clock: MockClock) -> None:
    offered: list[list[str]] = []

    def last_first(handlers: Any, **_: Any) -> Any:
        offered.append([handler.id for handler in handlers])
        return handlers[-1:]

    await bench.run([bench.handler(id) for id in "abc"], lifecycle=last_first)
    assert bench.calls == ["c", "b", "a"]
    assert offered == [["a", "b", "c"], ["a", "b"], ["a"]]


async def test_one_of_two_functions_with_the_same_id_is_called_if_the_lifecycle_chooses_one_by_one(
    bench: Executing, autojump_clock: MockClock
) -> None:
    async def postpone(**_: Any) -> None:
        if len(bench.calls) == 1:
            raise trioperator.TemporaryError("not yet", delay=10)

    handlers = [bench.handler("a", postpone), bench.handler("b"), bench.handler("a")]
    await bench.run(handlers, lifecycle=asap)
    assert bench.calls == ["a", "b"]
    await trio.sleep(10)
    await bench.run(handlers, lifecycle=asap)
    assert bench.calls == ["a", "b", "a"]
    assert bench.states()["a"].success


async def test_handlers_of_which_the_lifecycle_chooses_none_are_postponed(
    bench: Executing, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    bench.parts.settings.execution.default_backoff = 7
    handlers = [bench.handler("a"), bench.handler("b")]
    await bench.run(handlers, lifecycle=lambda handlers, **_: [])
    assert bench.calls == []
    assert "The lifecycle has chosen none of Handler 'a', Handler 'b': they are due again in 7 seconds." in caplog.text
    await trio.sleep(6)
    await bench.run(handlers)
    assert bench.calls == []
    await trio.sleep(1)
    await bench.run(handlers)
    assert bench.calls == ["a", "b"]


async def test_no_handler_is_called_once_the_operator_stops(bench: Executing, autojump_clock: MockClock) -> None:
    async def stop(**_: Any) -> None:
        bench.executor.stopping.set()

    await bench.run([bench.handler("a", stop), bench.handler("b")])
    assert bench.calls == ["a"]


async def test_after_a_newer_state_only_the_handler_at_work_finishes(
    bench: Executing, autojump_clock: MockClock
) -> None:
    async def change(**_: Any) -> None:
        newer = await bench.parts.cluster.patch("widgets", "w", {"spec": {"size": 2}})
        observe(bench.state, newer)

    handlers = [bench.handler("a", change), bench.handler("b")]
    await bench.run(handlers)
    assert bench.calls == ["a"]
    assert bench.state.has_newer()
    await bench.run(handlers)  # each time at least one is called
    assert bench.calls == ["a", "b"]


async def test_a_handler_at_work_cannot_be_executed_beside_itself(bench: Executing, autojump_clock: MockClock) -> None:
    errors: list[str] = []

    async def child(**_: Any) -> None:
        bench.calls.append("child")
        await trio.sleep(5)

    async def execute() -> None:
        try:
            await trioperator.execute(handlers=[ChangeHandler(fn=child, id="child", selector=WIDGETS)])
        except RuntimeError as error:
            errors.append(str(error))

    async def parent(**_: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(execute)
            nursery.start_soon(execute)

    await bench.run([bench.handler("a", parent)])
    assert bench.calls == ["a", "child"]
    assert errors == ["Handler 'a/child' is executed while it is at work already."]


# --------------------------------------------------------------------------------------- patches and results


async def test_patches_and_results_become_pending_in_the_order_of_calls(
    bench: Executing, autojump_clock: MockClock
) -> None:
    async def first(patch: Any, **_: Any) -> dict[str, int]:
        patch.spec["a"] = patch.spec["b"] = 1
        return {"x": 1}

    async def second(patch: Any, **_: Any) -> int:
        patch.spec["b"] = 2
        return 5

    await bench.run([bench.handler("first", first), bench.handler("second", second)])
    assert bench.pending == {"spec": {"a": 1, "b": 2}, "status": {"first": {"x": 1}, "second": 5}}
    assert [contribution.by for contribution in bench.pending.contributions] == ["Handler 'first'", "Handler 'second'"]


async def test_later_handlers_see_what_earlier_ones_want_stored(bench: Executing, autojump_clock: MockClock) -> None:
    seen: list[Any] = []

    async def first(patch: Any, **_: Any) -> None:
        patch.spec["size"] = 2
        patch.fns.append(lambda body: body["spec"].update(other=3))

    async def second(spec: Any, **_: Any) -> None:
        seen.append(dict(spec))

    await bench.run([bench.handler("a", first), bench.handler("b", second)])
    assert seen == [{"size": 2, "other": 3}]


async def test_the_patch_of_a_failed_attempt_is_stored_too(bench: Executing, autojump_clock: MockClock) -> None:
    async def fail(patch: Any, **_: Any) -> None:
        patch.status["progress"] = 50
        raise trioperator.TemporaryError("not yet", delay=5)

    await bench.run([bench.handler("a", fail)])
    assert bench.pending == {"status": {"progress": 50}}


async def test_a_handler_whose_result_is_not_json_serializable_has_failed(
    bench: Executing, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def create(patch: Any, **_: Any) -> Any:
        patch.spec["size"] = 2
        return {"x": object()}

    await bench.run([bench.handler("a", create)])
    assert bench.pending == {"spec": {"size": 2}}
    assert bench.states()["a"].failure
    message = "The result is not JSON-serializable: x is of the type object."
    assert bench.states()["a"].message == message
    assert f"Handler 'a' failed permanently: {message}" in caplog.text
    assert "succeeded" not in caplog.text


async def test_a_handler_whose_patch_is_not_json_serializable_has_failed_and_its_functions_are_kept(
    bench: Executing, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    def change(body: Any) -> None:
        body["spec"]["size"] = 2

    async def create(patch: Any, **_: Any) -> Any:
        patch.status["x"] = [1, {"y": {1, 2}, "z": object()}]
        patch.fns.append(change)

    await bench.run([bench.handler("a", create)])
    assert bench.pending is not None
    assert (dict(bench.pending), bench.pending.fns) == ({}, [change])
    assert bench.states()["a"].failure
    assert "The patch is not JSON-serializable: status.x[1].z is of the type object." in caplog.text
    assert "dropped" not in caplog.text


async def test_what_a_parent_wants_is_contributed_once_before_its_sub_handlers(
    bench: Executing, autojump_clock: MockClock
) -> None:
    seen: list[Any] = []
    applied: list[str] = []

    async def child(spec: Any, **_: Any) -> None:
        seen.append(dict(spec))

    async def parent(patch: Any, **_: Any) -> None:
        patch.spec["before"] = 1
        patch.fns.append(lambda body: applied.append("before"))
        await trioperator.execute(fns={"child": child})
        patch.spec["after"] = 2

    await bench.run([bench.handler("a", parent)])
    assert seen == [{"size": 1, "before": 1}]
    assert [dict(contribution.patch) for contribution in bench.pending.contributions] == [
        {"spec": {"before": 1}},
        {"spec": {"after": 2}},
    ]
    assert len(bench.pending.fns) == 1
    assert bench.states()["a"].subrefs == ("a/child",)
    assert bench.states()["a/child"].success


# --------------------------------------------------------------------------------------------- interruptions


async def test_an_interrupted_handler_leaves_no_patch_and_ends_the_execution(
    bench: Executing, autojump_clock: MockClock
) -> None:
    async def create(patch: Any, **_: Any) -> None:
        patch.spec["lost"] = True
        observe(bench.state, await bench.parts.cluster.patch("widgets", "w", {"spec": {"size": 2}}))
        await trio.sleep(math.inf)

    await bench.run([bench.handler("a", create, interruptible=True), bench.handler("b")])
    assert bench.calls == ["a"]
    assert bench.pending is None
    assert (bench.states()["a"].retries, bench.states()["a"].finished) == (0, False)


async def test_the_fourth_attempt_in_a_row_is_not_interrupted(bench: Executing, autojump_clock: MockClock) -> None:
    ended: list[int] = []

    async def create(**_: Any) -> None:
        size = len(bench.calls)
        observe(bench.state, await bench.parts.cluster.patch("widgets", "w", {"spec": {"size": size + 1}}))
        await trio.sleep(10)
        ended.append(size)

    handler = bench.handler("a", create, interruptible=True)
    for _ in range(4):
        await bench.run([handler])
        for event in bench.state.take_events():
            bench.state.advance(event)
    assert ended == [4]


# ------------------------------------------------------------------------------------------ gone, raw events


async def test_without_a_saver_all_handlers_are_called_whatever_happens(
    bench: Executing, autojump_clock: MockClock
) -> None:
    handlers = [bench.handler("a"), bench.handler("b")]
    cause = bench.parts.detect(bench.state).cause
    bench.parts.progress.begin(bench.state, cause, handlers)
    bench.executor.stopping.set()
    async with trio.open_nursery() as nursery:
        await Execution(bench.executor, bench.state, nursery=nursery).run(handlers, cause, all_at_once)
    assert bench.calls == ["a", "b"]
    assert bench.save_at is None


async def test_an_event_handler_is_called_once_and_its_patch_becomes_pending(
    bench: Executing, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    async def handle(type: str, patch: Any, retry: int, **_: Any) -> str:
        calls.append((type, retry))
        patch.spec["seen"] = True
        raise trioperator.TemporaryError("not yet")

    handler = EventHandler(fn=handle, id="event", selector=WIDGETS)
    assert bench.state.body is not None
    cause = make_cause(EventCause, bench.state, bench.state.body, type="MODIFIED")
    await bench.executor.call_event_handler(bench.state, cause, handler)
    assert calls == [("MODIFIED", 0)]
    assert bench.pending == {"spec": {"seen": True}}
