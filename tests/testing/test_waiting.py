"""Tests for :mod:`trioperator.testing.waiting`."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from trioperator.testing import eventually


async def test_a_check_that_is_met_returns_at_once_what_it_returns(autojump_clock: MockClock) -> None:
    assert await eventually(lambda: ["a"]) == ["a"]
    assert trio.current_time() == 0


async def test_a_check_is_met_as_soon_as_another_task_has_made_it_true(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    seen: list[int] = []
    checks = 0

    async def see() -> None:
        for number in range(3):
            await trio.sleep(10)
            seen.append(number)

    def check() -> list[int]:
        nonlocal checks
        checks += 1
        assert len(seen) == 2
        return seen

    nursery.start_soon(see)
    assert await eventually(check) == [0, 1]
    assert trio.current_time() == 20
    assert checks < 10  # nothing is polled


async def test_checks_that_wait_for_each_other_do_not_keep_time_from_passing(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    seen: list[str] = []

    async def wait_for(count: int) -> None:
        await eventually(lambda: len(seen) == count)
        seen.append("waited")

    nursery.start_soon(wait_for, 1)
    nursery.start_soon(wait_for, 2)
    await trio.sleep(10)
    seen.append("slept")
    await eventually(lambda: len(seen) == 3)
    assert trio.current_time() == 10


async def test_after_the_timeout_the_last_state_is_shown(autojump_clock: MockClock) -> None:
    def find() -> str:
        return {"a": "b"}["c"]

    with pytest.raises(TimeoutError, match=r"find still raises KeyError\('c'\) after 60 seconds") as caught:
        await eventually(find)
    assert isinstance(caught.value.__cause__, KeyError)
    assert trio.current_time() == 60
    with pytest.raises(TimeoutError, match=r"the lambda in line \d+ still returns 0 after 5 seconds"):
        await eventually(lambda: 0, timeout=5)


async def test_other_errors_and_async_checks_are_raised_at_once(autojump_clock: MockClock) -> None:
    with pytest.raises(ZeroDivisionError):
        await eventually(lambda: 1 / 0)

    async def check() -> bool:
        raise AssertionError

    with pytest.raises(TypeError, match=r"sync function, not .*check, whose result must be awaited"):
        await eventually(check)  # type: ignore[unused-coroutine]  # which is the mistake


async def test_results_of_threads_are_seen(nursery: trio.Nursery) -> None:
    seen: list[str] = []
    nursery.start_soon(trio.to_thread.run_sync, seen.append, "seen")
    assert await eventually(lambda: seen) == ["seen"]
