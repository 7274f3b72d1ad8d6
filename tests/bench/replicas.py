"""Replicas that divide the objects by shards: ``python -m tests.bench scale shards``.

Memory is above that of an idle replica with as many shards, and of an idle operator without shards. The first replica
has all objects until the others have joined, so its peak counts, too: what Python keeps of that is part of its memory.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from typing import Final

from tests.bench import scale
from tests.bench.figures import Figures
from tests.bench.processes import cpu_seconds, resident_mib

_SHARDS: Final = "--shards=8"
_REPLICAS: Final = 4
_CHANGES: Final = 1000
_SETTLING: Final = 20.0  # seconds until they know each other, and shards have moved


def measure(figures: Figures, count: int) -> None:
    """Measure four replicas beside an operator that has all of the objects; then a fifth one joins."""
    with scale.open_server("loads") as server, contextlib.ExitStack() as stack:
        idle = scale.measure_idle(server, scale.CHANGES)
        idle_replica = scale.measure_idle(server, scale.CHANGES, _SHARDS)
        figures.add("idle: an operator, and a replica", f"{idle:.1f}, {idle_replica:.1f} MiB")
        server.do("create", count=1)
        with scale.running(server, scale.CHANGES) as operator:
            operator.wait_ready()
        server.do("create", count=count)
        with scale.running(server, scale.CHANGES) as operator:
            operator.wait_ready()
            alone = resident_mib(operator.pid) - idle
        figures.add(f"one operator with {count} objects", f"{alone:.1f} MiB above idle")
        replicas = [stack.enter_context(scale.running(server, scale.CHANGES, _SHARDS)) for _ in range(_REPLICAS)]
        _measure(figures, server, replicas, idle_replica, alone)
        replicas.append(stack.enter_context(scale.running(server, scale.CHANGES, _SHARDS)))
        _measure(figures, server, replicas, idle_replica, alone)


def _measure(
    figures: Figures, server: scale.Server, replicas: Sequence[scale.Operator], idle: float, alone: float
) -> None:
    for replica in replicas:
        replica.wait_ready()
    time.sleep(_SETTLING)
    for replica in replicas:
        replica.wait_idle()
    above = [resident_mib(replica.pid) - idle for replica in replicas]
    what = f"{len(replicas)} replicas"
    figures.add(what, f"{_show(above)} MiB above idle, {_show([each / alone for each in above], 2)} of one operator's")
    figures.add(f"{what}: at most", f"{_show([replica.peak_mib - idle for replica in replicas])} MiB above idle")
    before = [cpu_seconds(replica.pid) for replica in replicas]
    for replica in replicas:
        replica.journal.write_text("")
    server.do("change", count=_CHANGES)
    for replica in replicas:
        replica.wait_idle()
    cpu = [cpu_seconds(replica.pid) - was for replica, was in zip(replicas, before, strict=True)]
    handled = [len(replica.handled()) for replica in replicas]
    figures.add(f"{what}: changes handled by each", f"{_show(handled, 0)}, {_show(cpu)} s CPU")


def _show(numbers: Sequence[float], digits: int = 1) -> str:
    return ", ".join(f"{number:.{digits}f}" for number in numbers)
