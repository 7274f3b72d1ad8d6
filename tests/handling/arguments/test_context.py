"""The current cause, for helpers that are called without an object."""

from __future__ import annotations

import pytest
import trio

from tests.handling.factory import event_cause
from trioperator._handling.arguments.context import current_body, current_cause


def test_there_is_no_current_object_outside_of_handlers() -> None:
    with pytest.raises(LookupError, match="explicitly"):
        current_body()


async def test_the_current_object_follows_into_threads_and_tasks() -> None:
    cause = event_cause({"metadata": {"name": "w"}})
    token = current_cause.set(cause)
    found: list[object] = []

    async def child() -> None:
        found.append(current_body())

    try:
        found.append(current_body())
        found.append(await trio.to_thread.run_sync(current_body))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(child)
    finally:
        current_cause.reset(token)
    assert all(body is cause.body for body in found)
    assert len(found) == 3
