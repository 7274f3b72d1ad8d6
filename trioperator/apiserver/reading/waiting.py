"""Waiting for what becomes of a stored object: each of its states is checked, as a watch would show them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from typing import Any

import trio

from trioperator._model.conditions import Condition, describe_condition, is_met

from ..store.storage import Change, Store, Stored, Table

Object = dict[str, Any]


class ObjectWait:
    """Waiting for one object of a table. *show* returns a state of it as clients see it."""

    def __init__(self, store: Store, table: Table, key: str, *, show: Callable[[Stored], Awaitable[Object]]) -> None:
        self._store = store
        self._table = table
        self._key = key
        self._show = show
        self._last: Object | None = None
        self._error: Exception | None = None

    async def until(self, condition: Condition | None, *, timeout: float | None) -> Object:
        """Wait until the object exists and meets the condition, and return it. Raises TimeoutError."""
        with trio.move_on_after(math.inf if timeout is None else timeout):
            return await self._until_met(condition)
        wanted = "exist" if condition is None else f"meet {describe_condition(condition)}"
        raise TimeoutError(self._describe(f"does not {wanted} after {timeout:g} seconds")) from self._error

    async def until_deleted(self, *, timeout: float | None) -> None:
        """Wait until the object is gone, or replaced by another one of the same name. Raises TimeoutError."""
        first = self._table.objects.get(self._key)
        if first is None:
            return
        with trio.move_on_after(math.inf if timeout is None else timeout):
            async with self._open_states() as states:
                async for stored in states:
                    if stored is None or stored.uid != first.uid:
                        return
                    self._last = await self._show(stored)
        raise TimeoutError(self._describe(f"is not deleted after {timeout:g} seconds"))

    async def _until_met(self, condition: Condition | None) -> Object:
        async with self._open_states() as states:
            async for stored in states:
                self._last = None if stored is None else await self._show(stored)
                if self._last is not None and self._meets(condition, self._last):
                    return self._last
        raise AssertionError("states of an object do not end")

    def _meets(self, condition: Condition | None, obj: Object) -> bool:
        """Return whether a state meets the condition. One that lacks what a function looks for does not."""
        self._error = None
        try:
            return condition is None or is_met(condition, obj)
        except (AssertionError, LookupError) as error:
            self._error = error
            return False

    def _open_states(self) -> _States:
        return _States(self._store, self._table, self._key)

    def _describe(self, problem: str) -> str:
        """Return an error with the last state of the object."""
        group, plural = self._table.resource
        text = f"{plural}.{group} {self._key}" if group else f"{plural} {self._key}"
        text = f"{text} {problem}"
        if self._error is not None:
            text += f" ({type(self._error).__name__}: {self._error})"
        if self._last is None:
            others = ", ".join(self._table.keys()) or "none"
            return f"{text}: there is no such object. Objects of this kind: {others}."
        import yaml  # only for the message

        meta = {name: value for name, value in self._last["metadata"].items() if name != "managedFields"}
        return f"{text}. Its last state:\n{yaml.safe_dump({**self._last, 'metadata': meta}, sort_keys=False)}"


class _States:
    """States of an object from now on, None while it does not exist."""

    def __init__(self, store: Store, table: Table, key: str) -> None:
        self._store = store
        self._resource = table.resource
        self._key = key
        # Unbounded: writes do not wait for whoever looks at them.
        self._send, self._receive = trio.open_memory_channel[Stored | None](math.inf)
        self._send.send_nowait(table.objects.get(key))

    async def __aenter__(self) -> trio.MemoryReceiveChannel[Stored | None]:
        self._store.on_change.append(self._observe)
        return self._receive

    async def __aexit__(self, *_: object) -> None:
        self._store.on_change.remove(self._observe)
        self._send.close()
        self._receive.close()

    def _observe(self, table: Table, change: Change) -> None:
        if table.resource == self._resource and change.key == self._key:
            self._send.send_nowait(change.new)
