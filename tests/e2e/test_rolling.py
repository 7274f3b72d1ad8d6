"""A rolling update of two replicas with managed webhooks on a real control plane, under load: no wrong answer at all.

There are no kubelet and no kube-proxy: a balancer does what these do. New connections go to ready replicas; a replica
gets some for a while after it has been told to stop, as endpoints are removed asynchronously; connections that exist
stay where they are.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import logging
import os
import pathlib
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator

import httpx
import pytest
import trio

from tests.controlplane import ControlPlane, free_ports
from tests.e2e.test_webhook_options import find_port
from tests.program import Program

HOOKS = "rolling.kopf.dev"
NAMESPACE = "rolling"
# Seconds between probes, and from the stop of a replica until it gets no new connections.
PROBING, REMOVAL = 0.3, 2.0
# Writes of both kinds that are seen at least, however slow the machine is.
ENOUGH = 200
OPERATOR = f"""
import os
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.managed = "{HOOKS}"
    settings.admission.server = trioperator.WebhookServer(
        addr=os.environ["REPLICA_ADDRESS"], port=PORT, host="hooks.{NAMESPACE}.svc", CA)

@trioperator.index("kopfexamples", labels={{"rolling": "limits"}})
def limits(spec, **_):
    return {{"bad": spec["bad"]}}

@trioperator.on.mutate("kopfexamples", labels={{"rolling": "yes"}}, operations=["CREATE"], persistent=True)
async def mark(patch, **_):
    patch.spec["marked"] = True

@trioperator.on.validate("kopfexamples", labels={{"rolling": "yes"}}, operations=["CREATE"], persistent=True)
async def check(spec, limits, **_):
    if spec["size"] in [bad for one in limits.get("bad", []) for bad in one]:
        raise trioperator.AdmissionError("it is bad", code=403)
"""


class Replica:
    """An operator at an address of its own, as a pod has one."""

    def __init__(self, number: int, program: Program, *, webhooks: int, probes: int) -> None:
        self.number = number
        self.program = program
        self.host = f"127.0.0.{number + 2}"
        self.webhooks = webhooks
        self.probes = probes
        self.is_ready = False  # as the balancer knows it
        self.became_ready = trio.Event()
        self.connections = 0

    async def probe(self) -> bool:
        """Ask whether the replica is ready, as the kubelet does."""
        try:
            async with httpx.AsyncClient(timeout=1, trust_env=False) as client:
                return (await client.get(f"http://{self.host}:{self.probes}/readyz")).is_success
        except httpx.TransportError:
            return False

    async def stop(self) -> None:
        """Send SIGTERM, and wait until the replica has ended. Some time later it gets no more connections."""
        async with trio.open_nursery() as nursery:
            self.program.process.send_signal(signal.SIGTERM)
            nursery.start_soon(self._remove)
            with trio.fail_after(5):  # long before it ends
                while await self.probe():  # noqa: ASYNC110 -- a poll of another process
                    await trio.sleep(0.05)
            assert self.program.process.poll() is None
            code = await trio.to_thread.run_sync(functools.partial(self.program.process.wait, 60))
        assert code == 0, self.program.output

    async def _remove(self) -> None:
        await trio.sleep(REMOVAL)
        self.is_ready = False


class Balancer:
    """A Service: it passes connections on to ready replicas, in turn."""

    def __init__(self) -> None:
        self.replicas: list[Replica] = []

    async def serve(self, port: int, *, task_status: trio.TaskStatus[None]) -> None:
        serve = functools.partial(trio.serve_tcp, self._connect, port, host="127.0.0.1")
        async with trio.open_nursery() as nursery:
            await nursery.start(serve)
            nursery.start_soon(self._probe)
            task_status.started()

    async def _probe(self) -> None:
        while True:
            for replica in list(self.replicas):
                if not replica.became_ready.is_set() and await replica.probe():
                    replica.is_ready = True
                    replica.became_ready.set()
            await trio.sleep(PROBING)

    async def _connect(self, client: trio.SocketStream) -> None:
        ready = [replica for replica in self.replicas if replica.is_ready]
        with contextlib.suppress(OSError, trio.BrokenResourceError, trio.ClosedResourceError):
            if ready:
                chosen = min(ready, key=lambda replica: replica.connections)
                chosen.connections += 1
                server = await trio.open_tcp_stream(chosen.host, chosen.webhooks)
                async with server, trio.open_nursery() as nursery:
                    nursery.start_soon(_copy, client, server)
                    nursery.start_soon(_copy, server, client)


async def _copy(source: trio.SocketStream, target: trio.SocketStream) -> None:
    with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for data in source:
            await target.send_all(data)
        await target.send_eof()


class Writer:
    """20 writes a second, of which every other one is to be denied; and what has become of them."""

    def __init__(self, plane: ControlPlane) -> None:
        self._url = f"{plane.read_kubeconfig()['server']}/apis/kopf.dev/v1/namespaces/{NAMESPACE}/kopfexamples"
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.seen_enough = trio.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        trusting = ssl.create_default_context()
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        headers = {"Authorization": "Bearer admin-token"}
        async with httpx.AsyncClient(verify=trusting, headers=headers, timeout=40) as client:
            with trio.fail_after(60):
                while not (self.outcomes["denied"] and self.outcomes["accepted"]):  # until webhooks are called
                    self.outcomes.clear()
                    for size in (1, 2):
                        await self._write(client, size)
            self.outcomes.clear()
            self.wrong.clear()
            async with trio.open_nursery() as nursery:
                stopped = trio.Event()
                nursery.start_soon(self._write_all, client, stopped)
                yield
                stopped.set()

    async def _write_all(self, client: httpx.AsyncClient, stopped: trio.Event) -> None:
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            for number in itertools.count():
                await trio.sleep_until(began + number * 0.05)
                if stopped.is_set():
                    return
                nursery.start_soon(self._write, client, 1 + number % 2)

    async def _write(self, client: httpx.AsyncClient, size: int) -> None:
        meta = {"generateName": "r-", "namespace": NAMESPACE, "labels": {"rolling": "yes"}}
        body = {"apiVersion": "kopf.dev/v1", "kind": "KopfExample", "metadata": meta, "spec": {"size": size}}
        response = await client.post(self._url, json=body)
        if response.status_code == 201 and size == 1 and response.json()["spec"].get("marked"):
            self.outcomes["accepted"] += 1
        elif response.status_code == 403 and size == 2 and "it is bad" in response.text:
            self.outcomes["denied"] += 1
        else:
            self.wrong.append(f"size {size}: {response.status_code} {response.text[:300]}")
        if self.wrong or min(self.outcomes["accepted"], self.outcomes["denied"]) >= ENOUGH:
            self.seen_enough.set()


class Rollout:
    """A Deployment of two replicas behind a Service."""

    def __init__(self, plane: ControlPlane, folder: pathlib.Path, source: str) -> None:
        self._plane = plane
        self._folder = folder
        self.source = source
        self.port = find_port()
        self.balancer = Balancer()
        self.started: list[Replica] = []

    async def add(self) -> Replica:
        """Start a replica, and wait until it is ready."""
        replica = await trio.to_thread.run_sync(self._start)
        self.started.append(replica)
        self.balancer.replicas.append(replica)
        with trio.fail_after(60):
            await replica.became_ready.wait()
        return replica

    def _start(self) -> Replica:
        number = len(self.started)
        [probes] = free_ports(1)
        file, log = self._folder / "app.py", self._folder / f"replica-{number}.log"
        file.write_text(self.source.replace("PORT", str(self.port)))
        host = f"127.0.0.{number + 2}"
        command = [
            sys.executable,
            "-m",
            "trioperator",
            "run",
            f"--namespace={NAMESPACE}",
            "--leader-elect",
            "--lease=rolling",
        ]
        command += [f"--health=http://{host}:{probes}", str(file)]
        kubeconfig = str(self._plane.folder / "operator.kubeconfig")
        environment = {**os.environ, "KUBECONFIG": kubeconfig, "REPLICA_ADDRESS": host}
        with log.open("wb") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment)
        return Replica(number, Program(process, log), webhooks=self.port, probes=probes)

    def kill(self) -> None:
        for replica in self.started:
            if replica.program.process.poll() is None:
                replica.program.process.kill()
                replica.program.process.wait()


@pytest.fixture
def service(controlplane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with a Service whose address is the balancer's, and an object that says what is bad."""
    controlplane.kubectl("create", "namespace", NAMESPACE)
    controlplane.kubectl("-n", NAMESPACE, "create", "service", "externalname", "hooks", "--external-name=127.0.0.1")
    limits = {
        "apiVersion": "kopf.dev/v1",
        "kind": "KopfExample",
        "metadata": {"name": "limits", "namespace": NAMESPACE, "labels": {"rolling": "limits"}},
        "spec": {"bad": [2]},
    }
    controlplane.apply(limits)
    yield controlplane
    for kind in ("mutating", "validating"):
        controlplane.kubectl("delete", f"{kind}webhookconfigurations", HOOKS, "--ignore-not-found")
    controlplane.kubectl("delete", "namespace", NAMESPACE)  # and all in it


