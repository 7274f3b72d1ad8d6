"""Threads of client libraries in tests: virtual time stands still while they work, as for threads of the operator.

These are the threads of anyio, which kr8s reads files in.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, TypeVar

import trio

from trioperator._concurrency.threads import run_in_thread
from trioperator.testing.library_routes import HOST, Change, find_route

T = TypeVar("T")


def change_anyio(module: ModuleType) -> Iterator[Change]:
    """Yield what is changed in a backend of anyio."""
    backend: Any = module.backend_class
    original = backend.run_sync_in_worker_thread

    async def run(_: Any, func: Callable[..., T], args: tuple[Any, ...], *rest: Any, **options: Any) -> T:
        route = find_route(HOST)
        if route is None or not route.is_near:  # in another loop, for which a thread waits that is known
            result: T = await original(func, args, *rest, **options)
            return result
        return await route.wait(_run, functools.partial(func, *args))

    yield backend, "run_sync_in_worker_thread", classmethod(run)


async def _run(fn: Callable[[], T]) -> T:
    return await run_in_thread(fn, limiter=trio.to_thread.current_default_thread_limiter())
