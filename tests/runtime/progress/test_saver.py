"""The saver: what is due is stored beside handlers at work, at its time and no more often than needed."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest
import trio
from trio.testing import MockClock

from tests.runtime.conftest import settle
from tests.runtime.harness import LOGGER, Harness
from trioperator._handling.handlers.handler import ChangeHandler, Reason
from trioperator._runtime.cache.cache import ObjectCache
from trioperator._runtime.cache.object_state import ObjectState
from trioperator._runtime.progress.saver import Saver
from trioperator._runtime.progress.states import CauseProgress
from trioperator.testing import Fault


class Observer:
    """An observer that does nothing, as daemons and timers are."""

    def contributed(self, patch: object, *, opaque: bool) -> None: ...
    def stored(self, body: object, pending: object) -> None: ...


def begin(harness: Harness, object: ObjectState) -> CauseProgress:
    handlers: list[ChangeHandler] = [
        handler for handler in object.cache.kind.handlers.changes if handler.reason is Reason.CREATE
    ]
    return harness.progress.begin(object, harness.detect(object).cause, handlers)


@contextlib.asynccontextmanager
async def open_saver(harness: Harness, object: ObjectState) -> AsyncIterator[Saver]:
    async with trio.open_nursery() as nursery:
        with Saver(harness.progress, harness.pending, state=object, nursery=nursery, logger=LOGGER) as saver:
            yield saver
        await saver.wait()
        assert not nursery.child_tasks


def saver_tasks(saver: Saver) -> int:
    return len(saver.nursery.child_tasks)


async def test_no_task_is_started_when_nothing_is_due(harness: Harness, autojump_clock: MockClock) -> None:
    object = await harness.make("a")
    begin(harness, object)
    async with open_saver(harness, object) as saver:
        saver.notify()
        assert saver_tasks(saver) == 0
        await trio.sleep(100)
    assert harness.patches == 0


async def test_progress_is_stored_when_it_is_due_and_not_before(harness: Harness, autojump_clock: MockClock) -> None:
    object = await harness.make("a")
    progress = begin(harness, object)
    async with open_saver(harness, object) as saver:
        progress.plan_save(trio.current_time() + 5)
        saver.notify()
        saver.notify()
        assert saver_tasks(saver) == 1
        await settle(4)
        assert harness.patches == 0
        await settle(2)
        assert harness.patches == 1
        await settle(100)
        assert harness.patches == 1
        progress.move("a", msgspec.structs.replace(progress.states["a"], retries=1))
        progress.plan_save(trio.current_time() + 1)
        saver.notify()
        await settle(2)
        assert harness.patches == 2


async def test_what_is_not_due_when_the_handlers_end_is_not_stored(harness: Harness, autojump_clock: MockClock) -> None:
    object = await harness.make("a")
    progress = begin(harness, object)
    async with open_saver(harness, object) as saver:
        progress.plan_save(trio.current_time() + 5)
        saver.notify()
        await settle(1)
    assert harness.patches == 0
    assert harness.progress.is_due(object)  # it is stored with what comes next
    assert not harness.pending.is_observed(object)


async def test_what_has_begun_is_stored_before_the_block_ends(harness: Harness, autojump_clock: MockClock) -> None:
    object = await harness.make("a")
    progress = begin(harness, object)
    harness.plan.add(Fault.delay(before=3), method="PATCH")
    async with open_saver(harness, object) as saver:
        progress.plan_save(trio.current_time())
        saver.notify()
        await settle(1)
    assert harness.patches == 1
    assert not harness.progress.is_due(object)


async def test_failures_are_retried_with_a_backoff_and_end_no_handler(
    harness: Harness, autojump_clock: MockClock
) -> None:
    object = await harness.make("a")
    progress = begin(harness, object)
    rule = harness.plan.add(Fault.status(500), method="PATCH")
    async with open_saver(harness, object) as saver:
        progress.plan_save(trio.current_time())
        saver.notify()
        await settle(21)
        assert 3 <= rule.hits <= 6
        harness.plan.remove(rule)
        await settle(10)
        assert not harness.progress.is_due(object)
    assert "a" in await harness.annotations()


async def test_an_error_of_a_handler_is_raised_as_it_is(harness: Harness, autojump_clock: MockClock) -> None:
    object = await harness.make("a")
    progress = begin(harness, object)
    progress.plan_save(trio.current_time() + 5)
    with pytest.RaisesGroup(pytest.RaisesExc(KeyError, match="x")):
        async with open_saver(harness, object) as saver:
            saver.notify()
            raise KeyError("x")
    assert harness.patches == 0
    assert not harness.pending.is_observed(object)


async def test_what_a_timer_waits_for_is_stored_at_once(harness: Harness, autojump_clock: MockClock) -> None:
    object = await harness.make("a")
    begin(harness, object)
    harness.pending.observe(object, Observer())  # daemons and timers run
    async with open_saver(harness, object) as saver:
        saver.notify()
        assert saver_tasks(saver) == 1
        await settle(10)
        assert harness.patches == 0
        stored = harness.pending.wait_for(object)
        harness.pending.contribute(object, {"spec": {"other": 2}}, (), by="Timer", logger=LOGGER)
        began = trio.current_time()
        await stored.wait()
        assert trio.current_time() == began
    assert harness.patches == 1
    assert (await harness.get())["spec"]["other"] == 2


async def test_who_waits_for_an_object_whose_kind_is_not_watched_any_more_is_told(
    harness: Harness, autojump_clock: MockClock
) -> None:
    object = await harness.make("a")
    begin(harness, object)
    await harness.cluster.delete("widgets", "w")
    assert isinstance(object.cache, ObjectCache)
    object.cache.retire()
    harness.pending.contribute(object, {"spec": {"other": 2}}, (), by="Handler", logger=LOGGER)
    stored = harness.pending.wait_for(object)
    async with open_saver(harness, object) as saver:
        saver.notify()
        with trio.fail_after(1):
            await stored.wait()
    assert stored.dropped
