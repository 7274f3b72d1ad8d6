"""A timer that notes when it is called."""

from __future__ import annotations

from typing import Any

import trio

from tests.runtime.conftest import Bench, widget


class Ticks:
    """Times of calls, from the creation of the object on."""

    def __init__(self) -> None:
        self.began = 0.0
        self.times: list[float] = []

    def note(self) -> None:
        self.times.append(round(trio.current_time() - self.began, 6))

    async def create(self, bench: Bench, **spec: Any) -> None:
        self.began = trio.current_time()
        await bench.cluster.create(widget(**spec))
