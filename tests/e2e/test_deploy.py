"""The manifests for deployment on a real API server: an operator with the rights of its service account."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib

import pytest
import trio

import trioperator
from tests.controlplane import ControlPlane
from trioperator.kube.connection import load_connection

BASE = pathlib.Path(__file__).parents[2] / "deploy" / "base"
EXAMPLE = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "one", "namespace": "deployed"},
    "spec": {"field": "value"},
}
ONE = ("kex", "one", "--namespace=deployed")


async def test_the_deployment_has_all_rights_that_it_needs(
    controlplane: ControlPlane, caplog: pytest.LogCaptureFixture
) -> None:
    registry = trioperator.OperatorRegistry()
    seen, handled = trio.open_memory_channel[str](10)

    @trioperator.on.create("kopf.dev", "v1", "kopfexamples", registry=registry)
    @trioperator.on.update("kopf.dev", "v1", "kopfexamples", registry=registry)
    @trioperator.on.delete("kopf.dev", "v1", "kopfexamples", registry=registry)
    async def handle(reason: str, namespace: str) -> str:
        if namespace == "deployed":  # other tests may have left objects elsewhere
            seen.send_nowait(str(reason))
        return str(reason)

    controlplane.kubectl("create", "namespace", "deployed")
    for name in ("namespace", "rbac", "networkpolicy"):
        controlplane.kubectl("apply", "-f", str(BASE / f"{name}.yaml"))
    token = controlplane.kubectl("create", "token", "trioperator", "--namespace=trioperator").strip()
    admin = load_connection([controlplane.kubeconfig])
    stop = trio.Event()

    async def operate(*, task_status: trio.TaskStatus[None]) -> None:
        await trioperator.operator(
            registry=registry,
            clusterwide=True,
            connection=dataclasses.replace(admin, token=token),
            stop_flag=stop,
            task_status=task_status,
        )

    with trio.fail_after(120):
        async with trio.open_nursery() as nursery:
            await nursery.start(operate)
            controlplane.apply(EXAMPLE)
            assert await handled.receive() == "create"
            controlplane.kubectl("patch", *ONE, "--type=merge", "-p", json.dumps({"spec": {"field": "x"}}))
            assert await handled.receive() == "update"
            await trio.to_thread.run_sync(lambda: controlplane.kubectl("delete", *ONE, "--timeout=90s"))
            assert await handled.receive() == "delete"
            stop.set()
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []
