"""Requests to the endpoints of an operator."""

from __future__ import annotations

import httpx
import trio

from trioperator._concurrency.threads import run_in_thread


async def get(url: str, method: str = "GET") -> tuple[int, str]:
    """Send a request in a thread, while which a mock clock stands still."""
    response = await run_in_thread(
        lambda: httpx.request(method, url, timeout=60, trust_env=False), limiter=trio.CapacityLimiter(1)
    )
    return response.status_code, response.text
