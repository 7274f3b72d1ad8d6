"""Tests for :mod:`trioperator._handling.declaring.subhandlers`.

What a parent declares, when it is called, and what is awaited.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.handling.factory import change_cause, change_handler
from trioperator._handling.declaring.registry import OperatorRegistry
from trioperator._handling.declaring.subhandlers import Subhandlers, current_subhandlers, execute, running_subhandlers
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._handling.handlers.lifecycles import Lifecycle, one_by_one
from trioperator._model.body import Body
from trioperator.errors import ConfigError, UnfinishedSubhandlersError


class Attempt:
    """An attempt of a handler, and the calls of sub-handlers that it asks for."""

    def __init__(self, parent: ChangeHandler | None = None) -> None:
        self.calls: list[list[str]] = []
        self.lifecycles: list[Lifecycle | None] = []
        self.waits: dict[str, float] = {}  # by the first id of a group
        cause = change_cause(old=None, new=Body({"spec": {"size": 1}}), reason=Reason.CREATE)
        self.subhandlers = Subhandlers(parent or change_handler(id="parent"), cause, self._run)

    async def _run(self, handlers: Sequence[ChangeHandler], /, *, lifecycle: Lifecycle | None) -> float | None:
        self.calls.append([handler.id for handler in handlers])
        self.lifecycles.append(lifecycle)
        await trio.lowlevel.checkpoint()
        return self.waits.get(handlers[0].id)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the block as the handler."""
        self.subhandlers.begin()
        token = current_subhandlers.set(self.subhandlers)
        try:
            yield
        finally:
            current_subhandlers.reset(token)


@pytest.fixture
def attempt() -> Attempt:
    return Attempt()


def fn_a(**_: Any) -> None: ...
def fn_b(**_: Any) -> None: ...


# ------------------------------------------------------------------------------------------------ declaring


def test_a_sub_handler_is_named_after_its_parent(attempt: Attempt) -> None:
    assert attempt.subhandlers.make(fn_a).id == "parent/fn_a"
    assert attempt.subhandlers.make(fn_a, id="x").id == "parent/x"
    assert attempt.subhandlers.make(fn_a, id=5, retries=3).retries == 3


def test_a_sub_handler_is_of_its_parents_kind() -> None:
    parent = change_handler(id="parent", needs_change=True)
    made = Attempt(parent).subhandlers.make(fn_a)
    assert (made.selector, made.needs_change) == (parent.selector, True)


def test_arguments_that_do_not_exist_are_errors_at_once(attempt: Attempt) -> None:
    def strange(nonsense: int) -> None: ...

    with pytest.raises(ConfigError, match="nonsense"):
        attempt.subhandlers.make(strange)
    with pytest.raises(ConfigError, match="nonsense"):
        attempt.subhandlers.make(fn_a, when=lambda nonsense: True)

    def usual(spec: Any, retry: int, old: Any, param: Any) -> None: ...

    attempt.subhandlers.make(usual)


def test_a_handler_that_was_declared_elsewhere_becomes_a_sub_handler(attempt: Attempt) -> None:
    adopted = attempt.subhandlers.adopt(change_handler(fn_a, id="x"))
    assert adopted.id == "parent/x"
    assert attempt.subhandlers.adopt(adopted) is adopted


def test_two_functions_cannot_have_one_id(attempt: Attempt) -> None:
    attempt.subhandlers.declare(attempt.subhandlers.make(fn_a, id="x"))
    attempt.subhandlers.declare(attempt.subhandlers.make(fn_a, id="x"))  # the same again, as in a loop
    with pytest.raises(ValueError, match="Handler 'parent' has two sub-handlers with the id 'parent/x'"):
        attempt.subhandlers.declare(attempt.subhandlers.make(fn_b, id="x"))
    with pytest.raises(ValueError, match="two sub-handlers with the id"):
        attempt.subhandlers.declare(attempt.subhandlers.make(fn_a, id="x", param=1))


# ------------------------------------------------------------------------------------------------ executing


async def test_declared_sub_handlers_are_called_at_the_end_of_the_attempt(attempt: Attempt) -> None:
    with attempt.running():
        for name in "ab":
            attempt.subhandlers.declare(attempt.subhandlers.make(fn_a, id=name))
        await attempt.subhandlers.finish()
    assert attempt.calls == [["parent/a", "parent/b"]]


async def test_declared_sub_handlers_are_called_once_for_an_attempt(attempt: Attempt) -> None:
    with attempt.running():
        attempt.subhandlers.declare(attempt.subhandlers.make(fn_a, id="a"))
        await execute()
        await execute()
        await attempt.subhandlers.finish()
    assert attempt.calls == [["parent/a"]]