def rename_handlers(source: str) -> str:
    """Return the operator of a release whose webhooks have other names."""
    return source.replace("def mark(", "def mark_all(").replace("def check(", "def check_sizes(")


@pytest.mark.parametrize(
    ("ca", "renames"), [("shared", False), ("own", False), ("deleted", False), ("shared", True), ("own", True)]
)
async def test_a_rolling_update_accepts_and_denies_each_write_as_it_should(
    service: ControlPlane, tmp_path: pathlib.Path, ca: str, renames: bool
) -> None:
    secret = "" if ca == "own" else f'ca_secret="{NAMESPACE}/hooks-ca", file_check_interval=3'
    rollout, writer = Rollout(service, tmp_path, OPERATOR.replace("CA)", f"{secret})")), Writer(service)
    with contextlib.ExitStack() as stack, trio.fail_after(300):
        stack.callback(rollout.kill)
        async with trio.open_nursery() as nursery:
            await nursery.start(rollout.balancer.serve, rollout.port)
            old = [await rollout.add(), await rollout.add()]
            async with writer.running():
                await trio.sleep(2)
                rollout.source = rename_handlers(rollout.source) if renames else rollout.source
                if ca == "deleted":  # for a new CA, which the old replicas take over, too
                    service.kubectl("-n", NAMESPACE, "delete", "secret", "hooks-ca")
                for replica in old:
                    await rollout.add()
                    await trio.sleep(1)
                    await replica.stop()
                await trio.sleep(2)
                await writer.seen_enough.wait()
            nursery.cancel_scope.cancel(reason="all is written")
    logging.getLogger(__name__).info("%s, %d wrong", dict(writer.outcomes), len(writer.wrong))
    assert writer.wrong == []
    assert len(rollout.started) == 4
    served = [bool(replica.connections) for replica in rollout.started]
    assert any(served[:2])
    assert any(served[2:])  # which took over
    for kind in ("mutating", "validating"):
        hooks = service.get(f"{kind}webhookconfigurations", HOOKS)["webhooks"]
        assert len(hooks) == (2 if renames else 1)  # those of the old release stay for some minutes
    bad = [each for each in service.get("-n", NAMESPACE, "kex")["items"] if each["spec"].get("size") == 2]
    assert bad == []
