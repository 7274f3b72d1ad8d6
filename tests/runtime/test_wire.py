"""Operators on real connections to an API server that is late: what they send, and what does not wait for it."""

from __future__ import annotations

import contextlib
import functools
import pathlib
import signal
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio

import trioperator
from tests.coordination.peers import peering, peering_crd
from tests.runtime.conftest import CRD, widget
from trioperator._kube.connection_info import ConnectionInfo
from trioperator.apiserver import Cluster, serve_cluster
from trioperator.testing import eventually

on = trioperator.on


class Gate:
    """A proxy in front of an API server, which holds back requests that begin so until it is opened."""

    def __init__(self, held: bytes) -> None:
        self.is_holding = trio.Event()
        self.opened = trio.Event()
        self.held = 0
        self._held = held

    async def serve(self, port: int, *, task_status: trio.TaskStatus[str]) -> None:
        async def connect(stream: trio.SocketStream) -> None:
            far = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream, far, trio.open_nursery() as pumps:
                pumps.start_soon(self._pump, stream, far, pumps.cancel_scope)
                await self._pump(far, stream, pumps.cancel_scope)

        async with trio.open_nursery() as nursery:
            (listener,) = await nursery.start(functools.partial(trio.serve_tcp, connect, 0, host="127.0.0.1"))
            task_status.started(f"http://127.0.0.1:{listener.socket.getsockname()[1]}")

    async def _pump(self, one: trio.SocketStream, other: trio.SocketStream, scope: trio.CancelScope) -> None:
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async for data in one:
                if data.startswith(self._held):
                    self.is_holding.set()
                    self.held += 1
                    await self.opened.wait()
                await other.send_all(data)
        scope.cancel()


class Setup:
    """A leader behind a gate, with a single connection for all that it sends but its lease."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.gate = Gate(b"POST /api/v1/namespaces/default/configmaps")
        self.registry = trioperator.OperatorRegistry()
        self.settings = trioperator.OperatorSettings()
        self.settings.networking.max_connections = 1
        self.settings.posting.enabled = False
        self.settings.leadership.enabled = True
        self.settings.leadership.retry_period = 0.1

    @contextlib.asynccontextmanager
    async def running(self, *, standalone: bool = True) -> AsyncIterator[trio.Nursery]:
        """Run the operator in the block, and stop it at once at its end."""
        await self.cluster.apply(CRD)
        async with trio.open_nursery() as nursery:
            url = await nursery.start(serve_cluster, self.cluster)
            address = await nursery.start(self.gate.serve, int(url.rpartition(":")[2].strip("/")))
            run = functools.partial(
                trioperator.operator,
                registry=self.registry,
                settings=self.settings,
                identity="leader",
                standalone=standalone,
                handle_signals=False,
                connection=ConnectionInfo(server=address),
            )
            await nursery.start(run)
            with trio.fail_after(30):
                yield nursery
            nursery.cancel_scope.cancel()

    def count_renewals(self) -> int:
        return sum(request.method == "PUT" and "/leases/" in request.path for request in self.cluster.requests)

    def count_creations(self) -> int:
        return sum(request.method == "POST" and "/configmaps" in request.path for request in self.cluster.requests)

    def count_reads(self) -> int:
        return sum(request.method == "GET" and "/leases/" in request.path for request in self.cluster.requests)


@pytest.fixture
def setup(cluster: Cluster) -> Setup:
    return Setup(cluster)


async def test_a_lease_is_renewed_while_all_connections_are_busy(setup: Setup) -> None:
    created = trio.Event()

    @on.create("widgets", registry=setup.registry)
    async def create(name: str, client: trioperator.Client, **_: Any) -> None:
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        created.set()

    async with setup.running():
        await setup.cluster.create(widget("w"))
        await setup.gate.is_holding.wait()
        before = setup.count_renewals()
        await eventually(lambda: setup.count_renewals() >= before + 3)
        setup.gate.opened.set()
        await created.wait()


async def test_shards_and_a_peering_are_kept_while_all_connections_are_busy(setup: Setup) -> None:
    def count(end: str) -> int:
        return sum(request.method == "PATCH" and request.path.endswith(end) for request in setup.cluster.requests)

    calls: list[str] = []

    @on.create("widgets", registry=setup.registry)
    async def create(name: str, client: trioperator.Client, **_: Any) -> None:
        calls.append(name)
        await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})

    setup.settings.leadership.shards = 2
    setup.settings.peering.lifetime = 2
    await setup.cluster.apply(peering_crd())
    await setup.cluster.create(peering())
    async with setup.running(standalone=False):
        await setup.cluster.create(widget("w"))
        await setup.gate.is_holding.wait()
        before = count("/leases/trioperator-members"), count("/clusterkopfpeerings/default")
        await eventually(lambda: count("/leases/trioperator-members") >= before[0] + 3)  # whoever has shards is in it
        await eventually(lambda: count("/clusterkopfpeerings/default") >= before[1] + 3)
        assert calls == ["w"]  # it would be cancelled, and called again, if a shard or the record was lost


async def test_threads_that_are_abandoned_as_the_lease_is_lost_write_nothing_more(setup: Setup) -> None:
    names = [f"w{number}" for number in range(6)]
    begun: list[str] = []
    ended: list[str] = []
    token = trio.lowlevel.current_trio_token()

    @on.create("widgets", registry=setup.registry)
    def create(name: str, client: trioperator.SyncClient, **_: Any) -> None:
        token.run_sync_soon(begun.append, name)
        try:
            client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
        except trio.Cancelled:
            token.run_sync_soon(ended.append, name)
            raise

    async with setup.running():
        for name in names:
            await setup.cluster.create(widget(name))
        await setup.gate.is_holding.wait()
        await eventually(lambda: sorted(begun) == names)
        lease = {"spec": {"holderIdentity": "rival", "leaseDurationSeconds": 60}}
        await setup.cluster.patch("leases", "trioperator", lease, "default")
        await eventually(lambda: sorted(ended) == names)  # the request on its way, too
        setup.gate.opened.set()
    assert setup.count_creations() <= 1  # the one that was on its way


PROGRAM = """
import sys, trioperator

