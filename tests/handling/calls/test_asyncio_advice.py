"""Advice for handlers that call asyncio: what to use on Trio instead."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any

import pytest
import trio
import trio.lowlevel

from tests.handling.factory import invoke, raising


async def gather() -> None:
    loop = asyncio.new_event_loop()
    try:
        await asyncio.gather(loop.create_future())
    finally:
        loop.close()


async def get_loop() -> None:
    asyncio.get_running_loop()


async def in_task_group() -> None:
    async with asyncio.TaskGroup():
        pass


class Never:
    """An awaitable of asyncio; no coroutine, for which Python warns when nobody awaits it."""

    def __await__(self) -> Generator[Any, None, None]:
        yield


async def with_timeout() -> None:
    async with asyncio.timeout(5):
        await trio.lowlevel.checkpoint()


async def get_from_queue() -> None:
    await asyncio.Queue[int]().get()


async def awaiting_a_future() -> None:
    loop = asyncio.new_event_loop()
    try:
        await loop.create_future()
    finally:
        loop.close()


async def awaiting_in_a_nursery() -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(asyncio.sleep, 0)


FOREIGN: list[tuple[Callable[[], Coroutine[Any, Any, Any] | Any], str]] = [
    (lambda: asyncio.sleep(1), "asyncio's sleep() cannot work here; use trio.sleep() instead"),
    (lambda: asyncio.sleep(0), "asyncio's sleep() cannot work here; use trio.sleep() instead"),
    (lambda: asyncio.Event().wait(), "asyncio's Event.wait() cannot work here; use trio.Event instead"),
    (get_from_queue, "asyncio's Queue.get() cannot work here; use trio.open_memory_channel() instead"),
    (with_timeout, "asyncio's timeout() cannot work here; use trio.fail_after() instead"),
    (
        lambda: asyncio.wait_for(Never(), 1),
        "asyncio's wait_for() cannot work here; use trio.fail_after() instead",
    ),
    (lambda: asyncio.to_thread(print), "asyncio's to_thread() cannot work here; use trio.to_thread.run_sync() instead"),
    (gather, "asyncio's gather() cannot work here; use a nursery"),
    (get_loop, "asyncio's get_running_loop() cannot work here; use a nursery for its tasks"),
    (in_task_group, "asyncio's TaskGroup.__aenter__() cannot work here; use a nursery"),
    (awaiting_a_future, "what it awaits cannot work here"),
    (awaiting_in_a_nursery, "asyncio's sleep() cannot work here; use trio.sleep() instead"),
]


@pytest.mark.parametrize(("call", "hint"), FOREIGN)
async def test_a_handler_that_uses_asyncio_gets_advice(
    call: Callable[[], Any], hint: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def fn() -> None:
        await call()

    outcome = await invoke(fn)
    assert outcome.error is not None
    assert not outcome.final
    texts = [record.getMessage() for record in caplog.records]
    assert len(texts) == 2
    assert texts[0].startswith("Handler 'fn' failed with an exception")
    assert texts[1].startswith("Handler 'fn' uses asyncio, and this operator runs on Trio: ")
    assert hint in texts[1]


async def test_a_handler_that_creates_asyncio_tasks_is_advised_to_use_nurseries(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def background() -> None: ...

    coroutine = background()

    async def fn() -> None:
        asyncio.create_task(coroutine)  # noqa: RUF006

    assert (await invoke(fn)).error is not None
    coroutine.close()
    assert "asyncio's create_task() cannot work here; use a nursery" in caplog.records[-1].getMessage()


@pytest.mark.parametrize(("call", "hint"), FOREIGN)
async def test_a_handler_that_uses_asyncio_does_no_harm_to_others(call: Callable[[], Any], hint: str) -> None:
    async def fn() -> str:
        try:
            await call()
        except (AttributeError, TypeError, RuntimeError, ExceptionGroup):
            await trio.lowlevel.checkpoint()  # Trio is as good as before
            return "survived"
        return "unexpected"

    results: list[str] = []

    async def neighbour() -> None:
        await trio.lowlevel.checkpoint()
        results.append("neighbour")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(neighbour)
        results.append((await invoke(fn)).result)
    assert sorted(results) == ["neighbour", "survived"]


async def test_other_runtime_errors_give_no_advice(caplog: pytest.LogCaptureFixture) -> None:
    await invoke(raising(RuntimeError("oops"), sync=False))
    await invoke(raising(ValueError("no running event loop"), sync=False))
    assert len(caplog.records) == 2
