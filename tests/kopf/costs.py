"""What a handler costs on asyncio: ``python -m tests.kopf.costs`` prints the CPU time of calls and of handled objects.

The API server is in the same process, and the same for both: what counts is the difference.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

import trio
import trio.lowlevel

import trioperator
from trioperator.apiserver import Cluster
from trioperator.kopf.bridge import adapt
from trioperator.kopf.host import open_loop

CALLS, OBJECTS, ROUNDS = 5000, 200, 5


async def on_trio(**_: Any) -> None:
    await trio.lowlevel.checkpoint()


async def on_asyncio(**_: Any) -> None:
    await asyncio.sleep(0)


async def measure_calls(fn: Callable[..., Awaitable[None]]) -> float:
    """Return the microseconds of CPU that a call takes."""
    began = time.process_time()
    for _ in range(CALLS):
        await fn()
    return (time.process_time() - began) / CALLS * 1e6


async def measure_objects(fn: Callable[..., Any]) -> float:
    """Return the microseconds of CPU that the creation of an object takes, with its API server."""
    cluster, registry = Cluster(seed=0), trioperator.OperatorRegistry()
    trioperator.on.create("configmaps", id="fn", registry=registry)(fn)
    async with trio.open_nursery() as nursery:
        info = trioperator.ConnectionInfo(server="http://cluster")
        options: dict[str, Any] = {"connection": info, "transport": cluster.transport(), "standalone": True}
        await nursery.start(
            lambda task_status: trioperator.operator(registry=registry, task_status=task_status, **options)
        )
        began = time.process_time()
        for number in range(OBJECTS):
            await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"c{number}"}})
            await cluster.wait_for("configmaps", f"c{number}", lambda found: found["metadata"]["annotations"])
        spent = time.process_time() - began
        nursery.cancel_scope.cancel(reason="measured")
    return spent / OBJECTS * 1e6


async def main() -> None:
    async with open_loop():
        for measure in (measure_calls, measure_objects):
            native, bridged = [], []
            for _ in range(ROUNDS):  # in turns, as the machine may be busy
                native.append(await measure(on_trio))
                bridged.append(await measure(adapt(on_asyncio)))
            first, second = statistics.median(native), statistics.median(bridged)
            sys.stdout.write(
                f"{measure.__name__}: Trio {first:.0f} us, asyncio {second:.0f} us, {second - first:+.0f}\n"
            )


if __name__ == "__main__":
    trioperator.configure(quiet=True)
    trio.run(main)
