"""Daemons as tasks: their flags, scopes and ends, and the live view of their object that they share."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.runtime.conftest import settle
from tests.runtime.daemons.making import add, async_fn, make_body, make_daemons, sync_fn
from tests.runtime.harness import make_state, patched
from trioperator._handling.arguments.stopping import DaemonStoppingReason
from trioperator._handling.calls.interruption import Interruption
from trioperator._runtime.daemons.daemon import ObjectDaemons

REASON = DaemonStoppingReason


@pytest.fixture
async def daemons() -> ObjectDaemons:
    return make_daemons()


# ---------------------------------------------------------------------------------------------- daemons


async def test_reasons_to_stop_are_added(daemons: ObjectDaemons) -> None:
    daemon = add(daemons)
    assert not daemon.stopper.is_set
    daemon.stop(REASON.FILTERS_MISMATCH)
    daemon.stop(REASON.RESOURCE_DELETED)
    assert daemon.stopper.stopped.reason == REASON.FILTERS_MISMATCH | REASON.RESOURCE_DELETED
    assert isinstance(daemon.canceller, trio.CancelScope)
    assert not daemon.canceller.cancel_called
    assert not daemon.ended.is_set()


@pytest.mark.parametrize(("fn", "cancelled"), [(async_fn, True), (sync_fn, False)])
async def test_tasks_are_cancelled_and_threads_are_not(daemons: ObjectDaemons, fn: Any, cancelled: bool) -> None:
    daemon = add(daemons, fn=fn)
    daemon.cancel("it takes too long")
    if cancelled:
        assert isinstance(daemon.canceller, trio.CancelScope)
        assert daemon.canceller.cancel_called
    else:
        assert isinstance(daemon.canceller, Interruption)
        assert daemon.canceller.reason == "it takes too long"
    assert daemon.stopper.stopped.reason == REASON.DAEMON_CANCELLED


@pytest.mark.parametrize("finalizer", [True, False])
async def test_an_abandoned_daemon_does_not_block_deletion(daemons: ObjectDaemons, finalizer: bool) -> None:
    daemon = add(daemons, finalizer=finalizer)
    assert daemon.blocks_deletion is daemons.block_deletion is finalizer
    daemon.abandon()
    assert not daemon.blocks_deletion
    assert not daemons.block_deletion
    assert daemon.stopper.stopped.reason == REASON.DAEMON_ABANDONED


async def test_the_end_is_waited_for_as_long_as_is_said(daemons: ObjectDaemons, autojump_clock: MockClock) -> None:
    daemon, began = add(daemons), trio.current_time()
    assert not await daemon.ends_within(5)
    assert trio.current_time() == began + 5
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def end() -> None:
            await trio.sleep(3)
            daemon.ended.set()

        assert await daemon.ends_within(5)
    assert trio.current_time() == began + 8


async def test_a_daemon_that_waits_for_a_thread_stops_waiting(
    daemons: ObjectDaemons, autojump_clock: MockClock
) -> None:
    daemon = add(daemons)
    reached: list[str] = []
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def stop() -> None:
            await trio.sleep(5)
            daemon.stop(REASON.OPERATOR_EXITING)

        with daemon.queueing():
            await trio.sleep_forever()
            reached.append("after the wait")
        reached.append("after the block")
        await trio.sleep(1)  # which is not cancelled
    assert reached == ["after the block"]


async def test_a_change_of_the_object_wakes_a_daemon_that_waits_for_one(
    daemons: ObjectDaemons, autojump_clock: MockClock
) -> None:
    daemon, results = add(daemons), list[tuple[bool, float]]()

    async def wait() -> None:
        results.append((await daemon.wait_for_change(0), trio.current_time()))

    async with trio.open_nursery() as nursery:
        began = trio.current_time()
        nursery.start_soon(wait)
        await settle(5)
        daemons.renew(make_body(2, size=1), pending=None, own=False)  # which is no change
        await settle(5)
        assert results == []
        daemons.renew(make_body(3, size=2), pending=None, own=False)
    assert results == [(True, began + 10)]
    assert await daemon.wait_for_change(0)  # at once


async def test_a_stop_wakes_a_daemon_that_waits_for_a_change(daemons: ObjectDaemons, autojump_clock: MockClock) -> None:
    daemon = add(daemons)
    async with trio.open_nursery() as nursery:

        @nursery.start_soon
        async def stop() -> None:
            await trio.sleep(5)
            daemon.stop(REASON.OPERATOR_EXITING)

        assert not await daemon.wait_for_change(0)


async def test_a_daemon_can_move_to_another_state_of_its_object(daemons: ObjectDaemons) -> None:
    daemon, other = add(daemons), make_state(make_body(2))
    daemon.move_to(other)
    assert daemon.state is other


# ------------------------------------------------------------------------------- the daemons of an object


async def test_filters_are_matched_again_when_a_daemon_has_ended(daemons: ObjectDaemons) -> None:
    add(daemons, "a")
    add(daemons, "b")
    assert daemons.running.keys() == {"a", "b"}
    daemons.remove("a")
    assert list(daemons.running) == ["b"]
    assert daemons.matched is None


async def test_daemons_that_are_not_wanted_any_more_are_found(daemons: ObjectDaemons) -> None:
    first, second = add(daemons, "a"), add(daemons, "b")
    assert daemons.unwanted({"a", "c"}) == [second]
    assert daemons.unwanted(set()) == [first, second]


async def test_waiting_for_the_finalizer_blocks_deletion_until_the_next_match(daemons: ObjectDaemons) -> None:
    assert not daemons.block_deletion
    daemons.wait_for_finalizer()
    assert daemons.block_deletion
    body = make_body(2)
    daemons.match(body)
    assert not daemons.block_deletion
    assert daemons.matched is body


async def test_without_daemons_there_is_no_live_view(daemons: ObjectDaemons) -> None:
    assert daemons.raw == make_body()
    daemons.end()
    assert daemons.raw is None
    assert daemons.matched is None
    daemons.renew(make_body(2, size=2), pending=None, own=False)
    daemons.contributed({"spec": {"size": 3}}, opaque=False)
    assert daemons.changes == 0


# ------------------------------------------------------------------------------------------ the live view


def shown(daemons: ObjectDaemons) -> dict[str, Any]:
    assert daemons.cause is not None
    return dict(daemons.cause.body.spec)


async def test_the_view_shows_newer_states_with_what_is_pending_on_top(daemons: ObjectDaemons) -> None:
    daemons.contributed({"spec": {"mine": 1}}, opaque=False)
    assert shown(daemons) == {"size": 1, "mine": 1}
    daemons.renew(make_body(2, size=2), pending={"spec": {"mine": 1}}, own=False)
    assert shown(daemons) == {"size": 2, "mine": 1}
    assert daemons.raw == make_body(2, size=2)
    daemons.stored(make_body(3, size=2, mine=1), None)
    assert shown(daemons) == {"size": 2, "mine": 1}


async def test_changes_by_others_are_counted_with_their_time(daemons: ObjectDaemons, autojump_clock: MockClock) -> None:
    await trio.sleep(10)
    daemons.renew(make_body(2, size=2), pending=None, own=False)
    assert (daemons.changes, daemons.changed_at) == (1, trio.current_time())
    await trio.sleep(10)
    daemons.renew(make_body(3, size=2), pending=None, own=False)  # nothing has changed in the essence
    assert (daemons.changes, daemons.changed_at) == (1, trio.current_time() - 10)


async def test_the_same_state_again_is_no_change(daemons: ObjectDaemons) -> None:
    body = make_body(2, size=2)
    for _ in range(2):
        daemons.renew(body, pending=None, own=False)
    assert daemons.changes == 1


async def test_own_changes_are_not_counted(daemons: ObjectDaemons) -> None:
    daemons.contributed({"spec": {"size": 2}}, opaque=False)
    daemons.stored(make_body(2, size=2), None)
    assert daemons.changes == 0
    daemons.renew(make_body(2, size=2), pending=None, own=False)  # its echo
    assert daemons.changes == 0


async def test_what_others_have_changed_in_an_own_write_is_counted(daemons: ObjectDaemons) -> None:
    daemons.contributed({"spec": {"mine": 1}}, opaque=False)
    daemons.stored(make_body(2, size=7, mine=1), None)
    assert daemons.changes == 1


async def test_the_effect_of_own_functions_is_not_counted(daemons: ObjectDaemons) -> None:
    daemons.contributed({}, opaque=True)
    daemons.stored(make_body(2, size=2), None)
    assert daemons.changes == 0
    daemons.stored(make_body(3, size=3), None)  # these were the last ones
    assert daemons.changes == 1


async def test_changes_are_not_computed_where_no_timer_needs_them() -> None:
    daemons = make_daemons(digest_of=None)
    daemons.renew(patched(make_body(2), {"spec": {"size": 2}}), pending=None, own=False)
    assert daemons.changes == 0
    assert shown(daemons) == {"size": 2}


# ------------------------------------------------------------------------------------------- large objects


def test_ten_hostile_objects_of_idle_daemons_cost_little_more_than_their_json() -> None:
    command = [sys.executable, "-m", "tests.runtime.daemons.memory"]
    variables = {**os.environ, "PYTHONMALLOC": "malloc"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=variables)
    assert float(done.stdout) <= 30
