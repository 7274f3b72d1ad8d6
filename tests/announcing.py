"""Peers that are announced on a peering object, and withdrawn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from trioperator._concurrency.clock import wall_now
from trioperator.apiserver import Cluster

Change = Callable[[Cluster], Awaitable[object]]


def announce(priority: int) -> Change:
    async def announce(cluster: Cluster) -> None:
        record = {"priority": priority, "lifetime": 3600, "lastseen": wall_now().isoformat()}
        await cluster.patch("clusterkopfpeerings", "default", {"status": {"other": record}})

    return announce


async def withdraw(cluster: Cluster) -> None:
    await cluster.patch("clusterkopfpeerings", "default", {"status": {"other": None}})