@trioperator.on.create("widgets")
async def create(name, client, **_):
    await client.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})

settings = trioperator.OperatorSettings()
settings.networking.max_connections = 20
settings.posting.enabled = False
settings.leadership.enabled = True
settings.leadership.lease_duration, settings.leadership.renew_deadline = 3, 2
settings.leadership.retry_period = 0.2
connection = trioperator.ConnectionInfo(server=sys.argv[1])
trioperator.run(settings=settings, identity="leader", standalone=True, connection=connection)
"""


async def test_a_process_that_was_suspended_sends_nothing_that_was_queued(setup: Setup, tmp_path: pathlib.Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    await setup.cluster.apply(CRD)
    async with trio.open_nursery() as nursery:
        url = await nursery.start(serve_cluster, setup.cluster)
        address = await nursery.start(setup.gate.serve, int(url.rpartition(":")[2].strip("/")))
        process = await nursery.start(trio.run_process, [sys.executable, tmp_path / "program.py", address])
        with trio.fail_after(60):
            await eventually(lambda: setup.count_renewals() >= 1)
            for number in range(60):
                await setup.cluster.create(widget(f"w{number}"))
            await eventually(lambda: setup.gate.held == 20)
            process.send_signal(signal.SIGSTOP)
            await trio.sleep(2.5)  # the lease is over by the clock of the process that is stopped
            lease = {"spec": {"holderIdentity": "rival", "leaseDurationSeconds": 60}}
            await setup.cluster.patch("leases", "trioperator", lease, "default")
            setup.gate.opened.set()
            await eventually(lambda: setup.count_creations() == 20)  # of the requests that were on their way
            seen = setup.count_reads()
            process.send_signal(signal.SIGCONT)
            await eventually(lambda: setup.count_reads() >= seen + 2)  # a standby, which looks at the lease
        assert setup.count_creations() == 20
        nursery.cancel_scope.cancel()
