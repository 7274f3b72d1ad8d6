"""Tests for :mod:`trioperator._handling.calls.interruption`."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from trioperator._handling.calls.interruption import Interruption


async def test_an_interruption_cancels_the_current_scope_at_its_next_checkpoint(autojump_clock: MockClock) -> None:
    interruption, reached = Interruption(), list[str]()
    with interruption.make_scope():
        interruption.interrupt("the object has changed")
        reached.append("before a checkpoint")
        await trio.sleep(5)
        reached.append("after a checkpoint")
    assert reached == ["before a checkpoint"]
    assert interruption.cancelled_caught
    assert interruption.reason == "the object has changed"


async def test_an_interruption_before_the_scope_cancels_it_as_well() -> None:
    interruption = Interruption()
    interruption.interrupt("the object is gone")
    for _ in range(2):  # and all later ones
        with interruption.make_scope():
            await trio.lowlevel.checkpoint()
        assert interruption.cancelled_caught


async def test_an_interruption_for_later_cancels_then(autojump_clock: MockClock) -> None:
    interruption, begun = Interruption(), trio.current_time()
    with interruption.make_scope():
        interruption.interrupt("the object has changed", at=begun + 60)
        await trio.sleep_forever()
    assert interruption.cancelled_caught
    assert trio.current_time() == begun + 60
    with interruption.make_scope():  # as are later scopes
        await trio.lowlevel.checkpoint()
    assert interruption.cancelled_caught


async def test_an_attempt_may_end_before_a_later_interruption(autojump_clock: MockClock) -> None:
    interruption = Interruption()
    with interruption.make_scope():
        interruption.interrupt("the object has changed", at=trio.current_time() + 60)
        await trio.sleep(59)
    assert not interruption.cancelled_caught


async def test_an_earlier_interruption_comes_before_a_later_one(autojump_clock: MockClock) -> None:
    interruption, begun = Interruption(), trio.current_time()
    with interruption.make_scope():
        interruption.interrupt("the object has changed", at=begun + 60)
        interruption.interrupt("the object is gone")
        interruption.interrupt("the object has changed", at=begun + 30)
        await trio.sleep_forever()
    assert interruption.reason == "the object is gone"
    assert trio.current_time() == begun


async def test_the_first_reason_is_kept() -> None:
    interruption = Interruption()
    interruption.interrupt("first")
    interruption.interrupt("second")
    assert interruption.reason == "first"


async def test_a_scope_that_was_left_is_not_cancelled() -> None:
    interruption = Interruption()
    scope = interruption.make_scope()
    with scope:
        pass
    interruption.leave_scope()
    interruption.interrupt("too late")
    assert not scope.cancel_called
    assert not interruption.cancelled_caught


async def test_a_scope_that_ends_in_time_is_not_caught() -> None:
    interruption = Interruption()
    assert not interruption.cancelled_caught
    with interruption.make_scope():
        await trio.lowlevel.checkpoint()
        interruption.interrupt("at the end")
    assert not interruption.cancelled_caught


async def test_the_reason_is_that_of_the_cancellation() -> None:
    interruption, texts = Interruption(), list[str]()
    with interruption.make_scope():
        interruption.interrupt("the object has changed")
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as error:
            texts.append(str(error))
            raise
    assert "the object has changed" in texts[0]