async def test_an_attempt_without_sub_handlers_calls_none(attempt: Attempt) -> None:
    with attempt.running():
        await execute()
        await attempt.subhandlers.finish()
    assert attempt.calls == []


async def test_functions_handlers_and_registries_can_be_executed(attempt: Attempt) -> None:
    registry = OperatorRegistry()
    registry.append(change_handler(fn_a, id="z"))
    with attempt.running():
        await execute(fns=[fn_a, fn_b])
        await execute(fns={"x": fn_a, "y": fn_b}, lifecycle=one_by_one)
        await execute(handlers=[change_handler(fn_a, id="w")])
        await execute(registry=registry)
    assert attempt.calls == [
        ["parent/fn_a", "parent/fn_b"],
        ["parent/x", "parent/y"],
        ["parent/w"],
        ["parent/z"],
    ]
    assert attempt.lifecycles == [None, one_by_one, None, None]


async def test_sub_handlers_that_do_not_match_are_not_called(attempt: Attempt) -> None:
    with attempt.running():
        await execute(handlers=[change_handler(fn_a, id="x", when=lambda spec, **_: spec["size"] > 1)])
        await attempt.subhandlers.finish()
    assert attempt.calls == []


async def test_unfinished_sub_handlers_are_an_error_with_the_time_of_the_next(attempt: Attempt) -> None:
    attempt.waits = {"parent/x": 7.0}
    with attempt.running(), pytest.raises(UnfinishedSubhandlersError) as caught:
        await execute(fns={"x": fn_a})
    assert caught.value.delay == 7.0


async def test_a_parent_that_swallows_the_error_is_unfinished_all_the_same(attempt: Attempt) -> None:
    attempt.waits = {"parent/x": 7.0, "parent/y": 5.0}
    with attempt.running():
        for name in "xyz":
            with contextlib.suppress(UnfinishedSubhandlersError):
                await execute(fns={name: fn_a})
        with pytest.raises(UnfinishedSubhandlersError) as caught:
            await attempt.subhandlers.finish()
    assert caught.value.delay == 5.0


async def test_sub_handlers_that_finish_later_in_the_attempt_are_finished(attempt: Attempt) -> None:
    attempt.waits = {"parent/x": 7.0}
    with attempt.running():
        with contextlib.suppress(UnfinishedSubhandlersError):
            await execute(fns={"x": fn_a})
        attempt.waits.clear()
        await execute(fns={"x": fn_a})
        await attempt.subhandlers.finish()
    assert len(attempt.calls) == 2


async def test_sub_handlers_whose_call_the_parent_has_cancelled_are_due_at_once(
    attempt: Attempt, autojump_clock: MockClock
) -> None:
    with attempt.running():
        with trio.CancelScope() as scope:
            scope.cancel(reason="the parent has changed its mind")
            await execute(fns={"x": fn_a})
        with pytest.raises(UnfinishedSubhandlersError) as caught:
            await attempt.subhandlers.finish()
    assert caught.value.delay == 0.0


# ---------------------------------------------------------------------------------------------------- where


async def test_children_of_the_handlers_task_may_execute(attempt: Attempt) -> None:
    with attempt.running():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: execute(fns={"x": fn_a}))
    assert attempt.calls == [["parent/x"]]


async def test_tasks_that_are_not_waited_for_may_not_execute(attempt: Attempt) -> None:
    async def handle(*, task_status: trio.TaskStatus[None]) -> None:
        with attempt.running():
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(handle)
        with pytest.raises(RuntimeError, match="must be awaited in the handler's own task or a child of it"):
            await attempt.subhandlers.execute([attempt.subhandlers.make(fn_a)])
        nursery.cancel_scope.cancel(reason="the end of the test")
    assert attempt.calls == []


async def test_outside_of_a_change_handler_there_are_no_sub_handlers() -> None:
    with pytest.raises(RuntimeError, match=r"execute\(\) works only in a running change handler"):
        await execute(fns=[fn_a])
    with pytest.raises(RuntimeError, match=r"register\(\) works only in a running change handler"):
        running_subhandlers("register")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"fns": [fn_a], "handlers": []}, TypeError, "takes one of fns=, handlers= and registry="),
        ({"fns": 5}, TypeError, "it must be a mapping of ids to functions, or a list of functions"),
        ({"fns": [fn_a], "lifecycle": "asap"}, TypeError, "A lifecycle must be a sync function"),
    ],
)
async def test_wrong_arguments_are_rejected(
    options: dict[str, Any], error: type[Exception], message: str, attempt: Attempt
) -> None:
    with attempt.running(), pytest.raises(error, match=message):
        await execute(**options)
    assert attempt.calls == []
