"""The manifests for deployment on a real API server: an operator with the rights of its service account."""

from __future__ import annotations

import dataclasses
import json
import logging
import pathlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
import trio
import yaml

import trioperator
from tests.controlplane import ControlPlane
from tests.e2e.deployment import Deployed, define, foreign_kinds
from trioperator._kube.connection import load_connection

__all__ = ["foreign_kinds"]

Deploy: TypeAlias = Callable[..., Deployed]

BASE = pathlib.Path(__file__).parents[2] / "deploy" / "base"
EXAMPLE = {
    "apiVersion": "kopf.dev/v1",
    "kind": "KopfExample",
    "metadata": {"name": "one", "namespace": "deployed"},
    "spec": {"field": "value"},
}
APP = """
import os
import trioperator

@trioperator.on.startup()
def configure(settings, **_):
    settings.admission.server = trioperator.WebhookServer(
        addr="127.0.0.1",
        port=int(os.environ["WEBHOOKS_PORT"]),
        certfile=os.environ["CERTIFICATES"] + "/tls.crt",
        pkeyfile=os.environ["CERTIFICATES"] + "/tls.key",
    )

@trioperator.on.create("deployables", id="handle")
@trioperator.on.delete("deployables", id="handle")
async def handle(reason, **_):
    return str(reason)

@trioperator.on.validate("deployables", id="Check/It")
async def check(spec, **_):
    if spec.get("size", 0) > 10:
        raise trioperator.AdmissionError("too large", code=400)
"""

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
    for name in ("namespace", "serviceaccount", "rbac", "networkpolicy"):
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


@pytest.fixture
def deploy(controlplane: ControlPlane, tmp_path: pathlib.Path, foreign_kinds: None) -> Iterator[Deploy]:
    """Return a function that applies what kustomize makes of a folder."""
    deployed: list[Deployed] = []

    def deploy(folder: pathlib.Path) -> Deployed:
        built = list(yaml.safe_load_all(controlplane.kubectl("kustomize", str(folder))))
        deployed.append(Deployed(controlplane, tmp_path, built))
        deployed[-1].apply()
        return deployed[-1]

    try:
        yield deploy
    finally:
        for each in deployed:
            each.close()


def test_an_operator_runs_with_the_base_that_is_made_for_it(
    controlplane: ControlPlane, tmp_path: pathlib.Path, deploy: Deploy
) -> None:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "crds.yaml").write_text(yaml.safe_dump(define("deployables.e2e.kopf.dev", "Deployable")))
    options = ("--crds=crds.yaml", "--name=made", "--replicas=2", "--leader-elect", "--metrics", "--output=base")
    subprocess.run([sys.executable, "-m", "trioperator", "manifests", "app.py", *options], cwd=tmp_path, check=True)
    deployed = deploy(tmp_path / "base")
    assert {each["kind"] for each in deployed.manifests} >= {"Certificate", "ServiceMonitor", "PodDisruptionBudget"}
    operator = deployed.start()
    operator.wait_for("The operator is ready.")
    try:
        denied = create(controlplane, "large", size=11)
        assert denied.endswith('admission webhook "check.it.made.made" denied the request: too large')
        assert create(controlplane, "small", size=1) == ""
        one = ("deployables.e2e.kopf.dev/small", "--timeout=60s")
        controlplane.kubectl("wait", "--for=jsonpath={.status.handle}=create", *one)
        controlplane.kubectl("delete", *one)
        assert controlplane.get("lease", "made", "--namespace=made")["spec"]["holderIdentity"] == "a-pod"
        assert operator.stop() == 0
        assert deployed.forbidden() == []
        assert '"severity": "warn' not in operator.output
    finally:
        controlplane.kubectl("delete", "crd", "deployables.e2e.kopf.dev", "--wait=false")


@pytest.mark.parametrize("name", ["namespaced", "webhooks"])
def test_the_operator_of_the_image_runs_with_an_overlay(
    controlplane: ControlPlane, tmp_path: pathlib.Path, deploy: Deploy, name: str
) -> None:
    for file in ("main.py", "webhooks.py"):
        shutil.copy(BASE.parent / "operator" / file, tmp_path)
    deployed = deploy(BASE.parent / "overlays" / name)
    operator = deployed.start()
    operator.wait_for("The operator is ready.")
    namespace = "trioperator" if name == "namespaced" else "default"
    example = {**EXAMPLE, "metadata": {"name": f"with-{name}", "namespace": namespace}}
    controlplane.apply(example)
    one = (f"kopfexample/with-{name}", f"--namespace={namespace}", "--timeout=60s")
    controlplane.kubectl("wait", f"--for=jsonpath={{.status.create_fn.message}}=Hello, with-{name}!", *one)
    if name == "webhooks":
        large = json.dumps({"spec": {"field": "x" * 101}})
        with pytest.raises(AssertionError, match="The field must have 100 characters at most"):
            controlplane.kubectl("patch", one[0], one[1], "--type=merge", "-p", large)
    controlplane.kubectl("delete", *one)
    assert operator.stop() == 0
    assert deployed.forbidden() == []
    assert '"severity": "warn' not in operator.output


def create(controlplane: ControlPlane, name: str, **spec: Any) -> str:
    """Create an object; return the error of the API server, if any."""
    kubectl = [str(controlplane.assets / "kubectl"), f"--kubeconfig={controlplane.kubeconfig}"]
    metadata = {"name": name, "namespace": "default"}
    manifest = {"apiVersion": "e2e.kopf.dev/v1", "kind": "Deployable", "metadata": metadata, "spec": spec}
    command = [*kubectl, "create", "-f", "-"]
    text = json.dumps(manifest)
    result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    return result.stderr.strip()
