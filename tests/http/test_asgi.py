"""Tests for :mod:`trioperator._http.asgi`."""

from __future__ import annotations

from typing import Any

from trioperator._http.asgi import accept_lifespan


async def test_a_lifespan_is_accepted_until_its_end() -> None:
    sent: list[str] = []
    events = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])

    async def receive() -> Any:
        return next(events)

    async def send(message: Any) -> None:
        sent.append(message["type"])

    await accept_lifespan(receive, send)
    assert sent == ["lifespan.startup.complete", "lifespan.shutdown.complete"]
