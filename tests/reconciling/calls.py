"""A reconcile handler that notes its calls."""

from __future__ import annotations

import itertools
from typing import Any

import trio

import trioperator
from tests.runtime.conftest import Bench

on = trioperator.on


class Calls:
    """A reconcile handler that counts its calls. ``fail`` are the errors of the next ones."""

    def __init__(self, bench: Bench, **options: Any) -> None:
        self.times: list[float] = []
        self.names: list[str] = []
        self.fail: list[Exception] = []

        @on.reconcile("widgets", registry=bench.registry, **options)
        async def reconcile(name: str) -> list[Any]:
            self.times.append(trio.current_time())
            self.names.append(name)
            if self.fail:
                raise self.fail.pop(0)
            return []

    @property
    def delays(self) -> list[float]:
        return [round(later - earlier, 3) for earlier, later in itertools.pairwise(self.times)]

    def take(self) -> int:
        """Return the number of calls since the last time."""
        number = len(self.times)
        self.times.clear()
        return number
