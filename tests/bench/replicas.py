"""Replicas that divide the objects by shards: ``python -m tests.bench scale shards``.

On a real API server if ``$KUBEBUILDER_ASSETS`` is set, with the flags in ``$CONTROLPLANE_APISERVER_ARGS``, such as
``--feature-gates=ShardedListAndWatch=true``; else on the embedded one, which divides the objects.
Memory is above that of an idle replica with as many shards, and of an idle operator without shards. The first replica
has all objects until the others have joined, so its peak counts, too: what Python keeps of that is part of its memory.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import time
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Final

from tests.bench import scale, streaming
from tests.bench.figures import Figures
from tests.bench.processes import cpu_seconds, resident_mib
from tests.controlplane import free_ports

_SHARDS: Final = "--shards=8"
_REPLICAS: Final = 4
_CHANGES: Final = 4000
_SETTLING: Final = 20.0  # seconds until they know each other, and shards have moved


@contextlib.contextmanager
def _open_server() -> Iterator[scale.Server | streaming.RealServer]:
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets is None:
        with scale.open_server("loads") as embedded:
            yield embedded
        return
    with streaming.open_real_server(pathlib.Path(assets)) as server:
        server.define("loads")
        yield server


def measure(figures: Figures, count: int) -> None:
    """Measure four replicas beside an operator that has all of the objects; then a fifth one joins."""
    ports = free_ports(_REPLICAS + 1)
    options = [(_SHARDS, f"--metrics=http://127.0.0.1:{port}") for port in ports]
    with _open_server() as server, contextlib.ExitStack() as stack:
        idle = scale.measure_idle(server, scale.CHANGES)
        idle_replica = scale.measure_idle(server, scale.CHANGES, *options[0])
        figures.add("idle: an operator, and a replica", f"{idle:.1f}, {idle_replica:.1f} MiB")
        server.do("create", count=1)
        with scale.running(server, scale.CHANGES) as operator:
            operator.wait_ready()
        server.do("create", count=count)
        with scale.running(server, scale.CHANGES) as operator:
            operator.wait_ready()
            alone = resident_mib(operator.pid) - idle
        figures.add(f"one operator with {count} objects", f"{alone:.1f} MiB above idle")
        replicas = [stack.enter_context(scale.running(server, scale.CHANGES, *each)) for each in options[:_REPLICAS]]
        _measure(figures, server, replicas, ports, idle_replica, alone)
        replicas.append(stack.enter_context(scale.running(server, scale.CHANGES, *options[_REPLICAS])))
        _measure(figures, server, replicas, ports, idle_replica, alone)


def _count_received(port: int) -> int:
    """Return how many watch events a replica has received, but bookmarks."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        metrics = response.read().decode()
    found = re.search(r'^trioperator_watch_events_total\{resource="loads[^}]*\} (\S+)$', metrics, re.MULTILINE)
    return round(float(found[1])) if found else 0


def _measure(
    figures: Figures,
    server: scale.Server | streaming.RealServer,
    replicas: Sequence[scale.Operator],
    ports: Sequence[int],
    idle: float,
    alone: float,
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
    before = [(cpu_seconds(replica.pid), _count_received(port)) for replica, port in zip(replicas, ports, strict=False)]
    for replica in replicas:
        replica.journal.write_text("")
    server.do("change", count=_CHANGES)
    for replica in replicas:
        replica.wait_idle()
    after = [(cpu_seconds(replica.pid), _count_received(port)) for replica, port in zip(replicas, ports, strict=False)]
    cpu = [now - was for (now, _), (was, _) in zip(after, before, strict=True)]
    received = [now - was for (_, now), (_, was) in zip(after, before, strict=True)]
    handled = [len(replica.handled()) for replica in replicas]
    events = 2 * sum(handled)  # one of each change, and one of what is recorded of it
    shares = _show([each / events for each in received], 3)
    figures.add(f"{what}: changes handled by each", f"{_show(handled, 0)}, {shares} of all events, {_show(cpu)} s CPU")


def _show(numbers: Sequence[float], digits: int = 1) -> str:
    return ", ".join(f"{number:.{digits}f}" for number in numbers)
